"""Statements rendered to text once per dialect."""

from typing import Any

import sqlalchemy as sa


class Prepared:
    """A statement for the path that every query takes: as text, because rendering (even from
    SQLAlchemy's cache) costs more than running it.

    Bound values pass to the driver as they are: use it for integers and text only.
    """

    def __init__(self, statement: sa.sql.ClauseElement) -> None:
        self._statement = statement
        self._rendered: dict[str, tuple[str, tuple[str, ...] | None]] = {}

    def __call__(self, tx: sa.Connection, **values: int | str | None) -> Any:
        """Run it; a CursorResult whose rows are plain tuples."""
        text, order = self._rendered.get(tx.dialect.name) or self._render(tx.dialect)
        return tx.exec_driver_sql(text, values if order is None else tuple(values[name] for name in order))

    def _render(self, dialect: sa.Dialect) -> tuple[str, tuple[str, ...] | None]:
        compiled: Any = self._statement.compile(dialect=dialect)
        fixed = {name: value for name, value in compiled.params.items() if value is not None}
        assert not fixed, f"values must be bound by name or written as literals: {fixed}"
        order = tuple(compiled.positiontup) if compiled.positional else None
        self._rendered[dialect.name] = (str(compiled), order)
        return self._rendered[dialect.name]
