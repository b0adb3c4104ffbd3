"""Histograms, candidates, and the two that find bounds: their definition, and how far one person moves them."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.core.plan import ONE, BoundsNeed, CandidatesNeed, HistogramNeed, Plan, RowsWeight, UnitTotalsNeed
from service.engine.emit import histograms, unit_totals
from tests.fixtures.visits import (
    WARDS,
    Visit,
    answer,
    open_hospital,
    plan_rows,
    plans,
    scan_plan,
    visit,
    visit_rows,
    without,
)

few = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SHAPES = ["scan", "ungrouped", "undeclared", "joined", "doubled"]
GRID = (-2, 3, 3)  # low, width, bins: narrower than the codes on both sides


def cells(columns: dict[str, list[int]]) -> dict[tuple[int, int], int]:
    return {(at, b): w for at, b, w in zip(columns["#pos"], columns["bin"], columns["weight"], strict=True) if w}


def by_definition(rows: list[dict[str, Any]], plan: Plan, limit: int, *, modes: bool) -> dict[tuple[int, int], int]:
    if not plan.keys_declared:
        rows = [row for row in rows if row["k0"] in WARDS]
    counts = Counter(row["#unit"] for row in rows)
    low, width, bins = GRID
    found: Counter[tuple[int, int]] = Counter()
    for row in rows:
        at = (WARDS.index(row["k0"]) if row["k0"] in WARDS else None) if plan.keys else 0
        domain = plan.attributes[0].domain
        assert domain is not None
        if modes:
            cell = domain.index(row["d0"]) if row["d0"] in domain and row["d0"] is not None else None
        else:
            cell = None if row["m0"] is None else min(max((row["m0"] - low) // width, 0), bins - 1)
        if at is not None and cell is not None:
            found[at, cell] += ONE * limit // max(counts[row["#unit"]], limit)
    return {cell: weight for cell, weight in found.items() if weight}


@pytest.mark.parametrize("shape", SHAPES)
@few
@given(rows=visit_rows, limit=st.integers(1, 8))
def test_weighted_histograms_equal_the_definition_and_move_by_at_most_the_bound(
    shape: str, rows: list[Visit], limit: int
) -> None:
    plan = plans()[shape]
    with open_hospital(rows) as connection, open_hospital(without(rows, 1)) as other:
        known = plan_rows(connection, plan)
        for need, modes in (
            (HistogramNeed("m0", *GRID, RowsWeight(limit)), False),
            (CandidatesNeed("d0", RowsWeight(limit)), True),
        ):
            got, after = (cells(answer(c, plan, need)) for c in (connection, other))
            assert got == by_definition(known, plan, limit, modes=modes)
            assert sum(abs(got.get(cell, 0) - after.get(cell, 0)) for cell in got.keys() | after.keys()) <= ONE * limit


def logarithmic(code: int, scale: int, bins: int) -> int:
    edge = next((i for i in range(bins) if abs(code) <= scale * 2**i), bins - 1)
    return edge if code >= 0 else bins + edge


@pytest.mark.parametrize("shape", ["scan", "ungrouped", "joined", "undeclared, filtered"])
@few
@given(rows=visit_rows, scale=st.integers(1, 3), bins=st.integers(1, 5), width=st.integers(1, 9))
def test_rows_and_units_are_binned_exactly_and_weigh_one_per_unit(
    shape: str, rows: list[Visit], scale: int, bins: int, width: int
) -> None:
    plan = plans()[shape]
    with open_hospital(rows, keys=None) as connection, open_hospital(without(rows, 1), keys=None) as other:
        known = [row for row in plan_rows(connection, plan) if row["m0"] is not None]
        counts = Counter(row["#unit"] for row in known)
        weights: Counter[int] = Counter()
        totals: Counter[int] = Counter()
        for row in known:
            weights[logarithmic(row["m0"], scale, bins)] += ONE // counts[row["#unit"]]
            totals[row["#unit"]] += abs(row["m0"])
        need = BoundsNeed("m0", scale, bins)
        got, after = (answer(c, plan, need)["weight"] for c in (connection, other))
        assert got == [weights[i] for i in range(2 * bins)]
        assert sum(abs(a - b) for a, b in zip(got, after, strict=True)) <= ONE
        columns = answer(connection, plan, UnitTotalsNeed("m0", width, bins))
        units = Counter(min(total // width, bins - 1) for total in totals.values())
        assert dict(zip(columns["bin"], columns["weight"], strict=True)) == {b: n * ONE for b, n in units.items()}


def test_the_histogram_check_catches_a_statement_without_the_correction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histograms, "clip", lambda *_: None)
    rows = [visit(1)] * 5
    with open_hospital(rows) as connection:
        got = cells(answer(connection, scan_plan(), HistogramNeed("m0", *GRID, RowsWeight(2))))
    assert sum(got.values()) > 2 * ONE


def test_the_check_of_bounds_catches_rows_that_all_weigh_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_totals, "quotient", lambda *_: str(ONE))
    with open_hospital([visit(1)] * 5) as connection:
        assert sum(answer(connection, scan_plan(), BoundsNeed("m0", 1, 3))["weight"]) > ONE
