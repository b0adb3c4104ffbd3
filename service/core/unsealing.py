"""The one way into a sealed table. Only privacy.mechanisms and privacy.release may import this
module; an import contract in pyproject.toml guards it."""

from service.core.boundary import Array, ExactTable


def unseal(table: ExactTable) -> tuple[dict[str, Array], dict[str, Array]]:
    """Columns and keys of a sealed table; a second opening is a bug."""
    return table._open()
