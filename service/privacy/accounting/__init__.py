"""Accounting, what a draw costs: Rényi costs and limits, always rounded against ourselves."""
