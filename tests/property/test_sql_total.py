"""What is emitted never raises because of a row, and every row stays within what the plan says of it."""

from fractions import Fraction

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlglot import exp

from service.core.errors import ServiceError
from service.core.request import Ask, AskedBounds
from service.sql.understand import understand
from tests.fixtures.sql.exact import core_sql
from tests.fixtures.sql.extremes import extreme_database
from tests.fixtures.sql.shop import SCHEMA

BOUNDS = AskedBounds(columns={"customers.lucky": (Fraction(-(10**18)), Fraction(10**18))})

LEAVES = st.sampled_from(
    [
        "age",
        "lucky",
        "1",
        "0.5",
        "-7",
        "1e5",
        "0",
        "CAST(name AS BIGINT)",
        "CAST(name AS DOUBLE)",
        "LENGTH(name)",
        "CAST(name AS DECIMAL(10, 2))",
        "YEAR(joined)",
        "MONTH(joined)",
        "EXTRACT(epoch FROM joined)",
        "joined - DATE '2020-01-01'",
        "DATE_DIFF('month', joined, DATE '2020-01-01')",
        "CAST(vip AS INT)",
        "CAST(vip AS DECIMAL(1, 1))",
        "CAST('123456789012345678' AS DECIMAL(18, 17))",
        "CAST(name AS DECIMAL(30, 29))",
        "CASE WHEN vip THEN 100000 END",
        "STRPOS(name, 'x')",
        "DATE_DIFF('day', CAST(name AS DATE), joined)",
    ]
)


def combine(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    one = st.sampled_from(
        [
            "-({})",
            "ABS({})",
            "SQRT({})",
            "LN({})",
            "EXP({})",
            "ROUND({}, 2)",
            "ROUND({}, -3)",
            "FLOOR({})",
            "CEIL({})",
            "SIGN({})",
            "POW({}, 2)",
            "POW({}, -3)",
            "LOG10({})",
            "CAST({} AS BIGINT)",
            "CAST({} AS DECIMAL(5, 2))",
            "CAST({} AS DOUBLE)",
            "({}) // 3",
            "({}) % 7",
            "({}) / 7",
            "COALESCE({}, 3)",
            "NULLIF({}, 0)",
            "LEAST({}, 10)",
            "GREATEST({}, -10, age)",
        ]
    )
    two = st.sampled_from(
        [
            "({}) + ({})",
            "({}) - ({})",
            "({}) * ({})",
            "({}) / ({})",
            "GREATEST({}, {})",
            "LEAST({}, {})",
            "CASE WHEN vip THEN {} ELSE {} END",
            "IF(lucky > 0.5, {}, {})",
        ]
    )
    return st.builds(lambda f, a: f.format(a), one, inner) | st.builds(
        lambda f, a, b: f.format(a, b), two, inner, inner
    )


NUMBERS = st.recursive(LEAVES, combine, max_leaves=5)


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    return extreme_database()


SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=120, deadline=None, suppress_health_check=SLOW)
@given(expression=NUMBERS, aggregate=st.sampled_from(["SUM", "VAR_POP", "MIN", "COUNT"]))
def test_a_measure_never_raises_and_keeps_its_range(
    database: duckdb.DuckDBPyConnection, expression: str, aggregate: str
) -> None:
    try:
        query = understand(Ask("shop", f"SELECT {aggregate}({expression}) FROM customers", bounds=BOUNDS), SCHEMA)
    except ServiceError:
        return
    (plan,) = query.cores
    for measure in plan.measures:
        low, high = database.execute(
            f"SELECT min({measure.name}), max({measure.name}) FROM ({plan.rows.sql(dialect='duckdb')})"
        ).fetchall()[0]
        assert low is None or measure.low <= low <= high <= measure.high


@settings(max_examples=80, deadline=None, suppress_health_check=SLOW)
@given(left=NUMBERS, right=NUMBERS, sign=st.sampled_from(["<", "=", ">=", "IS DISTINCT FROM"]))
def test_a_condition_never_raises(database: duckdb.DuckDBPyConnection, left: str, right: str, sign: str) -> None:
    try:
        query = understand(Ask("shop", f"SELECT COUNT(*) FROM customers WHERE {left} {sign} {right}"), SCHEMA)
    except ServiceError:
        return
    database.execute(core_sql(query.cores[0])).fetchall()


KEYS = [
    "joined",
    "DATE_TRUNC('month', joined)",
    "DATE_TRUNC('week', joined)",
    "joined + INTERVAL '3' MONTH",
    "joined - INTERVAL 100 YEAR",
    "STRFTIME(joined, '%Y-%m')",
    "CAST(joined AS TIMESTAMP)",
    "CAST(joined AS VARCHAR)",
    "CAST(name AS DATE)",
    "CAST(name AS TIMESTAMP)",
    "LEFT(name, 3)",
    "RIGHT(name, 10000)",
    "SUBSTRING(name, 2, 9999)",
    "name || name",
    "CONCAT(name, name)",
    "REPLACE(name, 'x', 'y')",
    "SPLIT_PART(name, 'x', 3)",
    "UPPER(name)",
    "TRIM(name)",
    "lucky",
    "age / 3",
    "lucky > 0.1",
    "lucky IN (1, 3.5)",
    "joined < TIMESTAMP '2020-01-01 01:00:00'",
    "joined IN (DATE '2020-01-01', TIMESTAMP '2020-01-01 01:00:00')",
    "CAST(lucky AS VARCHAR)",
    "name LIKE '%a%'",
    "lucky + 1",
    "lucky * lucky",
    "CAST(CAST(lucky AS DOUBLE) AS DECIMAL(38, 10))",
    "age < 0.00000000000000000000000000000000000001",
    "lucky > 99999999999999999999999999999999999999",
    "CAST(name AS BOOLEAN)",
]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_never_raises_and_can_be_fetched(database: duckdb.DuckDBPyConnection, key: str) -> None:
    query = understand(Ask("shop", f"SELECT {key} AS k, COUNT(DISTINCT {key}) FROM customers GROUP BY 1"), SCHEMA)
    database.execute(core_sql(query.cores[0])).fetchall()


ORDER_KEYS = [
    "moment",
    "DATE_TRUNC('hour', moment)",
    "moment + INTERVAL 1 YEAR",
    "CAST(moment AS DATE)",
    "STRFTIME(moment, '%H')",
    "moment > placed",
    "HOUR(moment)",
    "CAST(moment AS VARCHAR)",
    "raw",
    "-raw",
    "raw * raw",
    "raw / weight",
    "CAST(raw AS BIGINT)",
    "CAST(raw AS DECIMAL(10, 2))",
    "amount * amount * amount",
    "store * amount",
    "amount > store",
    "amount = raw",
]


@pytest.mark.parametrize("key", ORDER_KEYS)
def test_keys_over_floats_and_moments_never_raise(database: duckdb.DuckDBPyConnection, key: str) -> None:
    query = understand(Ask("shop", f"SELECT {key} AS k, COUNT(*) FROM orders GROUP BY 1"), SCHEMA)
    database.execute(core_sql(query.cores[0])).fetchall()


def test_texts_that_grow_in_every_subquery_stay_short(database: duckdb.DuckDBPyConnection) -> None:
    """Eight times as long ten times over would be gigabytes, but only if somebody is called so."""
    rows = "SELECT customer_id, name AS n FROM customers WHERE name = 'abc'"
    for depth in range(10):
        rows = f"SELECT customer_id, MAX(n || n || n || n || n || n || n || n) AS n FROM ({rows}) t{depth} GROUP BY 1"
    (plan,) = understand(Ask("shop", f"SELECT MAX(LENGTH(n)) FROM ({rows}) t"), SCHEMA).cores
    longest = database.execute(f"SELECT max(m0) FROM ({plan.rows.sql(dialect='duckdb')})").fetchall()[0][0]
    assert 24 < longest <= 10_000


@pytest.mark.parametrize("text", ["SPLIT_PART(name, '', 2)", "SPLIT_PART(name, 'x', 3)", "name || name"])
def test_only_the_beginning_of_a_long_text_is_split_or_joined(database: duckdb.DuckDBPyConnection, text: str) -> None:
    """A list of millions of parts, or a copy of a text of gigabytes, would be out of memory if that text is there."""
    (plan,) = understand(Ask("shop", f"SELECT COUNT(DISTINCT {text}) FROM customers"), SCHEMA).cores
    cut = [part.this for part in plan.rows.find_all(exp.Substring)]
    assert exp.column("name", table="t0", quoted=True) in cut
    database.execute(core_sql(plan)).fetchall()


# Each raised where Alice's row was there, and only there.
ALICE = [
    "SUM(CASE WHEN {alice} THEN 100000 END * CASE WHEN {alice} THEN 100000 END)",
    "SUM(CASE WHEN {alice} THEN 2000000000 END + CASE WHEN {alice} THEN 2000000000 END)",
    "SUM(CASE WHEN {alice} THEN 0.0000000000100001 * 0.100001 END)",
    "SUM(CASE WHEN {alice} THEN CASE WHEN vip THEN 1000000 END + 0.0001 END)",
    "SUM(POW(DATE '9999-12-31' - CASE WHEN {alice} THEN DATE '2020-02-29' END, 2))",
    "COUNT(CAST({alice} AS DECIMAL(1, 1)))",
    "COUNT(*) FILTER (WHERE CASE WHEN {alice} THEN"
    " CAST(name AS DECIMAL(30, 29)) > CAST('123456789012345678' AS DECIMAL(18, 17)) END)",
]


@pytest.mark.parametrize("output", ALICE)
def test_a_constant_never_raises_on_the_rows_that_reach_it(database: duckdb.DuckDBPyConnection, output: str) -> None:
    """The engine works constants out when it meets them: in the branch of a CASE, only if a row takes it."""
    sql = f"SELECT {output.format(alice='lucky = 0')} FROM customers"
    (plan,) = understand(Ask("shop", sql), SCHEMA).cores
    database.execute(core_sql(plan)).fetchall()
