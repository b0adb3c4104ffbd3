"""Engines that hold private data, and the scratch engine that never does."""
