"""Statements rendered to text once per dialect."""

from typing import Any

import sqlalchemy as sa


class RenderedStatement:
    """A statement for the path that every query takes: text that goes to the driver as it is, because
    SQLAlchemy's share of such a statement (even from its cache) costs more than running it.

    Bound values are integers and text only, and results are the driver's tuples.
    """

    def __init__(self, statement: sa.sql.ClauseElement) -> None:
        self._statement = statement
        self._rendered: dict[str, tuple[str, tuple[str, ...] | None]] = {}

    def __call__(self, tx: sa.Connection, **values: int | str | None) -> Any:
        """Run it; the driver's cursor."""
        text, order = self._rendered.get(tx.dialect.name) or self._render(tx.dialect)
        raw: Any = tx.connection.driver_connection
        return raw.execute(text, values if order is None else [values[name] for name in order])

    def _render(self, dialect: sa.Dialect) -> tuple[str, tuple[str, ...] | None]:
        compiled: Any = self._statement.compile(dialect=dialect)
        fixed = {name: value for name, value in compiled.params.items() if value is not None}
        assert not fixed, f"values must be bound by name or written as literals: {fixed}"
        order = tuple(compiled.positiontup) if compiled.positional else None
        self._rendered[dialect.name] = (str(compiled), order)
        return self._rendered[dialect.name]
