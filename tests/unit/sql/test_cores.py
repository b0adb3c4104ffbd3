"""When two parts of a query are one core, and when they only look alike."""

from fractions import Fraction

import pytest

from service.core.plan import Query
from service.core.request import Ask, AskedBounds
from service.sql.understand import understand
from tests.fixtures.sql.shop import SCHEMA

F = Fraction

TWICE = """
WITH s AS (SELECT customer_id, amount AS x, weight AS y FROM orders),
     r AS (SELECT customer_id, amount AS x, weight AS y FROM orders),
     a AS (SELECT SUM(x + y) AS v FROM s), b AS (SELECT SUM(x + y) AS v FROM r)
SELECT a.v AS first, b.v AS second FROM a CROSS JOIN b
"""


def ask(columns: dict[str, tuple[Fraction, Fraction] | None]) -> Query:
    return understand(Ask("shop", TWICE, bounds=AskedBounds(columns=columns)), SCHEMA)


def test_the_same_sum_twice_is_charged_once() -> None:
    assert len(ask({}).cores) == 1
    alike = {f"{table}.{column}": (F(0), F(5)) for table in "sr" for column in "xy"}
    assert len(ask(alike).cores) == 1


@pytest.mark.parametrize(
    "columns",
    [
        {"s.x": (F(0), F(5)), "s.y": (F(0), F(10)), "r.x": (F(0), F(10)), "r.y": (F(0), F(5))},
        {"s.x": (F(0), F(5)), "r.x": (F(0), F(6))},
        {"s.x": (F(0), F(1000)), "r.x": None},
    ],
)
def test_sums_with_bounds_of_their_own_are_not_one(columns: dict[str, tuple[Fraction, Fraction] | None]) -> None:
    """Also where both end in the same range: 5 + 10 and 10 + 5 clamp other rows."""
    assert len(ask(columns).cores) == 2
