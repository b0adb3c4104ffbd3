"""Distinct values, distinct units and group slots: at most k of each unit, chosen by nobody but itself."""

from collections import Counter, defaultdict
from collections.abc import Callable
from math import isqrt
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.core.plan import ONE, DistinctNeed, KeysNeed, Plan, UnitsNeed
from service.engine.emit import kept_pairs, keys, spelling
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

few = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SHAPES = sorted(plans())
GROUPED = [shape for shape in SHAPES if shape != "ungrouped"]
SALT = 7
KEY = '"key"'

Thing = tuple[Any, ...]
Choice = Callable[[int, str, tuple[str, ...]], str]


def colliding(salt: int, unit_key: str, parts: tuple[str, ...]) -> str:
    """A hash with three values: ties everywhere."""
    return f"(hash({', '.join(parts)}) % 3)"


@pytest.fixture(params=[spelling.choice, colliding], ids=["salted", "colliding"])
def choice(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Choice:
    """The real hash, and one with collisions, which must cost slots and never add one."""
    monkeypatch.setattr(kept_pairs, "choice", request.param)
    monkeypatch.setattr(keys, "choice", request.param)
    chosen: Choice = request.param
    return chosen


def kept(connection: duckdb.DuckDBPyConnection, choice: Choice, things: set[Thing], limit: int) -> set[Thing]:
    """Of (unit, parts…), those strictly below the (limit+1)-th smallest hash of the unit."""
    hashes: dict[int, list[tuple[int, Thing]]] = defaultdict(list)
    if not things:
        return set()
    kinds = [
        "BIGINT" if all(isinstance(t[i], int) for t in things) else "VARCHAR" for i in range(len(next(iter(things))))
    ]
    marks = ", ".join("(" + ", ".join(f"CAST(? AS {kind})" for kind in kinds) + ")" for _ in things)
    names = tuple(f"p{i}" for i in range(1, len(kinds)))
    source = f'(VALUES {marks}) AS t(unit, {", ".join(names)}) JOIN "#units" ON unit = "#unit"'
    hashed = f"SELECT {choice(SALT, KEY, names)}, unit, {', '.join(names)} FROM {source}"
    for value, *parts in connection.execute(hashed, [part for thing in things for part in thing]).fetchall():
        hashes[parts[0]].append((value, tuple(parts)))
    return {
        thing
        for own in hashes.values()
        for value, thing in own
        if len(own) <= limit or value < sorted(h for h, _ in own)[limit]
    }


def positioned(row: dict[str, Any], plan: Plan) -> int | None:
    """Where the key table lists the row's group, None if it does not."""
    if not plan.keys:
        return 0
    return WARDS.index(row["k0"]) if row["k0"] in WARDS else None


@pytest.mark.parametrize("shape", SHAPES)
@few
@given(rows=visit_rows, limit=st.integers(1, 4))
def test_counts_of_distinct_things_equal_the_definition(
    shape: str, choice: Choice, rows: list[Visit], limit: int
) -> None:
    plan = plans()[shape]
    with open_hospital(rows) as connection:
        known = [(row, positioned(row, plan)) for row in plan_rows(connection, plan)]
        pairs = {(row["#unit"], at, row["d0"]) for row, at in known if at is not None and row["d0"] is not None}
        values = Counter(at for at, _ in {(at, value) for _, at, value in kept(connection, choice, pairs, limit)})
        members = {(row["#unit"], at) for row, at in known if at is not None}
        units = Counter(at for _, at in kept(connection, choice, members, limit if plan.keys else 1))
        positions = range(len(WARDS) if plan.keys else 1)
        got = answer(connection, plan, DistinctNeed("d0", limit), UnitsNeed(limit), salt=SALT)
        assert got == {"d0.d": [values[at] for at in positions], "units": [units[at] for at in positions]}


@pytest.mark.parametrize("shape", GROUPED)
@few
@given(rows=visit_rows, limit=st.integers(1, 4), least=st.integers(1, 3))
def test_keys_and_their_weights_equal_the_definition(
    shape: str, choice: Choice, rows: list[Visit], limit: int, least: int
) -> None:
    plan = plans()[shape]
    with open_hospital(rows, keys=None) as connection:
        pairs = kept(connection, choice, {(row["#unit"], row["k0"]) for row in plan_rows(connection, plan)}, limit)
        groups = Counter(unit for unit, _ in pairs)
        units, weighted, shared = Counter(key for _, key in pairs), Counter[Any](), Counter[Any]()
        for unit, key in pairs:
            weighted[key] += isqrt(ONE * ONE // groups[unit])
            shared[key] += ONE // groups[unit]
        got = answer(connection, plan, KeysNeed("units", limit, least), salt=SALT)
        assert dict(zip(got["k0"], got["n"], strict=True)) == {key: n for key, n in units.items() if n >= least}
        got = answer(connection, plan, KeysNeed("weighted", limit, least), salt=SALT)
        assert dict(zip(got["k0"], got["n"], strict=True)) == {k: n for k, n in weighted.items() if units[k] >= least}
        assert got["k0"] == sorted(got["k0"], key=lambda key: (key is None, key))
        got = answer(connection, plan, KeysNeed("shared", limit, least), salt=SALT)
        assert dict(zip(got["k0"], got["n"], strict=True)) == {k: n for k, n in shared.items() if units[k] >= least}


@pytest.mark.parametrize("where", ["", 'WHERE "pay" > 0'])
@few
@given(rows=visit_rows, limit=st.integers(1, 4), least=st.integers(1, 2))
def test_rows_as_slots_are_the_first_matching_rows_by_rank(
    where: str, rows: list[Visit], limit: int, least: int
) -> None:
    plan = scan_plan(declared=False, where=where)
    with open_hospital(rows, keys=None) as connection:
        found = connection.execute(f'SELECT "#unit", "ward" FROM "visits" {where} ORDER BY "#unit", "#rank"').fetchall()
        own: dict[int, list[Any]] = defaultdict(list)
        for unit, ward in found:
            own[unit].append(ward)
        expected, members = Counter[Any](), Counter[Any]()
        for wards in own.values():
            for ward in wards[:limit]:
                expected[ward] += ONE // len(wards[:limit])
            members.update(set(wards[:limit]))
        got = answer(connection, plan, KeysNeed("rows", limit, least), salt=SALT)
        assert dict(zip(got["k0"], got["n"], strict=True)) == {k: n for k, n in expected.items() if members[k] >= least}
        assert least == 1 or got["units"] == [members[key] for key in got["k0"]]


# --- How far one person moves them -----------------------------------------------------------------


Pair = tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection]


def moved_keys(neighbours: Pair, plan: Plan, need: KeysNeed) -> list[int]:
    found = (answer(connection, plan, need) for connection in neighbours)
    one, other = (Counter(dict(zip(t["k0"], t["n"], strict=True))) for t in found)
    return [abs(one[key] - other[key]) for key in one.keys() | other.keys() if one[key] != other[key]]


def check_distinct(neighbours: Pair, plan: Plan, limit: int) -> None:
    before, after = (answer(connection, plan, DistinctNeed("d0", limit))["d0.d"] for connection in neighbours)
    assert sum(abs(a - b) for a, b in zip(before, after, strict=True)) <= limit


def check_units(neighbours: Pair, plan: Plan, limit: int) -> None:
    before, after = (answer(connection, plan, UnitsNeed(limit))["units"] for connection in neighbours)
    change = [abs(a - b) for a, b in zip(before, after, strict=True)]
    assert sum(change) <= limit
    assert max(change) <= 1


def check_keys(neighbours: Pair, plan: Plan, limit: int) -> None:
    change = moved_keys(neighbours, plan, KeysNeed("units", limit, 1))
    assert len(change) <= limit
    assert set(change) <= {1}


def check_weighted_keys(neighbours: Pair, plan: Plan, limit: int) -> None:
    change = moved_keys(neighbours, plan, KeysNeed("weighted", limit, 1))
    assert len(change) <= limit
    assert sum(c * c for c in change) <= ONE * ONE


def check_shared_keys(neighbours: Pair, plan: Plan, limit: int) -> None:
    change = moved_keys(neighbours, plan, KeysNeed("shared", limit, 1))
    assert len(change) <= limit
    assert sum(change) <= ONE


def check_row_slots(neighbours: Pair, plan: Plan, limit: int) -> None:
    change = moved_keys(neighbours, plan, KeysNeed("rows", limit, 1))
    assert len(change) <= limit
    assert sum(change) <= ONE


CHECKS = [check_distinct, check_units, check_keys, check_weighted_keys, check_shared_keys, check_row_slots]


@pytest.mark.parametrize("shape", ["scan", "joined, undeclared", "doubled"])
@few
@given(rows=visit_rows, limit=st.integers(1, 3))
def test_one_person_moves_chosen_things_by_at_most_the_claim(
    shape: str, choice: Choice, rows: list[Visit], limit: int
) -> None:
    with open_hospital(rows) as before, open_hospital(without(rows, 1)) as after:
        for check in CHECKS:
            check((before, after), plans()[shape], limit)


EVERYWHERE = [visit(1, ward, 1, tag) for ward in ("a", "b", "c") for tag in range(4)] + [visit(2, "a", 1, 0)]


@pytest.mark.parametrize("check", CHECKS)
def test_the_checks_catch_units_that_keep_everything(
    check: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_pairs, "may_exceed", lambda *_: None)
    monkeypatch.setattr(keys, "may_exceed", lambda *_: None)
    with pytest.raises(AssertionError):
        check((open_hospital(EVERYWHERE), open_hospital(without(EVERYWHERE, 1))), plans()["filtered"], 2)


@pytest.mark.parametrize("check", [check_distinct, check_units, check_keys, check_weighted_keys, check_shared_keys])
def test_the_checks_catch_ties_that_win(check: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Below or at the (k+1)-th smallest instead of strictly below: colliding values would all be kept."""
    monkeypatch.setattr(kept_pairs, "choice", lambda *_: "CAST(0 AS UBIGINT)")
    text = kept_pairs._ranked
    monkeypatch.setattr(kept_pairs, "_ranked", lambda *a: text(*a).replace("count(*) OVER", "rank() OVER"))
    with pytest.raises(AssertionError):
        check((open_hospital(EVERYWHERE), open_hospital(without(EVERYWHERE, 1))), scan_plan(), 2)
