"""The types that all packages share. Standard library and numpy only, except plan.py (sqlglot trees)."""
