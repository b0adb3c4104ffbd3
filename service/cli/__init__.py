"""The `halftone` command."""

from service.cli.command import main

__all__ = ["main"]
