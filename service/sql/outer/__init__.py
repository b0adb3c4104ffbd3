"""Outer SQL: what a query does with released values, rebuilt to run on those alone. It costs nothing."""
