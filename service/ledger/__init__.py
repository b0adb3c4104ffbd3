"""The privacy-budget ledger: grant, reserve, settle, verify, recover."""
