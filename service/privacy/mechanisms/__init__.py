"""Mechanisms: how noise is added to one kind of exact values, each with its argument beside it."""
