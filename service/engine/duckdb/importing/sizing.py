"""The exact size of a public table: what promised times are computed from, and nobody's secret."""

import duckdb

from service.core.schema import VARCHAR, Table
from service.core.sizes import PublicSize, size_to_text
from service.engine.duckdb.prepared_file import BUILT
from service.engine.quoting import quoted


def public_size(connection: duckdb.DuckDBPyConnection, table: Table) -> str:
    """The size of the table that was built, as the catalog keeps it. One pass per column."""
    assert not table.private, "the size of a private table is private"
    most = {name: _one(connection, _most_of_one_value(quoted(name))) for name in table.columns}
    texts = [name for name, column in table.columns.items() if column.type == VARCHAR]
    longest = {name: _one(connection, f"SELECT max(strlen({quoted(name)})) FROM {BUILT}") for name in texts}
    return size_to_text(PublicSize(_one(connection, f"SELECT count(*) FROM {BUILT}"), most, longest))


def _most_of_one_value(name: str) -> str:
    """NULL is no value: it joins with nothing. Grouping finds equal what joins find equal (0.0 and -0.0, NaN and NaN):
    else a join could meet more rows than this says."""
    return f"SELECT max(n) FROM (SELECT count(*) AS n FROM {BUILT} WHERE {name} IS NOT NULL GROUP BY {name})"


def _one(connection: duckdb.DuckDBPyConnection, sql: str) -> int:
    """0 where there is nothing to look at."""
    row = connection.execute(sql).fetchone()
    assert row is not None
    return int(row[0] or 0)
