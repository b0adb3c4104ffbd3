"""From SQL text to the integers that noise is added to, on neighbouring datasets.

For every accepted fixture query: the same question on a dataset and on the dataset without one person.
The two vectors may differ by no more than their own noise was priced for: Σ |moved| / scale over all Laplace
draws at most epsilon, Σ moved² / sigma² over all Gaussian draws at most 2·rho. Nothing here knows how
weights, ranges or joins work; a mistake in any of them shows.
"""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import duckdb
import pytest

from service.core.amounts import PICO
from service.core.boundary import Primitive
from service.core.errors import ServiceError
from service.core.plan import (
    ONE,
    BoundsNeed,
    CandidatesNeed,
    HistogramNeed,
    KeysNeed,
    Loss,
    Need,
    Plan,
    Query,
    RowBound,
    UnitTotalsNeed,
)
from service.core.request import Ask, AskedBounds
from service.engine.emit.statements import emit
from service.privacy.accounting.costs import open_terms
from service.privacy.noise.laws import LAPLACE
from service.privacy.pricing.price import price
from service.privacy.pricing.priced import PricedPlan
from service.privacy.primitives.noised import Part
from service.sql.expr.canonical import canonical_text
from service.sql.understand import understand
from service.walk.core_run import declared_keys
from tests.fixtures.prepared import fetch, prepared
from tests.fixtures.recorder import SALT, LocalSlot, present_keys, primitives, provide_as_sent
from tests.fixtures.sql.corpus import accepted
from tests.fixtures.sql.shop import SCHEMA, rows

TERMS = open_terms(10 * PICO, 10**12, keys_declared=False)
TIGHT = AskedBounds(rows_per_unit=2, groups_per_unit=1)
L2 = AskedBounds(rows_per_unit=2, groups_per_unit=1, clip="l2")
LOSSES = {
    "epsilon": (Loss("epsilon", PICO, 10**9), TIGHT),
    "rho": (Loss("rho", PICO // 2, 10**9), TIGHT),
    "l2": (Loss("rho", PICO // 2, 10**9), L2),
}
LEAVERS = (0, 7, 21)

# Spellings that once looked disjoint, and bounds at their edges.
SLY = [
    "SELECT COUNT(*) FILTER (WHERE store = 1), COUNT(*) FILTER (WHERE store = 1.0), "
    "COUNT(*) FILTER (WHERE store = 1.00) FROM orders",
    "SELECT SUM(amount) FILTER (WHERE store = 1), SUM(amount) FILTER (WHERE store = 2), "
    "AVG(amount) FILTER (WHERE store = 1.0) FROM orders",
    "SELECT COUNT(*) FILTER (WHERE weight = 0.0), COUNT(*) FILTER (WHERE weight = -0.0), "
    "COUNT(*) FILTER (WHERE weight = 0) FROM orders",
    "SELECT SUM(CASE WHEN status = 'paid' THEN amount END), "
    "SUM(CASE WHEN status = 'open' THEN amount END), COUNT(amount) FROM orders",
    "SELECT SUM(CASE WHEN status = 'paid' THEN 1 WHEN status = 'paid' THEN 2 END), "
    "COUNT(*) FILTER (WHERE status = 'open') FROM orders",
    "SELECT MEDIAN(amount * 30000000000001), COUNT(*) FROM orders",  # codes of 62 bits
    "SELECT MIN(-amount * 45000000000001), MAX(amount * 40000000000001) FROM orders",
]

Data = dict[str, list[dict[str, object]]]


def without(data: Data, leaver: int) -> Data:
    """All rows of one person gone, from all tables."""
    orders = {row["order_id"] for row in data["orders"] if row["customer_id"] == leaver}
    return {
        **data,
        "customers": [row for row in data["customers"] if row["customer_id"] != leaver],
        "orders": [row for row in data["orders"] if row["customer_id"] != leaver],
        "items": [row for row in data["items"] if row["order_id"] not in orders],
        "visits": [row for row in data["visits"] if row["visitor"] != leaver],
    }


@pytest.fixture(scope="module")
def neighbours() -> tuple[duckdb.DuckDBPyConnection, dict[int, duckdb.DuckDBPyConnection]]:
    everyone = rows(11, customers=40)
    heavy = everyone["orders"][0]["customer_id"]
    assert isinstance(heavy, int)
    telling = {"amount": Decimal(900), "status": "paid", "store": 1, "weight": 0.0, "raw": -0.0}
    first = {**everyone["orders"][0], **telling}
    for number in range(60):  # one person is far above every bound, with all rows alike
        everyone["orders"].append({**first, "order_id": 10_000 + number})
    return prepared(SCHEMA, everyone), {p: prepared(SCHEMA, without(everyone, p)) for p in {*LEAVERS, heavy}}


def moved(one: dict[Primitive, Any], other: dict[Primitive, Any], priced: PricedPlan) -> tuple[Fraction, Fraction]:
    """Σ |Δ|/scale over Laplace draws, Σ Δ²/sigma² over Gaussian ones."""
    linear, square = Fraction(0), Fraction(0)
    assert one.keys() == other.keys(), "what is drawn depends on a person"
    for part in one:
        if not isinstance(part, Part):
            continue
        for before, after, scale in zip(one[part], other[part], part.scales, strict=True):
            gaps = [abs(int(a) - int(b)) for a, b in zip(before, after, strict=True)]
            if part.law is LAPLACE:
                linear += sum(gaps) / scale
            else:
                square += sum(gap * gap for gap in gaps) / scale
    return linear, square


def keys_of(plan: Plan, *databases: duckdb.DuckDBPyConnection) -> Any:
    return declared_keys(plan, LocalSlot(databases[0])) if plan.keys_declared else present_keys(plan, *databases)


def understood(sql: str, bounds: AskedBounds) -> Query:
    return understand(Ask("shop", sql, bounds=bounds), SCHEMA)


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("sql", [*SLY, *accepted()])
def test_one_person_moves_the_vector_by_at_most_what_was_priced(sql: str, kind: str, neighbours: Any) -> None:
    loss, bounds = LOSSES[kind]
    everyone, others = neighbours
    query = understood(sql, bounds)
    try:
        priced = price(query, loss, TERMS)
    except ServiceError:
        return  # refused before any data: nothing can move
    for leaver, fewer in others.items():
        linear, square = Fraction(0), Fraction(0)
        for plan in priced.plans:
            if plan.counted_units is not None:
                continue  # counts people in the selection stage, see below
            keys = keys_of(plan.plan, everyone, fewer)
            a, b = moved(dict(primitives(everyone, plan, keys)), dict(primitives(fewer, plan, keys)), plan)
            linear, square = linear + a, square + b
        assert linear * PICO <= loss.amount, f"leaver {leaver}"
        assert square * PICO <= 2 * loss.amount, f"leaver {leaver}"


@pytest.mark.parametrize("kind", ["epsilon", "rho"])
@pytest.mark.parametrize("sql", [*SLY, *accepted()])
def test_one_person_moves_histograms_and_key_counts_by_at_most_their_claim(
    sql: str, kind: str, neighbours: Any
) -> None:
    loss, bounds = LOSSES[kind]
    everyone, others = neighbours
    try:
        priced = price(understood(sql, bounds), loss, TERMS)
    except ServiceError:
        return
    for plan in priced.plans:
        needs = [need for need in plan.value_needs() if isinstance(need, HistogramNeed | CandidatesNeed)]
        selecting: list[Need] = [] if plan.keys_need is None else [plan.keys_need]
        for fewer in others.values():
            for need in [*needs, *selecting]:
                gaps = need_gaps(plan.plan, need, everyone, fewer)
                assert_claim(need, gaps)


def need_gaps(plan: Plan, need: Need, one: duckdb.DuckDBPyConnection, other: duckdb.DuckDBPyConnection) -> list[int]:
    """By how much each coordinate of one need differs between two datasets."""
    keys = keys_of(plan, one, other)
    found = []
    for database in (one, other):
        ((statement, _),) = emit(plan, (need,), salt=SALT)
        if statement.uses_keys:
            provide_as_sent(database, keys)
        columns = fetch(database, statement)
        names = [name for name in columns if name not in ("weight", "n", "units")]
        value = "n" if isinstance(need, KeysNeed) else "weight"
        index = zip(*(columns[name] for name in names), strict=True) if names else iter([()] * len(columns[value]))
        found.append({tuple(map(repr, place)): int(v) for place, v in zip(index, columns[value], strict=True)})  # type: ignore[call-overload]
    first, second = found
    return [abs(first.get(place, 0) - second.get(place, 0)) for place in first.keys() | second.keys()]


def assert_claim(need: Need, gaps: list[int]) -> None:
    if isinstance(need, HistogramNeed | CandidatesNeed):
        assert sum(gaps) <= ONE * need.weight.rows_per_unit
    elif isinstance(need, KeysNeed) and need.rule == "units":
        assert max(gaps, default=0) <= 1 and sum(gaps) <= need.groups_per_unit
    elif isinstance(need, KeysNeed) and need.rule == "weighted":
        assert sum(gap * gap for gap in gaps) <= ONE * ONE
    else:
        assert isinstance(need, KeysNeed | BoundsNeed | UnitTotalsNeed)
        assert sum(gaps) <= ONE


def worst_move(query: Query, neighbours: Any, loss: Loss) -> Fraction:
    """The largest Σ |moved| / scale over all neighbours."""
    everyone, others = neighbours
    (plan,) = price(query, loss, TERMS).plans
    keys = keys_of(plan.plan, everyone)
    before = dict(primitives(everyone, plan, keys))
    return max(moved(before, dict(primitives(fewer, plan, keys)), plan)[0] for fewer in others.values())


def test_the_check_catches_a_plan_that_claims_too_small_a_row_bound(neighbours: Any) -> None:
    """The broken twin: a plan that says one row per person where there are many."""
    loss, bounds = LOSSES["epsilon"]
    query = understood("SELECT COUNT(*), SUM(amount) FROM orders", bounds)
    lying = replace(query, cores=(replace(query.cores[0], row_bound=RowBound(1, ())),))
    assert worst_move(lying, neighbours, loss) * PICO > loss.amount


def test_the_check_catches_filters_that_only_look_disjoint(neighbours: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: literals named by how they are written."""
    monkeypatch.setattr("service.sql.cores.disjoint.member_name", canonical_text)
    loss, bounds = LOSSES["epsilon"]
    assert worst_move(understood(SLY[0], bounds), neighbours, loss) * PICO > loss.amount
