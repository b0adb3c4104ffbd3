"""The one way into a sealed table. Only service/privacy/release.py may import this module; an import contract in
pyproject.toml guards it. Mechanisms are handed the opened integers."""

from service.core.boundary import Array, ExactTable


def unseal(table: ExactTable) -> tuple[dict[str, Array], dict[str, Array]]:
    """Columns and keys of a sealed table; a second opening is a bug."""
    return table._open()
