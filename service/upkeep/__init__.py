"""Upkeep: what a start sets right between files, catalog and ledger, and what an import claims."""
