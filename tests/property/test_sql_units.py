"""Nobody's rows depend on who else is there, and row bounds hold: Invariants P1 and P2 through the engine."""

from collections import Counter

import duckdb
import pytest
import sqlglot
from sqlglot import exp

from service.core.prepared import UNIT_COLUMN
from service.core.request import Ask
from service.sql.understand import understand
from tests.fixtures.prepared import prepared
from tests.fixtures.sql.corpus import accepted
from tests.fixtures.sql.shop import SCHEMA, rows

LEAVER = 4
UNIT_OF = {"customers": "customer_id", "orders": "customer_id", "visits": "visitor"}


def without(leaver: int) -> dict[str, list[dict[str, object]]]:
    data = rows(5)
    gone = {row["order_id"] for row in data["orders"] if row["customer_id"] == leaver}
    for table, column in UNIT_OF.items():
        data[table] = [row for row in data[table] if row[column] != leaver]
    data["items"] = [row for row in data["items"] if row["order_id"] not in gone]
    return data


def shuffled() -> dict[str, list[dict[str, object]]]:
    return {name: list(reversed(part)) for name, part in rows(5).items()}


@pytest.fixture(scope="module")
def databases() -> tuple[duckdb.DuckDBPyConnection, ...]:
    return prepared(SCHEMA, rows(5)), prepared(SCHEMA, without(LEAVER)), prepared(SCHEMA, shuffled(), threads=2)


def contributions(database: duckdb.DuckDBPyConnection, select: exp.Expression) -> Counter[tuple[object, ...]]:
    """Rows by the unit's own hash (codes of units shift when somebody leaves)."""
    inner = select.sql(dialect="duckdb")
    columns = f'u."key", r.* EXCLUDE ("{UNIT_COLUMN}")'
    sql = f'SELECT {columns} FROM ({inner}) r JOIN "#units" u USING ("{UNIT_COLUMN}")'
    return Counter(tuple(repr(cell) for cell in row) for row in database.execute(sql).fetchall())


def of_others(before: Counter[tuple[object, ...]], after: Counter[tuple[object, ...]]) -> Counter[tuple[object, ...]]:
    gone = {row[0] for row in before} - {row[0] for row in after}
    assert len(gone) <= 1
    return Counter({row: n for row, n in before.items() if row[0] not in gone})


@pytest.mark.parametrize("sql", accepted())
def test_rows_of_others_stay_when_somebody_leaves_or_rows_move(
    sql: str, databases: tuple[duckdb.DuckDBPyConnection, ...]
) -> None:
    every, fewer, moved = databases
    for plan in understand(Ask("shop", sql), SCHEMA).cores:
        before, after = contributions(every, plan.rows), contributions(fewer, plan.rows)
        assert of_others(before, after) == after
        assert contributions(moved, plan.rows) == before


def test_the_check_catches_rows_that_depend_on_others(databases: tuple[duckdb.DuckDBPyConnection, ...]) -> None:
    broken = sqlglot.parse_one('SELECT "#unit", count(*) OVER () AS k0 FROM customers', dialect="duckdb")
    assert isinstance(broken, exp.Expression)
    before, after = contributions(databases[0], broken), contributions(databases[1], broken)
    assert of_others(before, after) != after


@pytest.mark.parametrize("sql", accepted())
def test_no_unit_has_more_rows_than_its_bound(sql: str, databases: tuple[duckdb.DuckDBPyConnection, ...]) -> None:
    database = databases[0]
    for plan in understand(Ask("shop", sql), SCHEMA).cores:
        if plan.row_bound is None:
            continue
        parts = [f'SELECT "{UNIT_COLUMN}", "rows" FROM "{table}#units"' for table in plan.row_bound.tables]
        allowed = " UNION ALL ".join([*parts, f'SELECT "{UNIT_COLUMN}", {plan.row_bound.constant} FROM "#units"'])
        counted = f'SELECT "{UNIT_COLUMN}", count(*) AS n FROM ({plan.rows.sql(dialect="duckdb")}) GROUP BY 1'
        over = database.execute(
            f'SELECT count(*) FROM ({counted}) c JOIN (SELECT "{UNIT_COLUMN}", sum("rows") AS most FROM ({allowed})'
            f' a("{UNIT_COLUMN}", "rows") GROUP BY 1) b USING ("{UNIT_COLUMN}") WHERE c.n > b.most'
        ).fetchall()
        assert over[0][0] == 0
