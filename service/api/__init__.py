"""HTTP in, HTTP out; no decisions."""
