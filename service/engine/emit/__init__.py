"""The emitter: from a plan and its needs to DuckDB statements, one module per family of needs."""
