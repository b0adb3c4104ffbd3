"""Imports: from an admin's files to the prepared copy that queries run on."""
