"""The catalog: what admins declare of datasets and tables, API keys, and the log of their acts."""
