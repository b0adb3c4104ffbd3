"""Questions that once moved the noised vector by more than they paid for, each with the data that shows it.

Like test_neighbours_whole_chain.py: SQL text in, the integers under the noise out, on a dataset and on the same
without one person. Here the data is chosen for the question: ids that are one number as DOUBLE, literals
that are one value once the engine has cast them, bounds beside the grid.
"""

from decimal import Decimal
from fractions import Fraction

import duckdb
import pytest

from service.core.amounts import PICO
from service.core.plan import Loss
from service.core.request import Ask, AskedBounds
from service.privacy.pricing.price import price
from service.sql.understand import understand
from tests.fixtures.prepared import prepared
from tests.fixtures.recorder import primitives
from tests.fixtures.sql.exact import day
from tests.fixtures.sql.shop import SCHEMA, START, rows
from tests.property.test_neighbours_whole_chain import TERMS, keys_of, moved, without

HEAVY = 2
FAR = 2**60  # FAR, FAR + 1, … FAR + 59 are one DOUBLE
FINE = (Fraction(0), Fraction(6, 1000))  # its upper end lies between two cents

Neighbours = tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection]

LITERALS = [
    "SELECT COUNT(*) FILTER (WHERE store = 1), COUNT(*) FILTER (WHERE store = CAST(1.4 AS BIGINT)), "
    "COUNT(*) FILTER (WHERE store = CAST(0.9 AS BIGINT)) FROM orders",
    "SELECT COUNT(*) FILTER (WHERE status = CAST(1 AS VARCHAR)), COUNT(*) FILTER (WHERE status = '1') FROM orders",
    "SELECT COUNT(*) FILTER (WHERE amount = CAST(900.4 AS DECIMAL(10, 0))), "
    "COUNT(*) FILTER (WHERE amount = 900) FROM orders",
    "SELECT SUM(CASE WHEN store = CAST(1.4 AS BIGINT) THEN amount END), "
    "SUM(CASE WHEN store = 1 THEN amount END) FROM orders",
]
KEYS = [
    "SELECT store, COUNT(*) FROM orders WHERE store IN (1, 1.4) GROUP BY store",
    "SELECT amount, COUNT(*) FROM orders WHERE amount IN (900, 900.001, 900.004) GROUP BY amount",
    "SELECT weight, COUNT(*) FROM orders WHERE weight IN (1, 1.0, 0.0, -0.0) GROUP BY weight",
    "SELECT CAST(placed AS TIMESTAMP) AS k, COUNT(*) FROM orders "
    "WHERE placed IN (DATE '2020-01-04', TIMESTAMP '2020-01-04 12:00:00') GROUP BY k",
    "SELECT CASE WHEN placed = DATE '2020-01-04' THEN TIMESTAMP '2020-01-04 00:00:00' "
    "ELSE TIMESTAMP '2020-01-04 12:00:00' END AS k, COUNT(*) FROM orders GROUP BY k",
]
JOINS = [
    "SELECT COUNT(*) FROM orders o JOIN stores s ON o.raw = s.store",
    "SELECT COUNT(*) FROM orders o LEFT JOIN stores s ON o.raw = s.store",
    "SELECT COUNT(*) FROM orders o JOIN orders p ON o.customer_id = p.customer_id AND o.raw = p.order_id",
]
OFF_THE_GRID = [
    "SELECT SUM(GREATEST(x, 0.002)) FROM (SELECT amount AS x FROM orders) t",
    "SELECT SUM(LEAST(-x, -0.002)), COUNT(x) FROM (SELECT amount AS x FROM orders) t",
]


def order(number: int, **told: object) -> dict[str, object]:
    plain = {"amount": Decimal(900), "status": "1", "store": 1, "weight": 1.0, "raw": float(FAR), "moment": None}
    return {"order_id": FAR + number, "customer_id": HEAVY, "placed": day(START + 3), **plain, **told}


def neighbours(orders: int) -> Neighbours:
    everyone = rows(11, customers=6)
    everyone["stores"] = [{"store": FAR + i, "city": f"City {i}"} for i in range(60)]
    everyone["orders"] += [order(number) for number in range(orders)]
    return prepared(SCHEMA, everyone), prepared(SCHEMA, without(everyone, HEAVY))


@pytest.fixture(scope="module")
def heavy() -> Neighbours:
    """One person with far more rows than count, all alike."""
    return neighbours(60)


@pytest.fixture(scope="module")
def light() -> Neighbours:
    """One person with fewer rows in each table than may count: only a join makes more of them."""
    return neighbours(6)


def moves(sql: str, pair: Neighbours, bounds: AskedBounds) -> Fraction:
    """Σ |moved| / scale; 1 is what was paid."""
    priced = price(understand(Ask("shop", sql, bounds=bounds), SCHEMA), Loss("epsilon", PICO, 10**9), TERMS)
    total = Fraction(0)
    for plan in priced.plans:
        keys = keys_of(plan.plan, *pair)
        one, other = (dict(primitives(database, plan, keys)) for database in pair)
        total += moved(one, other, plan)[0]
    return total


@pytest.mark.parametrize("sql", LITERALS)
def test_a_cast_that_the_engine_works_out_makes_no_filter_disjoint(sql: str, heavy: Neighbours) -> None:
    assert 0 < moves(sql, heavy, AskedBounds(rows_per_unit=2)) <= 1


@pytest.mark.parametrize("sql", KEYS)
def test_literals_that_become_one_key_are_one_group(sql: str, heavy: Neighbours) -> None:
    assert 0 < moves(sql, heavy, AskedBounds(rows_per_unit=2)) <= 1


@pytest.mark.parametrize("sql", JOINS)
def test_a_unique_number_is_not_unique_as_a_double(sql: str, light: Neighbours) -> None:
    assert 0 < moves(sql, light, AskedBounds(rows_per_unit=12)) <= 1


@pytest.mark.parametrize("sql", OFF_THE_GRID)
def test_bounds_beside_the_grid_bound_the_codes(sql: str, heavy: Neighbours) -> None:
    assert 0 < moves(sql, heavy, AskedBounds(rows_per_unit=2, columns={"t.x": FINE})) <= 1


def test_a_decimal_of_many_digits_is_no_declared_key() -> None:
    """Two such values share a float: the key table could not tell them apart, nor count one row per group."""
    sql = (
        "SELECT CASE WHEN status = 'paid' THEN 0.10000000000000000001 ELSE 0.10000000000000000002 END AS k, "
        "COUNT(*) FROM orders GROUP BY k"
    )
    (plan,) = understand(Ask("shop", sql), SCHEMA).cores
    assert not plan.keys_declared
