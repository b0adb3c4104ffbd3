"""Primitives: the noised values that a release stores, and how aggregates are derived from them."""
