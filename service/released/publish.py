"""Panels as tables of a PostgreSQL schema, for BI tools with their stock connector.

Each panel has one table: its columns, an interval beside each value, released_at, and per value the share that its
bounds leave out. Everything in it was
released already, so a reader who refreshes a thousand times spends nothing; the reading role has SELECT
on this schema and nothing else.
"""

import json
import re
from datetime import date, datetime
from typing import Any

import sqlalchemy as sa

PUBLISHED_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")

TYPES: dict[str, type[sa.types.TypeEngine[Any]]] = {
    "BOOLEAN": sa.Boolean,
    "BIGINT": sa.BigInteger,
    "INTEGER": sa.BigInteger,
    "DOUBLE": sa.Double,
    "DECIMAL": sa.Double,
    "DATE": sa.Date,
    "TIMESTAMP": sa.DateTime,
}
RELEASED_AT = "released_at"
CLIPPED = "_clipped"
NAME_BYTES = 63  # PostgreSQL cuts longer names off, silently


class Publisher:
    """Writes panels to `schema` and lets `reader` (a role that an admin made) read them."""

    def __init__(self, url: str, *, schema: str, reader: str | None) -> None:
        assert PUBLISHED_NAME.fullmatch(schema) and (reader is None or PUBLISHED_NAME.fullmatch(reader))
        self._engine = sa.create_engine(url, pool_size=1)
        self._schema = schema
        self._reader = reader

    def publish(self, name: str, body: bytes, released_at: str) -> None:
        """Append one refresh to the table `name`; a panel whose columns changed starts it anew. All or nothing."""
        assert PUBLISHED_NAME.fullmatch(name)
        answer = json.loads(body)
        table = self._table(name, answer["columns"])
        with self._engine.begin() as tx:
            self._ready(tx, table)
            moment = datetime.fromisoformat(released_at)
            tx.execute(table.delete().where(table.c[RELEASED_AT] == moment))
            rows = _rows(table, answer, moment)
            if rows:
                tx.execute(table.insert(), rows)

    def withdraw(self, name: str) -> None:
        """Remove a deleted panel's table."""
        assert PUBLISHED_NAME.fullmatch(name)
        with self._engine.begin() as tx:
            tx.execute(sa.schema.DropTable(sa.Table(name, sa.MetaData(), schema=self._schema), if_exists=True))

    def close(self) -> None:
        self._engine.dispose()

    def _table(self, table_name: str, columns: list[dict[str, Any]]) -> sa.Table:
        """Column names are the analyst's: SQLAlchemy quotes them, and doubles get a number."""
        made = [sa.Column(RELEASED_AT, sa.DateTime(timezone=True), nullable=False)]
        taken = {RELEASED_AT}
        for column in columns:
            kind = TYPES.get((column["type"] or "VARCHAR").split("(")[0], sa.Text)
            sides = ("", "_low", "_high") if column["role"] == "value" else ("",)
            for side in sides:
                name = _free_name(column["name"] or "column", side, taken)
                made.append(sa.Column(name, kind if side == "" else _side(kind)))
        for column in columns:
            if column["role"] == "value":  # after all others: a table of an older version only grows
                made.append(
                    sa.Column(_free_name(column["name"] or "column", CLIPPED, taken), sa.Double, info={"added": True})
                )
        return sa.Table(table_name, sa.MetaData(), *made, schema=self._schema)

    def _ready(self, tx: sa.Connection, table: sa.Table) -> None:
        tx.execute(sa.schema.CreateSchema(self._schema, if_not_exists=True))
        inspector = sa.inspect(tx)
        if inspector.has_table(table.name, schema=self._schema):
            present = [column["name"] for column in inspector.get_columns(table.name, schema=self._schema)]
            wanted = [column.name for column in table.columns]
            if present == wanted:
                return
            if present == [name for name in wanted if name not in _added(table)]:
                self._grow(tx, table)
                return
            tx.execute(sa.schema.DropTable(table))
        tx.execute(sa.schema.CreateTable(table))
        self._let_read(tx, table)

    def _grow(self, tx: sa.Connection, table: sa.Table) -> None:
        """What was published stays; what is new is NULL there."""
        quote = tx.dialect.identifier_preparer.quote
        for name in _added(table):
            kind = table.c[name].type.compile(tx.dialect)
            tx.exec_driver_sql(f"ALTER TABLE {quote(self._schema)}.{quote(table.name)} ADD COLUMN {quote(name)} {kind}")

    def _let_read(self, tx: sa.Connection, table: sa.Table) -> None:
        if self._reader is not None:
            quote = tx.dialect.identifier_preparer.quote
            tx.exec_driver_sql(f"GRANT USAGE ON SCHEMA {quote(self._schema)} TO {quote(self._reader)}")
            tx.exec_driver_sql(f"GRANT SELECT ON {quote(self._schema)}.{quote(table.name)} TO {quote(self._reader)}")


def _added(table: sa.Table) -> list[str]:
    """Columns that tables of older versions lack."""
    return [column.name for column in table.columns if column.info.get("added")]


def _side(kind: type[sa.types.TypeEngine[Any]]) -> type[sa.types.TypeEngine[Any]]:
    return kind if kind in (sa.Date, sa.DateTime) else sa.Double


def _free_name(name: str, side: str, taken: set[str]) -> str:
    """`name` and what it is the side of, short enough for PostgreSQL and unlike any other; NUL can not be there."""
    clean, ending, number = name.replace("\0", ""), side, 2
    while True:
        stem = clean.encode()[: NAME_BYTES - len(ending)].decode(errors="ignore")
        if (free := stem + ending) not in taken:
            taken.add(free)
            return free
        ending, number = f"{side}_{number}", number + 1


def _rows(table: sa.Table, answer: dict[str, Any], released_at: datetime) -> list[dict[str, Any]]:
    rows = []
    for cells, low, high in zip(answer["rows"], answer["low_95"], answer["high_95"], strict=True):
        values: list[Any] = [released_at]
        for column, cell, bottom, top in zip(answer["columns"], cells, low, high, strict=True):
            values += [cell, bottom, top] if column["role"] == "value" else [cell]
        values += [column.get("clipped_share") for column in answer["columns"] if column["role"] == "value"]
        rows.append({column.name: _typed(column, value) for column, value in zip(table.columns, values, strict=True)})
    return rows


def _typed(column: sa.Column[Any], value: Any) -> Any:
    """JSON's text of a date or a moment, as the column's type wants it."""
    if isinstance(value, str) and isinstance(column.type, sa.Date):
        return date.fromisoformat(value)
    if isinstance(value, str) and isinstance(column.type, sa.DateTime):
        return datetime.fromisoformat(value)
    return value
