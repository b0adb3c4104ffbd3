"""The one database of ledger, catalog and released answers: connections, the writer, migrations."""
