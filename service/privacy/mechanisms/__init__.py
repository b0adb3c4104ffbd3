"""Mechanisms, each with its argument beside it."""
