"""Private rows: FROM and WHERE of a core as relations (scans, joins, subqueries), each row with its unit."""
