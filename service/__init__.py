"""Halftone: a differentially private SQL service."""

__version__ = "0.1.0"
