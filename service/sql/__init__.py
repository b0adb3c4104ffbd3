"""Text to plan to engine SQL; pure, no I/O."""
