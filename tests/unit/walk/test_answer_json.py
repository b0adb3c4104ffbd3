"""Whole columns become JSON exactly as their cells would one by one."""

import math
from datetime import date
from decimal import Decimal

import numpy as np
import pytest

from service.walk.answer_json import column_to_json, computed_to_json, ends, ends_to_json, to_json

RANDOM = np.random.default_rng(5)
COLUMNS = [
    np.array([1, -2, 2**62]),
    np.array([0.5, 1.25, -3.0]),
    np.array([1 / 3, 2 / 3]),
    np.array([math.nan, 1.0]),
    np.array([math.inf, -math.inf]),
    np.array([1.2345678901234567e17, 1e-300]),
    np.array([]),
    [None, "x", True, date(2024, 2, 29), Decimal("1.5"), Decimal(7), 1.5],
]


@pytest.mark.parametrize("column", COLUMNS, ids=str)
def test_a_column_is_its_cells(column: object) -> None:
    assert column_to_json(column) == [to_json(cell) for cell in column]  # type: ignore[arg-type, attr-defined]


@pytest.mark.parametrize("width", [1e-9, 0.02, 0.5, 3.0, 120.0, 99_999.0, 1e12])
@pytest.mark.parametrize("size", [1e-3, 10.0, 1e6, 1e15])
def test_intervals_are_rounded_as_their_ends_one_by_one(width: float, size: float) -> None:
    low = RANDOM.normal(0, size, 200)
    got = ends_to_json(low, low + width)
    wanted = [ends(bottom, top) for bottom, top in zip(low, low + width, strict=True)]
    assert got == ([pair[0] for pair in wanted], [pair[1] for pair in wanted])
    assert [type(end) for end in got[0]] == [type(pair[0]) for pair in wanted]


def test_a_computed_value_has_no_digits_that_its_interval_makes_meaningless() -> None:
    cells = np.array([71.6437897556076, 0.31123456789, 123456.789, 5.5, math.nan])
    low, high = np.array([-27.0, 0.3107, 0.0, 5.5, 0.0]), np.array([158.0, 0.3117, 2e6, 5.5, 1.0])
    assert computed_to_json(cells, low, high) == [71.6, 0.311235, 123000.0, 5.5, None]
    assert computed_to_json(np.array([7, 8]), low[:2], high[:2]) == [7, 8], "whole numbers stay whole"
    assert computed_to_json([None, "x"], low[:2], high[:2]) == [None, "x"]


def test_unknown_unequal_and_typed_intervals_go_the_slow_way() -> None:
    low, high = np.array([0.0, math.nan, -1.0, 5.0]), np.array([1.0, math.nan, 2000.0, 5.0])
    assert ends_to_json(low, high) == ([0.0, None, 0, 5.0], [1.0, None, 2000, 5.0])
    days = np.array([date(2024, 1, 1)], dtype=object)
    assert ends_to_json(days, days) == (["2024-01-01"], ["2024-01-01"])
