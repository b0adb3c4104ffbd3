"""Bounds of days and moments are written and shown as dates: nobody should count days since 1970."""

import json
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

from service.api.asks import ask_of
from service.api.requests import QuestionWire
from service.api.routes.datasets import show_schema
from service.app import Books, Walk
from service.core.errors import BoundsMissing
from service.core.request import Ask, AskedBounds
from service.walk.question import settled
from tests.fixtures.open_shop import BUYER, shop


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Books, Walk]]:
    with shop(tmp_path_factory.mktemp("shop")) as opened:
        yield opened


def answered(opened: tuple[Books, Walk], sql: str, columns: dict[str, Any]) -> dict[str, Any]:
    wire = QuestionWire.model_validate({"dataset": "shop", "sql": sql, "epsilon": "50", "bounds": {"columns": columns}})
    body: dict[str, Any] = json.loads(opened[1].answerer.submit(ask_of(wire), BUYER, None, "", 60).body or b"")
    return body


def test_a_moment_takes_bounds_that_are_days(opened: tuple[Books, Walk]) -> None:
    """In microseconds, although the same text is a number of days for a DATE."""
    bounds = AskedBounds(dated={"orders.moment": ("1970-01-02", "1970-01-02T00:00:01")})
    asked = settled(Ask("shop", "", bounds=bounds), opened[0].catalog.schema("shop")).bounds
    assert asked == AskedBounds(columns={"orders.moment": (Fraction(86_400_000_000), Fraction(86_401_000_000))})


def test_a_moment_without_declared_bounds_is_sent_to_an_admin(opened: tuple[Books, Walk]) -> None:
    """A request can only narrow them: the codes are made at import."""
    with pytest.raises(BoundsMissing) as refused:
        answered(opened, "SELECT MAX(moment) AS last FROM orders", {"orders.moment": ["2024-01-01", "2025-01-01"]})
    assert "admin declare bounds for orders.moment" in str(refused.value.extra["remedy"])


def test_a_date_takes_them_too_and_its_declared_bounds_are_shown_so(opened: tuple[Books, Walk]) -> None:
    declared = show_schema(opened[0].catalog.schema("shop"), {})["tables"]["customers"]["columns"]["joined"]["bounds"]
    given = [declared[0], f"{declared[0][:4]}-12-31"]
    answer = answered(opened, "SELECT MAX(joined) AS last FROM customers", {"customers.joined": given})
    assert answer["receipt"]["bounds"]["columns"] == {"joined": given}


@pytest.mark.parametrize(
    ("key", "pair", "said"),
    [
        ("customers.age", ["2024-01-01", "2025-01-01"], "no column of dates"),
        ("per_unit.total", ["2024-01-01", "2025-01-01"], "no column of dates"),
        ("customers.joined", ["2024-01-01T10:00:00", "2025-01-01"], "no values of its type, DATE"),
        ("customers.joined", ["2025-01-01", "2024-01-01"], "wrong way round"),
    ],
)
def test_dates_where_none_fit_are_refused(opened: tuple[Books, Walk], key: str, pair: list[str], said: str) -> None:
    with pytest.raises(BoundsMissing, match=said):
        answered(opened, "SELECT MAX(joined) AS last, SUM(age) AS years FROM customers", {key: pair})
