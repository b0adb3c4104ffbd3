"""What bounding may do to the numbers is said beside them, in the answer and in the estimate alike."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from service.app import Books, Walk
from service.core.plan import Loss
from service.core.request import Ask, AskedBounds
from tests.fixtures.open_shop import BUYER, shop

PICO = 10**12
DECLARED = "Groups of customers.country are declared: all 3 are answered, also empty ones."


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Books, Walk]]:
    with shop(tmp_path_factory.mktemp("shop")) as opened:
        yield opened


def notes(opened: tuple[Books, Walk], sql: str, **bounds: Any) -> list[str]:
    """The notes of the estimate, which are those of the answer."""
    ask = replace(Ask("shop", sql, Loss("epsilon", PICO)), bounds=AskedBounds(**bounds))
    answerer = opened[1].answerer
    estimated: list[str] = answerer.estimate(ask, BUYER)["notes"]
    answer: Mapping[str, Any] = json.loads(answerer.submit(ask, BUYER, None, "", 60).body or b"")
    assert answer["notes"] == estimated
    return estimated


def test_declared_groups_are_announced_with_their_number(opened: tuple[Books, Walk]) -> None:
    assert notes(opened, "SELECT country, COUNT(*) AS n FROM customers GROUP BY country") == [DECLARED]


def test_a_table_with_one_row_per_unit_has_nothing_to_scale_down(opened: tuple[Books, Walk]) -> None:
    assert notes(opened, "SELECT COUNT(*) AS n FROM customers") == []


def test_scaled_down_rows_are_announced(opened: tuple[Books, Walk]) -> None:
    (said,) = notes(opened, "SELECT COUNT(*) AS n FROM orders", rows_per_unit=3)
    assert said.startswith("At most 3 rows of one customer count")


def test_clamped_totals_per_unit_are_announced(opened: tuple[Books, Walk]) -> None:
    each = "SELECT AVG(x) AS x FROM (SELECT customer_id, {} AS x FROM orders GROUP BY customer_id) per"
    for total in ("COUNT(*)", "SUM(amount)"):
        (said,) = notes(opened, each.format(total), rows_per_unit=7)
        assert said.startswith("Counts and sums per customer are clamped to what 7 rows come to")
    assert notes(opened, each.format("MAX(amount)")) == [], "an extreme is no total"


def test_counting_people_scales_no_rows(opened: tuple[Books, Walk]) -> None:
    assert notes(opened, "SELECT COUNT(DISTINCT customer_id) AS n FROM orders") == []


def test_a_sum_with_a_cap_of_its_own_is_not_bounded_by_rows(opened: tuple[Books, Walk]) -> None:
    capped = {"unit_sum": {"orders.amount": Fraction(100)}}
    assert notes(opened, "SELECT SUM(amount) AS s FROM orders", **capped) == []
