"""Units of a prepared table by their rows: the table's index, the counts of a profile, and the cut that may follow."""

from pathlib import Path

import duckdb

from service.core.prepared import INT128, RANK_COLUMN, ROW_COUNT, UNIT_COLUMN, code_name, coded, total_name
from service.core.schema import Table
from service.core.schema_codec import table_from_json
from service.core.sizes import BINS
from service.engine.duckdb.importing.verifying import beyond_words, told_share
from service.engine.duckdb.prepared_file import BUILT, UNITS, inside
from service.engine.duckdb.processes import frames
from service.engine.quoting import quoted, string_literal

UNIT = quoted(UNIT_COLUMN)
INDEX = inside("out", UNITS)


def index_units(connection: duckdb.DuckDBPyConnection, table: Table) -> None:
    """The table's index of units."""
    codes = [code_name(column.name) for column in coded(table)]
    totals = "".join(
        f", coalesce(sum(abs({quoted(code)})), 0)::{INT128} AS {quoted(total_name(code))}" for code in codes
    )
    connection.execute(
        f"CREATE TABLE {INDEX} AS SELECT {UNIT}, count(*) AS {quoted(ROW_COUNT)}{totals}"
        f" FROM {BUILT} GROUP BY {UNIT} ORDER BY {UNIT}"
    )


def counted_units(connection: duckdb.DuckDBPyConnection, job: frames.Header) -> frames.Header:
    """How many units are in each bin of a profile, from the index: 1 row, 2, 3 to 4, …, and all beyond in the last."""
    connection.execute(f'ATTACH {string_literal(job["prepared"])} AS "out" (READ_ONLY)')
    rows = quoted(ROW_COUNT)
    bins = [
        f"count(*) FILTER ({rows} > {2**at // 2}" + (")" if at == BINS - 1 else f" AND {rows} <= {2**at})")
        for at in range(BINS)
    ]
    counts = connection.execute(f"SELECT {', '.join(bins)} FROM {INDEX}").fetchone()
    assert counts is not None
    return {"units": [int(count) for count in counts]}


def cut_rows(connection: duckdb.DuckDBPyConnection, job: frames.Header) -> frames.Header:
    """Of a table that was built and is not yet served, leave each unit its first `most` rows by rank."""
    table, most = table_from_json(job["table"]), int(job["most"])
    connection.execute(f'ATTACH {string_literal(str(Path(job["folder"]) / "rows.duckdb"))} AS "out"')
    before = _rows(connection)
    connection.execute(f"DELETE FROM {BUILT} WHERE {quoted(RANK_COLUMN)} >= {most}")
    kept = _rows(connection)
    if kept < before:
        connection.execute(f"DROP TABLE {INDEX}")
        index_units(connection, table)
    connection.execute('CHECKPOINT "out"')
    connection.execute('DETACH "out"')
    return {"rows": kept, "warnings": told_share(before - kept, before, beyond_words(table, most))}


def _rows(connection: duckdb.DuckDBPyConnection) -> int:
    row = connection.execute(f"SELECT count(*) FROM {BUILT}").fetchone()
    assert row is not None
    return int(row[0])
