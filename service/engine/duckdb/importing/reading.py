"""Source files as a relation, inside the import child."""

from dataclasses import dataclass, field

import duckdb

from service.engine.duckdb.manifest import table_from_json
from service.engine.duckdb.processes import frames as wire
from service.engine.names import quoted, text

MOST_COLUMNS = 2000


class Refused(Exception):
    """Something about the source that the admin can put right. Names columns and files, never values."""

    def __init__(self, detail: str, extra: dict[str, str | int] | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.extra = extra or {}


@dataclass(frozen=True, slots=True)
class Relation:
    """`sql` goes after FROM. `types` by the source's own names; `names`: declared name to source name."""

    sql: str
    types: dict[str, str]
    names: dict[str, str] = field(default_factory=dict)


def open_source(connection: duckdb.DuckDBPyConnection, job: wire.Header) -> Relation:
    """The job's source, with its declared columns found in it."""
    relation = open_relation(connection, job)
    table = table_from_json(job["table"])
    names = {name: _find(column.source_name or name, relation.types) for name, column in table.columns.items()}
    return Relation(relation.sql, relation.types, names)


def open_relation(connection: duckdb.DuckDBPyConnection, job: wire.Header) -> Relation:
    sql = _relation(connection, job)
    try:
        described = connection.execute(f"DESCRIBE SELECT * FROM {sql}").fetchall()
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error:
        raise unreadable(job) from None
    if len(described) > MOST_COLUMNS:
        raise Refused(f"a source may have at most {MOST_COLUMNS} columns")
    return Relation(sql, {row[0]: row[1] for row in described})


def unreadable(job: wire.Header) -> Refused:
    return Refused(f"the source could not be read as {job['kind']}: it is damaged, cut short or of another kind")


def _relation(connection: duckdb.DuckDBPyConnection, job: wire.Header) -> str:
    files = "[" + ", ".join(text(path) for path in job["files"]) + "]"
    if job["kind"] == "parquet":
        hive = any("=" in path for path in job["files"])
        return f"read_parquet({files}, union_by_name = true, hive_partitioning = {str(hive).lower()})"
    if job["kind"] == "csv":
        return f"read_csv({files}, all_varchar = true, header = true, union_by_name = true)"
    return _duckdb_table(connection, job)


def _duckdb_table(connection: duckdb.DuckDBPyConnection, job: wire.Header) -> str:
    """A base table of an attached file. Not a view: that would be SQL of a stranger."""
    try:
        connection.execute(f'ATTACH {text(job["files"][0])} AS "source" (READ_ONLY, TYPE duckdb)')
    except duckdb.Error:
        raise unreadable(job) from None
    found = connection.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'source' AND NOT internal"
        " AND (table_name = $1 OR schema_name || '.' || table_name = $1)",
        [job["source_table"]],
    ).fetchall()
    if len(found) != 1:
        raise Refused("the DuckDB file has no such table, or more than one: write schema.table")
    return f'"source".{quoted(found[0][0])}.{quoted(found[0][1])}'


def _find(wanted: str, types: dict[str, str]) -> str:
    if wanted in types:
        return wanted
    same = [name for name in types if name.lower() == wanted.lower()]
    if len(same) != 1:
        raise Refused(f"the source has no column {wanted}", {"column": wanted})
    return same[0]
