"""Source files as a relation, inside the import child."""

import os
from dataclasses import dataclass, field

import duckdb

from service.core.inner_table import qualified
from service.core.prepared import is_key
from service.core.schema import Column, SqlType, Table
from service.core.schema_codec import table_from_json
from service.engine.duckdb.processes import frames
from service.engine.quoting import quoted, string_literal

MOST_COLUMNS = 2000
# Beyond these no calendar of an answer reaches: Python, JSON readers and spreadsheets end here.
FIRST, LAST = "0001-01-01", "9999-12-31"


class ImportRefused(Exception):
    """Something about the source that the admin can put right. Names columns and files, never values."""

    def __init__(self, detail: str, extra: dict[str, str | int] | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.extra = extra or {}


@dataclass(frozen=True, slots=True)
class SourceRows:
    """What a source holds. `sql` goes after FROM; `types` by the source's own names; `names`: declared name to
    source name."""

    sql: str
    types: dict[str, str]
    names: dict[str, str] = field(default_factory=dict)


def open_source(connection: duckdb.DuckDBPyConnection, job: frames.Header) -> SourceRows:
    """The job's source, with its declared columns found in it."""
    relation = open_relation(connection, job)
    table = table_from_json(job["table"])
    names = {name: _find(column.source_name or name, relation.types) for name, column in table.columns.items()}
    return SourceRows(relation.sql, relation.types, names)


def open_relation(connection: duckdb.DuckDBPyConnection, job: frames.Header) -> SourceRows:
    sql = _relation(connection, job)
    try:
        described = connection.execute(f"DESCRIBE SELECT * FROM {sql}").fetchall()
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error:
        raise unreadable(job) from None
    if len(described) > MOST_COLUMNS:
        raise ImportRefused(f"a source may have at most {MOST_COLUMNS} columns")
    return SourceRows(sql, {row[0]: row[1] for row in described})


def unreadable(job: frames.Header) -> ImportRefused:
    return ImportRefused(f"the source could not be read as {job['kind']}: it is damaged, cut short or of another kind")


def as_declared(value: str, kind: SqlType) -> str:
    """The SQL expression as the declared type; NULL for what does not fit, infinite days included.

    A group key must come back as a Python date: a day that has none would fail the whole query, and
    whether somebody has such a day is nobody's business."""
    tried = f"TRY_CAST({value} AS {kind})"
    if kind.name == "DATE":
        return f"CASE WHEN {tried} BETWEEN DATE '{FIRST}' AND DATE '{LAST}' THEN {tried} END"
    if kind.name == "TIMESTAMP":
        last = f"TIMESTAMP '{LAST} 23:59:59.999999'"
        return f"CASE WHEN {tried} BETWEEN TIMESTAMP '{FIRST} 00:00:00' AND {last} THEN {tried} END"
    return tried


def declared_rows(relation: SourceRows, table: Table) -> str:
    """A SELECT of the source's rows as declared: types first, then lengths, over names that are ours."""
    columns = table.columns.values()
    typed = (
        f"{as_declared(quoted(relation.names[column.name]), column.type)} AS {quoted(column.name)}"
        for column in columns
    )
    held = (
        f"{within_limit(quoted(column.name), column, key=is_key(table, column))} AS {quoted(column.name)}"
        for column in columns
    )
    return f"SELECT {', '.join(held)} FROM (SELECT {', '.join(typed)} FROM {relation.sql})"


def within_limit(value: str, column: Column, *, key: bool) -> str:
    """A value of the declared type as the prepared column holds it: a text within its max_bytes (N6).

    `value` is the name of a declared column, or reads a source where the column is a key.
    """
    if column.max_bytes is None:
        return value
    beyond = "NULL" if key else _beginning(value, column.max_bytes)
    return f"CASE WHEN strlen({value}) > {column.max_bytes} THEN {beyond} ELSE {value} END"


def _beginning(text: str, max_bytes: int) -> str:
    """The longest beginning of a text with at most so many bytes that ends between two characters.

    How many characters that has is found bit by bit, from the highest: more characters never have fewer bytes.
    left() counts characters, strlen() bytes. The lambda's names hide columns of the same name, so they have a '#',
    which no declared name has.
    """
    bits = ", ".join(str(1 << bit) for bit in reversed(range(max_bytes.bit_length())))
    fits = f'strlen(left({text}, "#n" + "#bit")) <= {max_bytes}'
    found = f'list_reduce([0, {bits}], lambda "#n", "#bit": CASE WHEN {fits} THEN "#n" + "#bit" ELSE "#n" END)'
    return f"left({text}, {found})"


def _relation(connection: duckdb.DuckDBPyConnection, job: frames.Header) -> str:
    files = "[" + ", ".join(string_literal(path) for path in job["files"]) + "]"
    if job["kind"] == "parquet":
        hive = any("=" in path for path in job["files"])
        return f"read_parquet({files}, union_by_name = true, hive_partitioning = {str(hive).lower()})"
    if job["kind"] == "csv":
        return f"read_csv({files}, all_varchar = true, header = true, union_by_name = true)"
    return _duckdb_table(connection, job)


def _duckdb_table(connection: duckdb.DuckDBPyConnection, job: frames.Header) -> str:
    """A base table of an attached file, under the one name that it is claimed by (service/core/inner_table.py).
    Not a view: that would be SQL of a stranger."""
    _attach_without_log(connection, job)
    found = connection.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'source' AND NOT internal"
        " AND schema_name || '.' || table_name = $1 AND NOT contains(schema_name || table_name, '.')",
        [qualified(job["source_table"])],
    ).fetchall()
    if len(found) != 1:
        raise ImportRefused(
            "the DuckDB file has no such table: outside the schema main write schema.table;"
            " names with a dot in them are not read"
        )
    return f'"source".{quoted(found[0][0])}.{quoted(found[0][1])}'


def _attach_without_log(connection: duckdb.DuckDBPyConnection, job: frames.Header) -> None:
    """A log beside the file can hold whole tables, and it is neither claimed nor hashed, nor must it lie in a source
    folder. ATTACH can not be kept from it, so it is looked for before, and afterwards the database says how many bytes
    of one it has read."""
    path: str = job["files"][0]
    if os.path.lexists(path + ".wal"):
        raise _log_beside(path)
    try:
        connection.execute(f'ATTACH {string_literal(path)} AS "source" (READ_ONLY, TYPE duckdb)')
        read = connection.execute("SELECT wal_size FROM pragma_database_size() WHERE database_name = 'source'")
        size = read.fetchone()
    except duckdb.Error:
        raise unreadable(job) from None
    if size != ("0 bytes",):
        raise _log_beside(path)


def _log_beside(path: str) -> ImportRefused:
    file = os.path.basename(path)
    return ImportRefused(
        f"{file}.wal lies beside the DuckDB file: its changes are not in the file, and only the file is claimed",
        {"file": f"{file}.wal", "remedy": "close what writes to the file, open it once in DuckDB and run CHECKPOINT"},
    )


def _find(wanted: str, types: dict[str, str]) -> str:
    if wanted in types:
        return wanted
    same = [name for name in types if name.lower() == wanted.lower()]
    if len(same) != 1:
        raise ImportRefused(f"the source has no column {wanted}", {"column": wanted})
    return same[0]
