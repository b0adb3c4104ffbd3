"""Nobody's contribution depends on who else is there, on the order of rows, or on threads.

A unit's contribution is what the answer loses when only that unit is left out of the data, so it is
compared by asking about the unit alone: alone, or in company, it must count the same.
"""

import re
from collections import Counter
from random import Random
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.core.plan import (
    ONE,
    CandidatesNeed,
    HistogramNeed,
    KeysNeed,
    L2Weight,
    MomentsNeed,
    Need,
    Plan,
    RowsWeight,
    UnitsNeed,
    UnitSumWeight,
)
from service.engine.emit import clipping, kept_pairs
from tests.fixtures.visits import HIGH, LOW, Visit, answer, open_hospital, plans, scan_plan, visit, visit_rows

few = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

# What adds up over units: the answer is the sum of what each unit would give alone.
ADDITIVE: tuple[Need, ...] = (
    MomentsNeed(None, 0, RowsWeight(2)),
    MomentsNeed("m0", 2, RowsWeight(2), LOW, HIGH),
    MomentsNeed("m0", 1, L2Weight(2), LOW, HIGH),
    MomentsNeed("m0", 1, UnitSumWeight(9), LOW, HIGH),
    HistogramNeed("m0", LOW, 2, 7, RowsWeight(2)),
    CandidatesNeed("d0", RowsWeight(2)),
    UnitsNeed(2),
    KeysNeed("units", 2, 1),
    KeysNeed("weighted", 2, 1),
    KeysNeed("shared", 2, 1),
    KeysNeed("rows", 2, 1),
)


def contributions(connection: duckdb.DuckDBPyConnection, plan: Plan, need: Need) -> Counter[Any]:
    """Every cell of the answer by its coordinates."""
    columns = answer(connection, plan, need)
    names = [name for name in columns if name in ("#pos", "bin", "k0")]
    values = [name for name in columns if name not in names]
    found: Counter[Any] = Counter()
    for i in range(len(columns[values[0]])):
        place = tuple(columns[name][i] for name in names) if names else (i,)
        for name in values:
            found[(name, *place)] += columns[name][i]
    return Counter({cell: value for cell, value in found.items() if value})


def check_company(rows: list[Visit], plan: Plan, need: Need) -> None:
    total: Counter[Any] = Counter()
    for person in {row["person"] for row in rows}:
        with open_hospital([row for row in rows if row["person"] == person]) as connection:
            alone = contributions(connection, plan, need)
        for cell, value in alone.items():
            total[cell] += value
    with open_hospital(rows) as connection:
        together = contributions(connection, plan, need)
    assert together == Counter({cell: value for cell, value in total.items() if value})


@pytest.mark.parametrize("need", ADDITIVE, ids=lambda need: f"{type(need).__name__}-{getattr(need, 'rule', '')}")
@pytest.mark.parametrize("shape", ["undeclared", "doubled"])
@settings(few, max_examples=4)
@given(rows=visit_rows)
def test_a_unit_contributes_in_company_what_it_contributes_alone(shape: str, need: Need, rows: list[Visit]) -> None:
    check_company(rows, plans()[shape], need)


@few
@given(rows=visit_rows, seed=st.integers(0, 9))
def test_order_of_rows_and_threads_change_nothing(rows: list[Visit], seed: int) -> None:
    shuffled = rows.copy()
    Random(seed).shuffle(shuffled)
    plan = plans()["undeclared, filtered"]
    with open_hospital(rows) as one, open_hospital(shuffled, threads=2) as other:
        for need in ADDITIVE:
            assert contributions(one, plan, need) == contributions(other, plan, need)


def test_the_check_catches_slots_chosen_by_the_code_instead_of_the_own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dense codes shift when a person is added, so whatever is keyed on them moves other people's slots."""
    hashed = kept_pairs._hash
    monkeypatch.setattr(
        kept_pairs, "_hash", lambda *a: re.sub(r'(\w)\."key"', r'CAST(\1."#unit" AS UBIGINT)', hashed(*a))
    )
    rows = [visit(person, ward, 1, tag) for person in range(1, 6) for ward in "abc" for tag in range(4)]
    with pytest.raises(AssertionError):
        check_company(rows, scan_plan(declared=False), KeysNeed("units", 1, 1))


def test_the_check_catches_weights_of_the_whole_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def shared(plan: Plan, limit: int) -> clipping.Clipping:
        lost = f'SELECT DISTINCT "#unit", {ONE} - {ONE} // (SELECT count(*) FROM "#heavy") AS lost FROM "#heavy"'
        return clipping._clauses(plan, 'SELECT "#unit" FROM "visits#units"', lost, inside_keys=False)

    monkeypatch.setattr(clipping, "_clip_rows", shared)
    with pytest.raises(AssertionError):
        check_company([visit(1), visit(2), visit(3)], scan_plan(), MomentsNeed(None, 0, RowsWeight(2)))
