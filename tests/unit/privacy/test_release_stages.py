"""Stage 0 (bounds and caps) and stage 1 (private keys), with budgets so large that the noise is none."""

from fractions import Fraction

import numpy as np
import pytest

from service.core.amounts import ATTO, PICO
from service.core.boundary import ExactTable, KeyTable
from service.core.plan import ONE, Bounds, BoundsNeed, Key, Loss, MomentsNeed, UnitSumWeight, UnitTotalsNeed
from service.core.schema import VARCHAR
from service.privacy.accounting.costs import open_terms
from service.privacy.noise.laws import LAWS, Law
from service.privacy.noise.sampling import SecureNoise
from service.privacy.pricing.price import price
from service.privacy.pricing.priced import PricedPlan
from service.privacy.release import release_bounds, release_keys, release_values
from tests.unit.privacy.questions import aggregate, measure, plan, priced, question

OPEN = open_terms(1000 * PICO, ATTO // 10**6, keys_declared=False)
LARGE = 900 * PICO


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_bounds_are_found_and_narrow_the_sums(law: Law) -> None:
    """The worked example of "Finding bounds" in docs/mechanisms.md, a hundred times over: [0, 8]."""
    core = plan(aggregate("avg", "m0"), measures=(measure(low=-1000, high=1000, auto=True),))
    at = priced(core, law, LARGE)
    (need,) = at.bounds_needs
    assert need == BoundsNeed("m0", 1, 11)
    weights = np.zeros(22, dtype=np.int64)
    for value in (0, 0, 0, 0, 1, 3, 7, 8, 8, 8):
        weights[max(0, (value - 1).bit_length() if value > 1 else 0)] += 100 * ONE
    draws = [release_bounds(at, [((need,), ExactTable({"weight": weights}))], SecureNoise()) for _ in range(30)]
    right = [found for found in draws if found.ranges == {"m0": (0, 8)}]
    assert len(right) > 20  # an empty bin passes in one draw of a hundred; ten of thirty would be 1e-13
    found = right[0]
    assert "0 to 8" in found.notes[0]
    (value_need,) = at.value_needs(found)
    assert isinstance(value_need, MomentsNeed)
    assert (value_need.low, value_need.high) == (0, 8)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_a_cap_is_found_where_few_units_lie_above(law: Law) -> None:
    bounds = Bounds(20, 1, unit_sum={"m0": None})
    core = plan(aggregate("sum", "m0"), measures=(measure(high=1000),), bounds=bounds)
    at = priced(core, law, LARGE)
    (need,) = at.bounds_needs
    assert isinstance(need, UnitTotalsNeed)
    bins = np.arange(100, 1100) // need.width
    kept, counts = np.unique(bins, return_counts=True)
    exact = {"bin": kept, "weight": counts * ONE}
    draws = [release_bounds(at, [((need,), ExactTable(exact))], SecureNoise()) for _ in range(30)]
    right = [found for found in draws if 1000 < found.caps["m0"] < 1200]
    assert len(right) > 15  # one draw of twenty may land where nobody is
    found = right[0]
    (sums,) = at.value_needs(found)
    assert isinstance(sums, MomentsNeed)
    assert sums.weight == UnitSumWeight(found.caps["m0"])


def selecting(*aggregates: str, min_units: int = 1) -> PricedPlan:
    core = plan(
        *(aggregate(function, None) for function in aggregates),
        keys=(Key("k0", VARCHAR, "city"),), bounds=Bounds(1, 1, min_units=min_units),
    )  # fmt: skip
    return price(question(core), Loss("epsilon", LARGE, delta=ATTO // 10**7), OPEN).plans[0]


def test_large_groups_are_named_in_order_and_single_people_are_not() -> None:
    at = selecting("count")
    cities = np.array(["a", "b", "c", None], dtype=object)
    selected = release_keys(at, ExactTable({"n": np.array([500, 1, 400, 300])}, {"k0": cities}), SecureNoise())
    assert selected.keys.columns["k0"].tolist() == ["a", "c", None]
    assert selected.keys.size == 3
    exact = ExactTable({"*.n": np.array([500, 400, 300]) * ONE})
    table = release_values(at, selected, [(at.value_needs(), exact)], SecureNoise())
    assert np.abs(table.columns["count_all"].values - [500, 400, 300]).max() <= 2


def test_the_minimum_of_people_holds_whatever_the_noise() -> None:
    at = selecting("count", min_units=50)
    selected = release_keys(at, ExactTable({"n": np.array([49, 100])}, {"k0": np.array(["a", "b"])}), SecureNoise())
    assert selected.keys.columns["k0"].tolist() == ["b"]


def test_people_counted_by_selection_are_the_answer() -> None:
    at = selecting("count_units")
    selected = release_keys(at, ExactTable({"n": np.array([500, 400])}, {"k0": np.array(["a", "b"])}), SecureNoise())
    table = release_values(at, selected, [], SecureNoise())
    assert np.abs(table.columns["count_units_all"].values - [500, 400]).max() <= 1
    assert "selection" in table.notes[0]


def test_no_group_at_all_is_an_answer_too() -> None:
    at = selecting("count", "count_units")
    nothing = ExactTable({"n": np.zeros(0, dtype=np.int64)}, {"k0": np.zeros(0, dtype=object)})
    selected = release_keys(at, nothing, SecureNoise())
    exact = ExactTable({"*.n": np.zeros(0, dtype=np.int64)})
    table = release_values(at, selected, [(at.value_needs(), exact)], SecureNoise(), replicas=frozenset({"count_all"}))
    assert table.columns["count_all"].values.size == 0


def test_a_need_that_was_not_computed_is_a_bug_and_not_an_answer() -> None:
    at = priced(plan(aggregate("count", None), aggregate("sum", "m0"), measures=(measure(step=Fraction(1)),)))
    exact = ExactTable({"*.n": np.array([1])})
    with pytest.raises(AssertionError):
        release_values(at, KeyTable.single(), [(at.value_needs()[:1], exact)], SecureNoise())
