"""Weighted counts, sums and squares: how far one person can move them, and that shortcuts change nothing."""

from collections import Counter, defaultdict
from math import isqrt
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.core.plan import ONE, L2Weight, MomentsNeed, Plan, RowsWeight, UnitSumWeight, Weight
from service.engine.emit import clipping, moments
from tests.fixtures.visits import (
    HIGH,
    LOW,
    WARDS,
    Visit,
    answer,
    ask,
    open_hospital,
    plan_rows,
    plans,
    scan_plan,
    visit,
    visit_rows,
    without,
)

few = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SHAPES = sorted(plans())


def needs(weight: Weight, low: int = LOW, high: int = HIGH) -> tuple[MomentsNeed, ...]:
    if isinstance(weight, UnitSumWeight):
        return (MomentsNeed("m0", 1, weight, low, high),)
    return (MomentsNeed(None, 0, weight), MomentsNeed("m0", 2, weight, low, high), MomentsNeed("m1", 0, weight))


def weights(rows: list[dict[str, Any]], weight: Weight, clamp: tuple[int, int]) -> dict[int, int]:
    """The weight of every unit, straight from its definition."""
    found: dict[int, int] = {}
    for unit in {row["#unit"] for row in rows}:
        own = [row for row in rows if row["#unit"] == unit]
        if isinstance(weight, RowsWeight):
            found[unit] = ONE * weight.rows_per_unit // max(len(own), weight.rows_per_unit)
        elif isinstance(weight, UnitSumWeight):
            total = sum(abs(min(max(row["m0"], clamp[0]), clamp[1])) for row in own if row["m0"] is not None)
            found[unit] = ONE * weight.cap // max(total, weight.cap)
        else:
            groups = Counter(row.get("k0") for row in own if "k0" not in row or row["k0"] in WARDS)
            squares = sum(v * v for v in groups.values())
            found[unit] = min(ONE, isqrt(ONE * ONE * weight.bound**2 // squares)) if squares else ONE
    return found


def straightforward(
    rows: list[dict[str, Any]], plan: Plan, weight: Weight, clamp: tuple[int, int]
) -> dict[str, list[int]]:
    """Join every row with its unit's weight and add: what the emitted shortcut must equal."""
    if not plan.keys_declared:
        rows = [row for row in rows if row["k0"] in WARDS]
    by_unit = weights(rows, weight, clamp)
    keys = WARDS if plan.keys else (None,)
    sums: dict[str, dict[Any, int]] = defaultdict(lambda: dict.fromkeys(keys, 0))
    names = ("m0.us",) if isinstance(weight, UnitSumWeight) else ("*.n", "m0.n", "m0.s1", "m0.s2", "m1.n")
    for row in rows:
        key, w = (row["k0"] if plan.keys else None), by_unit[row["#unit"]]
        if key not in keys:
            continue
        code = None if row["m0"] is None else min(max(row["m0"], clamp[0]), clamp[1])
        values = {"*.n": 1, "m1.n": None if row["m1"] is None else 1}
        if code is not None:
            values |= {"m0.n": 1, "m0.s1": code, "m0.s2": code * code, "m0.us": code}
        for name, value in values.items():
            if value is not None:
                sums[name][key] += w * value
    return {name: [sums[name][key] for key in keys] for name in names}


weight_kinds = st.one_of(
    st.builds(RowsWeight, st.integers(1, 12)),
    st.builds(L2Weight, st.integers(1, 12)),
    st.builds(UnitSumWeight, st.integers(1, 60)),
)


@pytest.mark.parametrize("shape", SHAPES)
@few
@given(rows=visit_rows, weight=weight_kinds, clamp=st.sampled_from([(LOW, HIGH), (-1, 5), (2, 7)]))
def test_the_correction_over_heavy_units_equals_weighting_every_row(
    shape: str, rows: list[Visit], weight: Weight, clamp: tuple[int, int]
) -> None:
    plan = plans()[shape]
    with open_hospital(rows) as connection:
        expected = straightforward(plan_rows(connection, plan), plan, weight, clamp)
        assert answer(connection, plan, *needs(weight, *clamp)) == expected


def moved(rows: list[Visit], plan: Plan, weight: Weight) -> dict[str, list[int]]:
    """How far each cell moves when person 1 is removed."""
    before, after = (ask(some, plan, *needs(weight)) for some in (rows, without(rows, 1)))
    return {name: [abs(a - b) for a, b in zip(before[name], after[name], strict=True)] for name in before}


def check_l1(rows: list[Visit], plan: Plan, limit: int) -> None:
    """One person moves all counts by L1 <= ONE·B, sums by ONE·B·R, squares by ONE·B·R²."""
    largest = max(abs(LOW), abs(HIGH))
    change = moved(rows, plan, RowsWeight(limit))
    for name, factor in (("*.n", 1), ("m0.n", 1), ("m1.n", 1), ("m0.s1", largest), ("m0.s2", largest**2)):
        assert sum(change[name]) <= ONE * limit * factor, name


def check_l2(rows: list[Visit], plan: Plan, limit: int) -> None:
    largest = max(abs(LOW), abs(HIGH))
    change = moved(rows, plan, L2Weight(limit))
    for name, factor in (("*.n", 1), ("m0.n", 1), ("m0.s1", largest), ("m0.s2", largest**2)):
        assert sum(c * c for c in change[name]) <= (ONE * limit * factor) ** 2, name


def check_unit_sum(rows: list[Visit], plan: Plan, cap: int) -> None:
    assert sum(moved(rows, plan, UnitSumWeight(cap))["m0.us"]) <= ONE * cap


@pytest.mark.parametrize("shape", ["scan", "ungrouped", "undeclared, filtered", "joined", "doubled"])
@few
@given(rows=visit_rows, limit=st.integers(1, 6))
def test_one_person_moves_counts_sums_and_squares_by_at_most_the_claimed_l1(
    shape: str, rows: list[Visit], limit: int
) -> None:
    check_l1(rows, plans()[shape], limit)


@pytest.mark.parametrize("shape", ["scan", "joined"])
@few
@given(rows=visit_rows, limit=st.integers(1, 6))
def test_one_person_moves_an_l2_clipped_vector_by_at_most_the_claimed_l2(
    shape: str, rows: list[Visit], limit: int
) -> None:
    check_l2(rows, plans()[shape], limit)


@pytest.mark.parametrize("shape", ["scan", "joined"])
@few
@given(rows=visit_rows, cap=st.integers(1, 40))
def test_one_person_moves_a_sum_by_at_most_the_cap_on_their_own_sum(shape: str, rows: list[Visit], cap: int) -> None:
    check_unit_sum(rows, plans()[shape], cap)


OFTEN = [visit(1, "a", 9, 1)] * 8 + [visit(1, "b", 9, 0)] * 8 + [visit(2, "c", 3, 1)]


@pytest.mark.parametrize("check", [check_l1, check_l2, check_unit_sum])
def test_the_checks_catch_a_statement_without_the_correction(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "clip", lambda *_: None)
    with pytest.raises(AssertionError):
        check(OFTEN, scan_plan(), 2)


def test_the_check_catches_weights_from_filtered_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit with one row that passes the FILTER would look light, whatever its other rows are."""

    def filtered(plan: Plan, limit: int) -> clipping.Clipping:
        counts = f"SELECT {clipping.UNIT}, count(m1) AS c FROM {clipping.HEAVY} GROUP BY {clipping.UNIT}"
        lost = f"SELECT {clipping.UNIT}, {ONE} - ({ONE * limit} // c) AS lost FROM ({counts}) WHERE c > {limit}"
        candidates = clipping.may_exceed(plan, limit)
        assert candidates is not None
        return clipping._clauses(plan, candidates, lost, inside_keys=False)

    monkeypatch.setattr(clipping, "_clip_rows", filtered)
    with pytest.raises(AssertionError):
        check_l1([visit(1, "a", 9, 0)] * 8 + [visit(2, "c", 3, 1)], scan_plan(), 2)


def test_the_check_catches_a_square_root_that_rounds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clipping, "root", lambda value: f"CAST(ceil(sqrt(CAST({value} AS DOUBLE))) AS BIGINT)")
    with pytest.raises(AssertionError):
        check_l2([visit(1, "a", 9, 1)] * 3 + [visit(1, "b", 9, 1)] * 3, scan_plan(), 1)
