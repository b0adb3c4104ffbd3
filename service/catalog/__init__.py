"""What admins declare: datasets, tables, keys, and the log of their acts."""
