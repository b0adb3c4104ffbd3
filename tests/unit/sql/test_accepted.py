"""What is answered means what plain SQL means, on rows with every awkward value."""

import duckdb
import pytest

from service.core.request import Ask
from service.sql.read.allow import OUTER, ROWS, unlisted
from service.sql.understand import understand
from tests.fixtures.prepared import prepared
from tests.fixtures.sql.corpus import accepted
from tests.fixtures.sql.exact import answer, tidy
from tests.fixtures.sql.shop import SCHEMA, rows

PARSER = duckdb.connect()


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    """With a macro for what DuckDB has no name for."""
    database = prepared(SCHEMA, rows(3))
    database.execute("CREATE MACRO rms(x) AS sqrt(avg(x * x))")
    return database


@pytest.mark.parametrize("sql", accepted())
def test_an_accepted_query_equals_plain_sql_without_noise(sql: str, database: duckdb.DuckDBPyConnection) -> None:
    query = understand(Ask("shop", sql), SCHEMA)
    cursor = database.execute(sql)
    assert cursor.description is not None
    width = len(cursor.description)
    expected = cursor.fetchall()
    _, found = answer(database, query)
    assert len(query.outer.outputs) == width
    assert tidy(found) == tidy(expected)


@pytest.mark.parametrize("sql", accepted())
def test_an_emitted_tree_holds_only_listed_nodes_and_reads_back_as_itself(sql: str) -> None:
    query = understand(Ask("shop", sql), SCHEMA)
    assert unlisted(query.outer.select, OUTER) == []
    for tree in (query.outer.select, *(plan.rows for plan in query.cores)):
        assert tree is query.outer.select or unlisted(tree, ROWS) == []
        text = tree.sql(dialect="duckdb")
        again = PARSER.execute("SELECT json_serialize_sql(?)", [text]).fetchall()[0][0]
        assert '"error":false' in again
