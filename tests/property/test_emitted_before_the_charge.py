"""What was emitted on trial with the declared ranges does not fail with those that are found after the charge."""

from fractions import Fraction
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.amounts import PICO
from service.core.errors import ServiceError
from service.core.plan import BoundsNeed, Loss, UnitTotalsNeed
from service.core.request import Ask, AskedBounds
from service.core.schema import BIGINT, Column, Schema, Table, UnitColumn
from service.engine.emit.statements import emit
from service.privacy.accounting.costs import open_terms
from service.privacy.pricing.price import price
from service.privacy.pricing.priced import PricedPlan, ReleasedBounds
from service.sql.understand import understand
from tests.fixtures.sql import shop

TERMS = open_terms(10 * PICO, 10**12, keys_declared=False)
WIDEST = 2**61 - 1  # as far as declared codes may reach
WIDE = Table(
    "wide",
    {
        "person": Column("person", BIGINT),
        "up": Column("up", BIGINT, Fraction(0), Fraction(WIDEST), Fraction(1)),
        "both": Column("both", BIGINT, Fraction(-WIDEST), Fraction(WIDEST), Fraction(1)),
        "one": Column("one", BIGINT, Fraction(5), Fraction(5), Fraction(1)),
    },
    UnitColumn("person"),
)
ASKED = [
    (Schema("wide", "person", {"wide": WIDE}), f"wide.{column}", f"SELECT {call}({column}) AS x FROM wide")
    for column in ("up", "both", "one")
    for call in ("SUM", "AVG", "VAR_POP", "MEDIAN", "MIN", "MAX")
] + [
    (shop.SCHEMA, "orders.amount", "SELECT status, SUM(amount), MEDIAN(amount) FROM orders GROUP BY status"),
    (shop.SCHEMA, "orders.weight", "SELECT AVG(weight), MAX(weight) FROM orders"),
    (shop.SCHEMA, "items.price", "SELECT VAR_POP(price * price), SUM(price * price * price) FROM items"),
]


@cache
def searching() -> list[PricedPlan]:
    """Questions whose bounds are found, and those whose caps of a unit's sum are, under both laws."""
    found = []
    for schema, column, sql in ASKED:
        for bounds in (AskedBounds(columns={column: None}), AskedBounds(unit_sum={column: None})):
            for kind in ("epsilon", "rho"):
                try:
                    query = understand(Ask(schema.dataset, sql, bounds=bounds), schema)
                    found += price(query, Loss(kind, PICO, 10**9), TERMS).plans  # type: ignore[arg-type]
                except ServiceError:
                    continue
    return [priced for priced in found if priced.bounds_needs]


def test_there_are_questions_that_search_for_ranges_and_for_caps() -> None:
    needs = [need for priced in searching() for need in priced.bounds_needs]
    assert sum(isinstance(need, BoundsNeed) for need in needs) > 20
    assert sum(isinstance(need, UnitTotalsNeed) for need in needs) > 5


@st.composite
def found_bounds(draw: st.DrawFn) -> tuple[PricedPlan, ReleasedBounds]:
    """A question, and anything that stage 0 may find for it: release_bounds clamps to the declared ranges and caps."""
    priced = draw(st.sampled_from(searching()))
    ranges, caps = {}, {}
    for need in priced.bounds_needs:
        assert isinstance(need, BoundsNeed | UnitTotalsNeed)
        measure = priced.measure(need.measure)
        if isinstance(need, BoundsNeed):
            ends = [draw(st.sampled_from([measure.low, 0, 1, measure.high]) | st.integers()) for _ in range(2)]
            low, high = sorted(max(measure.low, min(measure.high, end)) for end in ends)
            ranges[measure.name] = low, high
        else:
            bin_ = draw(st.sampled_from([0, need.bins - 1]) | st.integers(0, need.bins - 1))
            caps[measure.name] = min(priced.widest_cap(measure), (bin_ + 1) * need.width)
    return priced, ReleasedBounds(ranges, caps)


@given(case=found_bounds())
@settings(max_examples=400, deadline=None)
def test_emission_never_fails_with_what_was_found(case: tuple[PricedPlan, ReleasedBounds]) -> None:
    priced, found = case
    emit(priced.plan, priced.bounds_needs, salt=1)
    trial = emit(priced.plan, priced.value_needs(), salt=1)
    given = priced.given(found)
    final = emit(given.plan, given.value_needs(), salt=1)
    assert bool(trial) == bool(final)
