"""FILTERs that exclude each other are paid for once: whatever part of a person's rows falls into each of them, all
draws together cost no more than was charged."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.amounts import ATTO, PICO
from service.core.events import Event, ExponentialEvent, GaussianEvent, LaplaceEvent, PureEvent
from service.core.plan import Aggregate, Bounds, Loss, Plan
from service.privacy.accounting.costs import open_terms, total_cost
from service.privacy.noise.laws import LAPLACE, LAWS, Law
from service.privacy.pricing.allot import price_at
from service.privacy.pricing.priced import PricedPlan, PricedQuery
from tests.unit.privacy.questions import aggregate, by_key, measure, plan, question

TERMS = open_terms(3 * PICO, ATTO // 10**6, keys_declared=True)
KINDS = ("count", "sum", "avg", "var_pop", "quantile", "many quantiles", "min", "max")

wanted = st.lists(st.sampled_from(KINDS), min_size=1, max_size=4, unique=True)
member = st.tuples(st.sampled_from([1, 10, 1000, 10_000]), wanted)
parts = st.lists(st.integers(0, 20), min_size=3, max_size=3).filter(any)


def asked(name: str, kind: str) -> list[Aggregate]:
    if kind == "many quantiles":
        return [aggregate("quantile", name, p=Fraction(i, 25)) for i in range(1, 25)]
    return [aggregate(kind, name, p=Fraction(13, 100) if kind == "quantile" else None)]


def family(members: list[tuple[int, list[str]]], rows_per_unit: int) -> Plan:
    names = [f"m{i}" for i in range(len(members))]
    measures = tuple(measure(n, 0, m[0], disjoint=("f", n)) for n, m in zip(names, members, strict=True))
    aggregates = [a for n, m in zip(names, members, strict=True) for kind in m[1] for a in asked(n, kind)]
    return plan(*aggregates, measures=measures, bounds=Bounds(rows_per_unit, 1), keys=by_key(3))


def with_part(event: Event, part: Fraction) -> Event:
    """The same draw for a person of whose weight only a part is there."""
    match event:
        case LaplaceEvent(l1, scale):
            return LaplaceEvent(l1 * part, scale)
        case GaussianEvent(l2_squared, sigma_squared):
            return GaussianEvent(l2_squared * part * part, sigma_squared)
        case ExponentialEvent(epsilon):
            return ExponentialEvent(epsilon * part)
        case PureEvent(epsilon):
            return PureEvent(epsilon * part)
    raise TypeError(event)


def overcharge(priced: PricedQuery, core: PricedPlan, shares: dict[str, Fraction]) -> list[int]:
    """What is charged beyond what is spent, at every order; rounding up may take a pico for each draw."""
    drawn = {slice_: item.event for slice_, item in (*core.drawn.items(), *core.brackets.items())}
    assert set(drawn) == set(core.charges), "every draw is charged"
    spent = [with_part(event, shares[slice_.demand.source]) for slice_, event in drawn.items()]
    spent = [event for event, slice_ in zip(spent, drawn, strict=True) if shares[slice_.demand.source]]
    orders = zip(priced.cost.orders, total_cost(spent, TERMS).orders, strict=True)
    return [charged + len(spent) - real for charged, real in orders]


def price_of(core: Plan, law: Law, amount: int) -> tuple[PricedQuery, PricedPlan]:
    kind = "epsilon" if law is LAPLACE else "rho"
    priced = price_at(question(core), law, amount, Loss(kind, amount), TERMS)  # type: ignore[arg-type]
    return priced, priced.plans[0]


@settings(max_examples=60, deadline=None)
@given(
    members=st.lists(member, min_size=2, max_size=3), parts=parts, rows=st.sampled_from([1, 7]),
    law=st.sampled_from(LAWS), amount=st.sampled_from([PICO // 1000, PICO // 10, 2 * PICO]),
)  # fmt: skip
def test_a_family_costs_no_more_than_was_charged_however_a_person_is_spread_over_it(
    members: list[tuple[int, list[str]]], parts: list[int], rows: int, law: Law, amount: int
) -> None:
    used = parts[: len(members)]
    shares = {f"m{i}": Fraction(part, max(1, sum(used))) for i, part in enumerate(used)}
    priced, core = price_of(family(members, rows), law, amount)
    assert min(overcharge(priced, core, shares)) >= 0


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_check_catches_members_that_do_not_exclude_each_other(law: Law) -> None:
    """A person whose rows count in full in both would pay for one."""
    priced, core = price_of(family([(10, ["sum"]), (10, ["many quantiles"])], 1), law, PICO // 10)
    assert min(overcharge(priced, core, {"m0": Fraction(1), "m1": Fraction(1)})) < 0
