"""Types shared by all packages. Standard library and numpy only, except plan.py (sqlglot trees)."""
