"""What a prepared version must keep before it may serve, and what its admin should hear about it."""

import duckdb

from service.core.prepared import UNIT_COLUMN, coded, is_key
from service.core.schema import Column, Table, UnitVia
from service.engine.duckdb.importing.coding import outside_bounds
from service.engine.duckdb.importing.reading import ImportRefused, SourceRows, as_declared
from service.engine.duckdb.prepared_file import BUILT, STAGED
from service.engine.quoting import quoted, tried_literal

SHARE_TOLD = 0.0005  # below this a share rounds to 0.0% and is not worth a sentence


def refuse_broken(connection: duckdb.DuckDBPyConnection, table: Table, relation: SourceRows) -> None:
    """Declared uniqueness, and signs that the declaration is about another file."""
    for column in table.columns.values():
        if column.unique and _count(connection, f"SELECT count(*) FROM ({doubles(table, column)} LIMIT 1)"):
            raise ImportRefused(f"{column.name} is declared unique, but a value occurs twice", {"column": column.name})
    kept = _count(connection, f"SELECT count(*) FROM {BUILT}")
    if kept == 0 and _count(connection, f"SELECT count(*) FROM {_staged(table)}"):
        raise ImportRefused(f"no row of the source has a unit{_too_long(table)}", {"table": table.name})
    for column in table.columns.values():
        if relation.types[relation.names[column.name]] != str(column.type):
            _refuse_other_type(connection, table, relation, column.name)
    for column in coded(table):
        inside = f"{quoted(column.name)} IS NOT NULL AND NOT coalesce({outside_bounds(column)}, false)"
        values = f"SELECT count({quoted(column.name)}) FROM {BUILT}"
        if _count(connection, values) and not _count(connection, f"SELECT count(*) FROM {BUILT} WHERE {inside}"):
            raise ImportRefused(f"no value of {column.name} lies within its bounds", {"column": column.name})


def doubles(table: Table, column: Column) -> str:
    """A SELECT with a row for every value of the column that occurs twice.

    Plans rely on uniqueness: a join to a unique key does not multiply rows, and rows that hang on a key belong to the
    one unit that holds it. So rows are looked at as they were read, before any were cut. After the cut a key that two
    people hold would pass whenever one of its rows was left out, and then what hangs on that row would count as the
    other person's: who leaves would take along rows of somebody who stays. For the same reason a row counts that names
    a unit, also where the cut of another table has left it none. Rows that name nobody are in no table.
    """
    name = quoted(column.name)
    named = "" if table.unit is None else f" AND {quoted(table.unit.column)} IS NOT NULL"
    return f"SELECT 1 FROM {_staged(table)} WHERE {name} IS NOT NULL{named} GROUP BY {name} HAVING count(*) > 1"


def warnings_of(
    connection: duckdb.DuckDBPyConnection, table: Table, relation: SourceRows, most: int | None
) -> list[str]:
    """Sentences for the admin who imports, only where something is lost: shares, rounded, and of texts how many. `most`
    rows of a unit were kept."""
    told: list[str] = []
    kept = _count(connection, f"SELECT count(*) FROM {BUILT}")
    if kept == 0:
        told.append("The table has no rows.")
    if table.unit is not None:
        _tell_dropped(connection, table, most, told)
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
        _tell_long(connection, table, relation, column, told)
    return told


def _too_long(table: Table) -> str:
    """Why a text may be no unit: keys are whole or missing."""
    limit = None if table.unit is None else table.columns[table.unit.column].max_bytes
    return "" if limit is None else f" of at most {limit} bytes, which is its max_bytes"


def _tell_long(
    connection: duckdb.DuckDBPyConnection, table: Table, relation: SourceRows, column: Column, told: list[str]
) -> None:
    """Texts beyond max_bytes. The source is read again only where the prepared copy may hold less than it: a text that
    was cut is at most three bytes short of the limit, a key is missing."""
    if column.max_bytes is None:
        return
    key = is_key(table, column)
    name, source = quoted(column.name), as_declared(quoted(relation.names[column.name]), column.type)
    short = f"{name} IS NULL" if key else f"strlen({name}) > {column.max_bytes - 4}"
    if not _count(connection, f"SELECT count(*) FROM (SELECT 1 FROM {_staged(table)} WHERE {short} LIMIT 1)"):
        return
    long = _count(connection, f"SELECT count(*) FROM {relation.sql} WHERE strlen({source}) > {column.max_bytes}")
    if long and key:
        told.append(
            f"{long} values of {column.name} have more than {column.max_bytes} bytes and count as missing: keys are"
            " never cut. Declare a larger max_bytes."
        )
    elif long:
        told.append(f"{long} values of {column.name} have more than {column.max_bytes} bytes and were cut.")


def _tell_dropped(connection: duckdb.DuckDBPyConnection, table: Table, most: int | None, told: list[str]) -> None:
    """Rows without a unit, and rows beyond what a unit keeps."""
    assert table.unit is not None
    staged = _count(connection, f"SELECT count(*) FROM {STAGED}")
    kept = _count(connection, f"SELECT count(*) FROM {BUILT}")
    gone = _count(connection, f"SELECT count(*) FROM {STAGED} WHERE {quoted(UNIT_COLUMN)} IS NULL")
    where = " at the end of the foreign key," if isinstance(table.unit, UnitVia) else ""
    _tell(told, gone, staged, f"of the rows have no unit{where} and were left out.")
    if most is not None:
        _tell(told, staged - gone - kept, staged, beyond_words(table, most))


def beyond_words(table: Table, most: int) -> str:
    """How an admin is told of rows that were cut."""
    limit = "max_rows_per_unit" if table.max_rows_per_unit is not None else f"the {most:,} that one unit keeps"
    return f"of the rows are beyond {limit} and were left out."


def _refuse_other_type(connection: duckdb.DuckDBPyConnection, table: Table, relation: SourceRows, name: str) -> None:
    """The source is read again only for a column that came out empty."""
    if _count(connection, f"SELECT count({quoted(name)}) FROM {_staged(table)}"):
        return
    if _count(connection, f"SELECT count({quoted(relation.names[name])}) FROM {relation.sql}"):
        raise ImportRefused(f"no value of {name} can be read as {table.columns[name].type}", {"column": name})


def told_share(part: int, whole: int, sentence: str) -> list[str]:
    """The sentence with its share in front; nothing where that is not worth a sentence."""
    return [f"{part / whole:.1%} {sentence}"] if whole and part / whole >= SHARE_TOLD else []


def _tell(told: list[str], part: int, whole: int, sentence: str) -> None:
    told += told_share(part, whole, sentence)


def _staged(table: Table) -> str:
    return STAGED if table.private else BUILT


def _count(connection: duckdb.DuckDBPyConnection, sql: str) -> int:
    row = connection.execute(sql).fetchone()
    assert row is not None
    return int(row[0])
