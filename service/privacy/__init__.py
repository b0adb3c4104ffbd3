"""Prices and releases: what a plan costs, and noise on its exact values. Knows no SQL and no database."""
