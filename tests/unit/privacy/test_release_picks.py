"""Quantiles, extremes and modes through release."""

from dataclasses import replace
from datetime import date
from fractions import Fraction

import numpy as np
import pytest

from service.core.amounts import PICO
from service.core.plan import ONE, POSITION
from service.core.schema import DATE, VARCHAR, SqlType
from tests.unit.privacy.questions import aggregate, attribute, by_key, measure, plan, priced, released

LARGE = 1000 * PICO


def histogram(*bins: tuple[int, int, int]) -> dict[str, list[int]]:
    return {POSITION: [b[0] for b in bins], "bin": [b[1] for b in bins], "weight": [b[2] * ONE for b in bins]}


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_a_median_with_much_budget_is_the_median(law: str) -> None:
    core = plan(aggregate("quantile", "m0", p=Fraction(1, 2)), measures=(measure(low=-10, high=100),), keys=by_key(2))
    table = released(priced(core, law, LARGE), histogram((0, 30, 500), (0, 5, 100), (1, 60, 10)), 2)
    column = table.columns["quantile_m01/2"]
    assert column.values.tolist() == column.low.tolist() == column.high.tolist() == [20.0, 50.0]
    assert "rank" in table.notes[0]


def test_extremes_come_close_and_dates_are_dates() -> None:
    days = measure(low=0, high=20_000, type=DATE)
    core = plan(aggregate("min", "m0", DATE), aggregate("max", "m0", DATE), measures=(days,))
    (pick, _) = priced(core, amount=LARGE).picks.values()
    assert (pick.width, pick.bins) == (5, 4001)
    rows = [(group, bin_, 50) for group in range(200) for bin_ in (100, 200)]
    table = released(priced(replace(core, keys=by_key(200)), amount=LARGE), histogram(*rows), 200)
    assert table.columns["max_m0"].values.dtype == object
    for name, day in (("min_m0", date(1971, 5, 18)), ("max_m0", date(1972, 9, 29))):
        # One draw in twenty may land where no rows are; 40 of 200 by chance have probability 1e-12.
        assert sum(value == day for value in table.columns[name].values) > 160


def test_the_last_bin_never_leaves_the_bounds() -> None:
    wide = measure(low=0, high=10_000, step=Fraction(1, 100), type=SqlType("DECIMAL", 9, 2))
    core = plan(aggregate("max", "m0", SqlType("DECIMAL", 9, 2)), measures=(wide,))
    at = priced(core, amount=LARGE)
    (pick,) = at.picks.values()
    table = released(at, histogram((0, pick.bins - 1, 10**6)))
    assert table.columns["max_m0"].values[0] == 100.0


def test_a_mode_is_a_value_of_the_domain() -> None:
    core = plan(aggregate("mode", "d0", VARCHAR), attributes=(attribute("d0", "a", "b", "c"),), keys=by_key(2))
    table = released(priced(core, amount=LARGE), histogram((0, 2, 10), (0, 1, 3), (1, 0, 5)), 2)
    assert table.columns["mode_d0"].values.tolist() == ["c", "a"]


def test_a_quantile_over_no_rows_is_some_value_in_the_bounds() -> None:
    core = plan(aggregate("quantile", "m0", p=Fraction(9, 10)), measures=(measure(low=5, high=9),), keys=by_key(50))
    table = released(priced(core), {name: np.zeros(0, dtype=np.int64) for name in (POSITION, "bin", "weight")}, 50)
    values = table.columns["quantile_m09/10"].values
    assert set(values.tolist()) <= {5.0, 6.0, 7.0, 8.0, 9.0}
    assert len(set(values.tolist())) > 1
