"""The DuckDB engine: caged child processes over a prepared copy of the data."""
