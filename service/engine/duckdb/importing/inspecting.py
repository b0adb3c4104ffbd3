"""What a file seems to hold: suggestions for the admin who is about to declare it, never for anyone else."""

import re
from typing import Any

import duckdb

from service.engine.duckdb.importing.reading import open_relation, unreadable
from service.engine.duckdb.processes import frames
from service.engine.quoting import quoted

DOMAIN_MOST = 50
SAMPLE_ROWS = 2_000_000
INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
DECIMAL = re.compile(r"DECIMAL\(\d+,\d+\)")
GUESSES = ("BIGINT", "DOUBLE", "DATE", "TIMESTAMP", "BOOLEAN")


def own_type(file_type: str) -> str | None:
    """The type that a column takes when nobody declared one, or None if none of ours can hold it.

    Decided by the file's own type alone, never by what its values look like: a type that one person's value could
    change would tell of them (docs/decisions/0004).
    """
    if file_type in INTEGERS:
        return "BIGINT"
    if file_type in ("UBIGINT", "HUGEINT", "UHUGEINT"):
        return "DECIMAL(38,0)"
    if file_type in ("FLOAT", "DOUBLE"):
        return "DOUBLE"
    if file_type.startswith("TIMESTAMP"):
        return "TIMESTAMP"
    return file_type if file_type in ("BOOLEAN", "VARCHAR", "DATE") or DECIMAL.fullmatch(file_type) else None


def inspect_source(connection: duckdb.DuckDBPyConnection, job: frames.Header) -> frames.Header:
    """Per column: a type, the share of NULLs, the range, few values as a domain, whether values repeat."""
    relation = open_relation(connection, job)
    try:
        connection.execute(f"CREATE TABLE sample AS SELECT * FROM {relation.sql} LIMIT {SAMPLE_ROWS + 1}")
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error:
        raise unreadable(job) from None
    rows = _row(connection, "SELECT count(*) FROM sample")[0]
    columns = [_column(connection, name, kind, rows) for name, kind in relation.types.items()]
    return {"rows": rows, "complete": rows <= SAMPLE_ROWS, "columns": columns}


def _column(connection: duckdb.DuckDBPyConnection, name: str, kind: str, rows: int) -> dict[str, Any]:
    suggested = _type(connection, name, kind)
    value = f"TRY_CAST({quoted(name)} AS {suggested})"
    filled, distinct = _row(connection, f"SELECT count({value}), count(DISTINCT {value}) FROM sample")
    held: dict[str, Any] = {
        "source_name": name,
        "type": suggested,
        "file_type": kind,
        "null_share": round(1 - filled / rows, 4) if rows else 0.0,
        "unique": rows > 0 and distinct == filled == rows,
        # A unit repeats or is unique, has no gaps to speak of, and is no measurement.
        "unit_candidate": rows > 0
        and filled >= 0.95 * rows
        and distinct > DOMAIN_MOST
        and suggested in ("BIGINT", "VARCHAR"),
        "low": None,
        "high": None,
        "domain": None,
    }
    if suggested not in ("VARCHAR", "BOOLEAN") and filled:
        finite = f"isfinite({value})" if suggested in ("DOUBLE", "DATE", "TIMESTAMP") else "true"
        low, high = _row(connection, f"SELECT min({value})::VARCHAR, max({value})::VARCHAR FROM sample WHERE {finite}")
        held["low"], held["high"] = low, high
    if 0 < distinct <= DOMAIN_MOST and suggested in ("VARCHAR", "BOOLEAN", "BIGINT"):
        listed = connection.execute(
            f"SELECT DISTINCT {value} AS v FROM sample WHERE {value} IS NOT NULL ORDER BY v"
        ).fetchall()
        held["domain"] = [row[0] for row in listed]
    return held


def _type(connection: duckdb.DuckDBPyConnection, name: str, kind: str) -> str:
    if kind in INTEGERS:
        return "BIGINT"
    if kind in ("FLOAT", "DOUBLE"):
        return "DOUBLE"
    if kind in ("BOOLEAN", "DATE") or kind.startswith("DECIMAL"):
        return kind
    if kind.startswith("TIMESTAMP"):
        return "TIMESTAMP"
    if kind in ("UBIGINT", "HUGEINT", "UHUGEINT"):
        return "DECIMAL(38,0)"
    if kind != "VARCHAR":
        return "VARCHAR"
    return _guess(connection, name)


def _guess(connection: duckdb.DuckDBPyConnection, name: str) -> str:
    """Text that is really something else: the first type that every value can be read as."""
    column = quoted(name)
    counts = ", ".join(f"count(TRY_CAST({column} AS {kind}))" for kind in GUESSES)
    whole = f"count(*) FILTER (WHERE {column} NOT SIMILAR TO '[+-]?[0-9]+' AND {column} IS NOT NULL)"
    filled, broken, *fits = _row(connection, f"SELECT count({column}), {whole}, {counts} FROM sample")
    for kind, count in zip(GUESSES, fits, strict=True):
        if filled and count == filled and not (kind == "BIGINT" and broken):
            return kind
    return "VARCHAR"


def _row(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[Any, ...]:
    row = connection.execute(sql).fetchone()
    assert row is not None
    return tuple(row)
