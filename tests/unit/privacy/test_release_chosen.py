"""Quantiles, extremes and modes through release."""

from dataclasses import replace
from datetime import date
from fractions import Fraction

import numpy as np
import pytest

from service.core.amounts import PICO
from service.core.boundary import KeyTable
from service.core.events import PureEvent
from service.core.plan import ONE, Bounds
from service.core.prepared import POSITION
from service.core.schema import DATE, VARCHAR, SqlType
from service.privacy.noise.laws import GAUSSIAN, LAPLACE, LAWS, Law
from service.privacy.pricing.no_worse import no_worse
from service.privacy.pricing.priced import PricedPlan
from service.privacy.pricing.refine import without
from service.privacy.primitives.derive import derivable, derive
from tests.unit.privacy.questions import aggregate, attribute, by_key, measure, plan, priced, released

LARGE = 1000 * PICO


def histogram(*bins: tuple[int, int, int]) -> dict[str, list[int]]:
    return {POSITION: [b[0] for b in bins], "bin": [b[1] for b in bins], "weight": [b[2] * ONE for b in bins]}


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_a_median_with_much_budget_is_the_median(law: Law) -> None:
    core = plan(aggregate("quantile", "m0", p=Fraction(1, 2)), measures=(measure(low=-10, high=100),), keys=by_key(2))
    table = released(priced(core, law, LARGE), histogram((0, 30, 500), (0, 5, 100), (1, 60, 10)), 2)
    column = table.columns["quantile_m01/2"]
    assert column.values.tolist() == column.low.tolist() == column.high.tolist() == [20.0, 50.0]
    assert "rank" in table.notes[0]


def deciles(law: Law, amount: int, wanted: int = 9, keys: int = 1, **changes: object) -> PricedPlan:
    asked = (aggregate("quantile", "m0", p=Fraction(i, wanted + 1)) for i in range(1, wanted + 1))
    core = plan(*asked, measures=(measure(low=0, high=4095, **changes),), keys=by_key(keys), bounds=Bounds(2, 1))
    return priced(core, law, amount)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_few_quantiles_are_drawn_and_many_are_read_off_a_tree(law: Law) -> None:
    """Draws share the budget, a tree serves all: benchmarks/quality.py measures where they cross."""
    few, many = deciles(law, PICO, 3), deciles(law, PICO, 24)
    assert len(few.draws) == 3 and not few.trees
    assert not many.draws and not many.brackets
    (tree,) = many.trees.values()
    assert len(tree.values) == 24 == len(many.chosen_values)
    assert tree.values[0].typical_error < 24 * few.chosen_values[0].typical_error / 3
    assert sum(part.amount for part in many.slices) == PICO


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_quantiles_of_a_tree_with_much_budget_are_the_quantiles(law: Law) -> None:
    at = deciles(law, LARGE, 24, keys=2)
    rows = [(0, bin_, 1) for bin_ in range(0, 4000, 4)] + [(1, 77, 300)]
    table = released(at, histogram(*rows), 2)
    for i in range(1, 25):
        column = table.columns[f"quantile_m0{Fraction(i, 25)}"]
        assert column.low[0] <= column.values[0] <= column.high[0]
        assert abs(column.values[0] - 160 * i) <= 8
        assert column.values[1] == 77.0
    assert any("rank is within" in note for note in table.notes)
    keys = KeyTable({"k0": np.array(["v0", "v1"], dtype=object)}, 2)
    assert derivable(at.plan, table.primitives)
    again = derive(at.plan, keys, table.primitives)
    assert all((again.columns[name].values == column.values).all() for name, column in table.columns.items())


def test_a_stored_tree_answers_again_for_no_more_than_it_cost() -> None:
    at = deciles(GAUSSIAN, PICO // 8, 24)
    stored = released(at, histogram((0, 10, 500)), 1).primitives
    assert no_worse(at, stored)
    assert no_worse(deciles(GAUSSIAN, PICO // 16, 24), stored)
    assert not no_worse(deciles(GAUSSIAN, PICO // 4, 24), stored)
    assert not without(at, stored).slices, "nothing left to pay"
    assert without(deciles(GAUSSIAN, PICO // 4, 24), stored).slices, "a finer tree is a new tree"


def test_a_tree_over_bounds_that_are_found_is_charged_for_any_range() -> None:
    """Fewer bins may mean fewer levels: the charge must not depend on which."""
    (tree, paid) = next(iter(deciles(LAPLACE, PICO, 24, auto=True).charges.items()))
    assert tree.demand.kind == "tree" and paid == PureEvent(Fraction(tree.amount, PICO))


def test_extremes_have_an_interval_up_to_their_bound() -> None:
    core = plan(aggregate("min", "m0"), aggregate("max", "m0"), measures=(measure(low=-50, high=100),))
    table = released(priced(core, amount=LARGE), histogram(*((0, bin_, 30) for bin_ in range(60, 90))))
    lowest, highest = table.columns["min_m0"], table.columns["max_m0"]
    assert lowest.low[0] == -50 <= lowest.values[0] <= lowest.high[0] <= 40
    assert 10 <= highest.low[0] <= highest.values[0] <= highest.high[0] == 100


def test_arithmetic_is_simulated_over_numbers_with_an_interval_only() -> None:
    core = plan(
        aggregate("quantile", "m0", p=Fraction(1, 2)), aggregate("max", "m1", DATE), aggregate("mode", "d0", VARCHAR),
        measures=(measure(), measure("m1", type=DATE)), attributes=(attribute("d0", "a", "b"),),
    )  # fmt: skip
    names = frozenset({"quantile_m01/2", "max_m1", "mode_d0"})
    table = released(priced(core), histogram((0, 1, 30)), replicas=names)
    assert set(table.replicas) == {"quantile_m01/2"}
    column, copies = table.columns["quantile_m01/2"], table.replicas["quantile_m01/2"]
    assert ((copies >= column.low) & (copies <= column.high)).all()


def test_extremes_come_close_and_dates_are_dates() -> None:
    days = measure(low=0, high=20_000, type=DATE)
    core = plan(aggregate("min", "m0", DATE), aggregate("max", "m0", DATE), measures=(days,))
    (value, _) = priced(core, amount=LARGE).draws.values()
    assert (value.width, value.bins) == (5, 4001)
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
    (value,) = at.draws.values()
    table = released(at, histogram((0, value.bins - 1, 10**6)))
    assert table.columns["max_m0"].values[0] == 100.0


def test_a_mode_is_a_value_of_the_domain() -> None:
    core = plan(aggregate("mode", "d0", VARCHAR), attributes=(attribute("d0", "a", "b", "c"),), keys=by_key(2))
    table = released(priced(core, amount=LARGE), histogram((0, 2, 10), (0, 1, 3), (1, 0, 5)), 2)
    assert table.columns["mode_d0"].values.tolist() == ["c", "a"]
    assert np.isnan(table.columns["mode_d0"].low).all(), "a name has no interval"


def test_a_quantile_over_no_rows_is_some_value_in_the_bounds() -> None:
    core = plan(aggregate("quantile", "m0", p=Fraction(9, 10)), measures=(measure(low=5, high=9),), keys=by_key(50))
    table = released(priced(core), {name: np.zeros(0, dtype=np.int64) for name in (POSITION, "bin", "weight")}, 50)
    values = table.columns["quantile_m09/10"].values
    assert set(values.tolist()) <= {5.0, 6.0, 7.0, 8.0, 9.0}
    assert len(set(values.tolist())) > 1
