"""Engines: what computes exact integers over private data, and the scratch engine that only sees released values."""
