"""TPC-H as it is written: what plans, what is refused, and that the plans mean what the SQL says."""

from pathlib import Path

import duckdb
import pytest

from service.core.errors import ConstructRefused
from service.core.plan import RowBound
from service.core.request import Ask
from service.sql.understand import understand
from tests.fixtures.prepared import prepared
from tests.fixtures.sql.exact import answer, tidy
from tests.fixtures.sql.tpch_schema import SCHEMA, rows

FOLDER = Path(__file__).parents[2] / "fixtures" / "sql" / "tpch"
# Query to the row bound that must be proved: None means that the join may multiply rows.
ACCEPTED = {
    "q01": RowBound(0, ("lineitem",)),
    "q03_by_priority": RowBound(0, ("lineitem",)),
    "q04": RowBound(0, ("orders",)),
    "q05": RowBound(0, ("lineitem",)),
    "q06": RowBound(0, ("lineitem",)),
    "q10_by_nation": RowBound(0, ("lineitem",)),
    "q12": RowBound(0, ("lineitem",)),
    "q13": RowBound(1, ()),
    "q14": RowBound(0, ("lineitem",)),
    "q19": RowBound(0, ("lineitem",)),
}
REFUSED = ("q03", "q10")  # they show one row per order or per customer


def sql(name: str) -> str:
    return (FOLDER / f"{name}.sql").read_text()


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    return prepared(SCHEMA, rows(7))


def test_every_query_of_the_folder_has_a_verdict() -> None:
    assert {path.stem for path in FOLDER.glob("*.sql")} == {*ACCEPTED, *REFUSED}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_planned_query_equals_plain_sql_when_noise_and_weights_are_off(
    name: str, database: duckdb.DuckDBPyConnection
) -> None:
    query = understand(Ask("tpch", sql(name)), SCHEMA)
    assert [plan.row_bound for plan in query.cores] == [ACCEPTED[name]]
    cursor = database.execute(sql(name))
    assert cursor.description is not None
    labels = [column[0] for column in cursor.description]
    expected = cursor.fetchall()
    names, found = answer(database, query)
    assert names == labels
    assert expected, "the data must exercise the query"
    assert tidy(found) == tidy(expected)


@pytest.mark.parametrize("name", REFUSED)
def test_queries_that_show_one_person_are_refused_with_a_remedy(name: str) -> None:
    with pytest.raises(ConstructRefused) as refusal:
        understand(Ask("tpch", sql(name)), SCHEMA)
    assert refusal.value.extra["construct"] == "unit column"
    assert "COUNT(DISTINCT unit)" in str(refusal.value.extra["remedy"])
