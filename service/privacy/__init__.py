"""Price and release; knows no SQL and no database."""
