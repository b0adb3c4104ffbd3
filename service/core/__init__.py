"""The types that all packages share. Standard library and numpy only, but for sqlglot in plan.py and places.py."""
