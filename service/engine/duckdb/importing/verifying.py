"""What a prepared version must keep before it may serve, and what its admin should hear about it."""

import duckdb

from service.core.prepared import coded
from service.core.schema import Table, UnitVia
from service.engine.duckdb.importing.coding import outside_bounds
from service.engine.duckdb.importing.reading import ImportRefused, SourceRows
from service.engine.duckdb.prepared_file import BUILT, STAGED
from service.engine.quoting import quoted, tried_literal

SHARE_TOLD = 0.0005  # below this a share rounds to 0.0% and is not worth a sentence


def refuse_broken(connection: duckdb.DuckDBPyConnection, table: Table, relation: SourceRows) -> None:
    """Declared uniqueness, checked over all prepared rows, since plans rely on it (a join to a unique key
    does not multiply rows); and signs that the declaration is about another file."""
    for column in table.columns.values():
        name = quoted(column.name)
        if column.unique and _count(
            connection,
            f"SELECT count(*) FROM (SELECT 1 FROM {BUILT} WHERE {name} IS NOT NULL"
            f" GROUP BY {name} HAVING count(*) > 1 LIMIT 1)",
        ):
            raise ImportRefused(f"{column.name} is declared unique, but a value occurs twice", {"column": column.name})
    kept = _count(connection, f"SELECT count(*) FROM {BUILT}")
    if kept == 0 and _count(connection, f"SELECT count(*) FROM {_staged(table)}"):
        raise ImportRefused("no row of the source has a unit", {"table": table.name})
    for column in table.columns.values():
        if relation.types[relation.names[column.name]] != str(column.type):
            _refuse_other_type(connection, table, relation, column.name)
    for column in coded(table):
        inside = f"{quoted(column.name)} IS NOT NULL AND NOT coalesce({outside_bounds(column)}, false)"
        values = f"SELECT count({quoted(column.name)}) FROM {BUILT}"
        if _count(connection, values) and not _count(connection, f"SELECT count(*) FROM {BUILT} WHERE {inside}"):
            raise ImportRefused(f"no value of {column.name} lies within its bounds", {"column": column.name})


def warnings_of(connection: duckdb.DuckDBPyConnection, table: Table) -> list[str]:
    """Sentences for the admin who imports: shares only, rounded, and only where something is lost."""
    told: list[str] = []
    kept = _count(connection, f"SELECT count(*) FROM {BUILT}")
    if kept == 0:
        told.append("The table has no rows.")
    if table.unit is not None:
        _tell_dropped(connection, table, kept, told)
    for column in coded(table):
        beyond = _count(connection, f"SELECT count(*) FROM {BUILT} WHERE {outside_bounds(column)}")
        _tell(told, beyond, kept, f"of the values of {column.name} lie outside its bounds and were clamped.")
    for column in table.columns.values():
        if column.domain is not None:
            listed = (
                ", ".join(tried_literal(value, column.type) for value in column.domain if value is not None) or "NULL"
            )
            inside = f"{quoted(column.name)} IS NULL OR {quoted(column.name)} IN ({listed})"
            beyond = _count(connection, f"SELECT count(*) FROM {BUILT} WHERE NOT ({inside})")
            _tell(told, beyond, kept, f"of the rows have a {column.name} outside its domain: no group will show them.")
    return told


def _tell_dropped(connection: duckdb.DuckDBPyConnection, table: Table, kept: int, told: list[str]) -> None:
    """Rows without a unit, and rows beyond the cap of a unit."""
    assert table.unit is not None
    staged = _count(connection, f"SELECT count(*) FROM {_staged(table)}")
    capped = table.max_rows_per_unit is not None
    if isinstance(table.unit, UnitVia):
        cap = " or are beyond max_rows_per_unit," if capped else ""
        _tell(
            told,
            staged - kept,
            staged,
            f"of the rows have no unit at the end of the foreign key,{cap} and were left out.",
        )
        return
    gone = _count(connection, f"SELECT count(*) FROM {_staged(table)} WHERE {quoted(table.unit.column)} IS NULL")
    _tell(told, gone, staged, "of the rows have no unit and were left out.")
    if capped:
        _tell(told, staged - gone - kept, staged, "of the rows are beyond max_rows_per_unit and were left out.")


def _refuse_other_type(connection: duckdb.DuckDBPyConnection, table: Table, relation: SourceRows, name: str) -> None:
    """The source is read again only for a column that came out empty."""
    if _count(connection, f"SELECT count({quoted(name)}) FROM {_staged(table)}"):
        return
    if _count(connection, f"SELECT count({quoted(relation.names[name])}) FROM {relation.sql}"):
        raise ImportRefused(f"no value of {name} can be read as {table.columns[name].type}", {"column": name})


def _tell(told: list[str], part: int, whole: int, sentence: str) -> None:
    if whole and part / whole >= SHARE_TOLD:
        told.append(f"{part / whole:.1%} {sentence}")


def _staged(table: Table) -> str:
    return STAGED if table.private else BUILT


def _count(connection: duckdb.DuckDBPyConnection, sql: str) -> int:
    row = connection.execute(sql).fetchone()
    assert row is not None
    return int(row[0])
