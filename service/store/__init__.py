"""The one database of ledger, catalog and answers: engine, writer, shared metadata."""
