"""Prices: exact totals, shared primitives, refusals."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from service.core.amounts import ATTO, PICO, Terms
from service.core.errors import BoundsMissing, LossOutOfRange
from service.core.events import PureEvent
from service.core.plan import Accuracy, Bounds, Key, KeysNeed, Loss, Plan, Query
from service.core.schema import VARCHAR
from service.privacy.accounting.costs import cost, open_terms, total_cost
from service.privacy.noise.laws import GAUSSIAN, LAPLACE, LAWS, Law
from service.privacy.pricing.price import price
from service.privacy.pricing.priced import PricedQuery, ReleasedBounds, assert_covered
from tests.unit.privacy.questions import PURE, TERMS, aggregate, attribute, by_key, measure, plan, priced, question

OPEN = open_terms(PICO, ATTO // 10**6, keys_declared=False)
PRIVATE_KEY = (Key("k0", VARCHAR, "city"),)
DELTA = ATTO // 10**9

AGGREGATES = ("count", "sum", "avg", "var_pop", "stddev_samp")


def rich() -> Plan:
    """A bit of everything."""
    return plan(
        aggregate("count", None),
        aggregate("sum", "m0"),
        aggregate("avg", "m0"),
        aggregate("stddev_pop", "m1"),
        aggregate("quantile", "m1", p=Fraction(1, 3)),
        aggregate("count_units", None),
        aggregate("count_distinct", "d0"),
        measures=(measure("m0", -3, 50), measure("m1", 0, 7)),
        attributes=(attribute("d0", "a", "b"),),
        keys=by_key(4),
        bounds=Bounds(3, 2),
    )


def at(query: Query | Plan, terms: Terms = TERMS, **loss: object) -> PricedQuery:
    fields: dict[str, object] = {"kind": "epsilon", "amount": PICO // 10, **loss}
    asked = query if isinstance(query, Query) else question(query)
    return price(asked, Loss(**fields), terms)  # type: ignore[arg-type]


@pytest.mark.parametrize("amount", [PICO // 10, PICO // 3, 37, 10**6 + 1, 5 * PICO])
def test_an_epsilon_is_used_to_the_last_pico_and_never_exceeded(amount: int) -> None:
    assert at(rich(), amount=amount).cost.orders[-1] == amount


@pytest.mark.parametrize("amount", [PICO // 100, 123_456_789])
def test_a_rho_costs_a_times_rho_at_every_order(amount: int) -> None:
    linear = plan(*(aggregate(f, "m0") for f in AGGREGATES), aggregate("count", None), measures=(measure(),))
    priced = at(linear, kind="rho", amount=amount)
    exact = [order * amount for order in TERMS.orders]
    assert list(priced.cost.orders[:-1]) == [math.ceil(value) for value in exact]
    mixed = at(rich(), kind="rho", amount=amount)
    assert all(paid <= math.ceil(value) + 2 for paid, value in zip(mixed.cost.orders, exact, strict=False))


def test_the_cost_is_that_of_the_events() -> None:
    for kind in ("epsilon", "rho"):
        priced = at(rich(), kind=kind)
        assert priced.cost == total_cost(priced.events, TERMS)


def test_all_aggregates_of_a_measure_share_one_draw() -> None:
    alone = at(plan(aggregate("stddev_pop", "m0"), measures=(measure(),)))
    every = at(plan(*(aggregate(f, "m0") for f in AGGREGATES), measures=(measure(),)))
    assert every.events == alone.events
    assert len(every.plans[0].value_needs()) == 1


def test_count_and_mean_are_free_beside_a_sum_from_zero() -> None:
    """Joint noise takes 2.83 to 2.00 for COUNT, 2.00 to 1.41 for SUM, at epsilon 1 and range [0, 1]."""
    both = plan(aggregate("count", "m0"), aggregate("sum", "m0"), aggregate("avg", "m0"), measures=(measure(high=1),))
    widths = at(both, amount=PICO).plans[0].predictions
    assert widths["count_m0"].noise_std == pytest.approx(2.0)
    assert widths["sum_m0"].noise_std == pytest.approx(math.sqrt(2))
    alone = at(plan(aggregate("sum", "m0"), measures=(measure(high=1),)), amount=PICO)
    assert alone.plans[0].predictions["sum_m0"].noise_std == pytest.approx(math.sqrt(2))


def test_with_a_variance_the_margins_are_those_of_section_3() -> None:
    every = plan(*(aggregate(f, "m0") for f in ("count", "sum", "var_pop")), measures=(measure(high=1),))
    widths = at(every, amount=PICO).plans[0].predictions
    assert widths["count_m0"].noise_std == pytest.approx(math.sqrt(6))
    assert widths["sum_m0"].noise_std == pytest.approx(math.sqrt(2.5))


def test_under_rho_the_squares_are_free_beside_the_sum() -> None:
    means = at(plan(aggregate("avg", "m0"), measures=(measure(),)), kind="rho").plans[0]
    spreads = at(plan(aggregate("var_pop", "m0"), measures=(measure(),)), kind="rho").plans[0]
    (mean,), (spread,) = means.parts.values(), spreads.parts.values()
    assert mean.scales == spread.scales[:2]


def test_filters_that_exclude_each_other_are_paid_once() -> None:
    def members(*families: tuple[str, str] | None) -> Plan:
        measures = tuple(measure(f"m{i}", 1, 1, disjoint=family) for i, family in enumerate(families))
        return plan(*(aggregate("count", m.name) for m in measures), measures=measures)

    once = at(members(("f", "x"), ("f", "y"), ("f", "z")))
    assert once.cost == at(members(None)).cost
    widths = [p.noise_std for p in once.plans[0].predictions.values()]
    assert widths == [at(members(None)).plans[0].predictions["count_m0"].noise_std] * 3
    twice = at(members(("f", "x"), ("f", "x")))
    assert twice.plans[0].predictions["count_m0"].noise_std == pytest.approx(2 * (widths[0] or 0))


def test_unequal_members_of_a_family_are_charged_no_less_than_any_of_them() -> None:
    measures = (measure("m0", 0, 9, disjoint=("f", "x")), measure("m1", 1, 1, disjoint=("f", "y")))
    mixed = at(plan(aggregate("avg", "m0"), aggregate("count", "m1"), measures=measures))
    for part, event in mixed.plans[0].charges.items():
        assert part.amount == PICO // 10
        assert all(a <= b for a, b in zip(cost(event, TERMS).orders, mixed.cost.orders, strict=True))
    assert mixed.cost.orders[-1] == PICO // 10


def test_weights_shift_the_budget_between_outputs() -> None:
    measures = (measure("m0", 0, 1), measure("m1", 0, 1))
    core = plan(aggregate("sum", "m0"), aggregate("sum", "m1"), measures=measures)
    tilted = at(core, weights={"sum_m0": Fraction(3)}, amount=PICO).plans[0].predictions
    assert tilted["sum_m0"].noise_std == pytest.approx(math.sqrt(2) / 0.75)
    assert tilted["sum_m1"].noise_std == pytest.approx(math.sqrt(2) / 0.25)


def test_counting_all_rows_is_free_beside_a_sum() -> None:
    """Three complementary sums: of x, of what x lacks, and of rows where x is NULL."""
    core = plan(aggregate("count", None), aggregate("sum", "m0"), aggregate("avg", "m0"), measures=(measure(high=1),))
    widths = at(core, amount=PICO).plans[0].predictions
    assert widths["count_all"].noise_std == pytest.approx(math.sqrt(6))
    assert widths["sum_m0"].noise_std == pytest.approx(math.sqrt(2))
    gaussian = at(core, kind="rho", amount=PICO // 2).plans[0].predictions
    assert gaussian["count_all"].noise_std == pytest.approx(math.sqrt(2 * (1 + (5 / 7) ** 2)))
    heavy = at(core, amount=PICO, weights={"count_all": Fraction(3)}).plans[0].predictions
    assert heavy["count_all"].noise_std == pytest.approx(math.sqrt(2) / 0.75)


def test_a_cap_on_a_units_sum_is_used_where_it_is_tighter() -> None:
    bounds = Bounds(20, 1, unit_sum={"m0": Fraction(50)})
    core = plan(aggregate("sum", "m0"), measures=(measure(),), bounds=bounds)
    assert at(core, amount=PICO).plans[0].predictions["sum_m0"].noise_std == pytest.approx(50 * math.sqrt(2))
    loose = plan(aggregate("sum", "m0"), measures=(measure(),), bounds=Bounds(20, 1, unit_sum={"m0": Fraction(5000)}))
    assert at(loose, amount=PICO).plans[0].predictions["sum_m0"].noise_std == pytest.approx(2000 * math.sqrt(2))


def test_two_cores_share_the_amount() -> None:
    one = plan(aggregate("count", None))
    both = at(question(one, one), amount=PICO + 1)
    assert both.cost.orders[-1] == PICO + 1
    assert [p.slices[0].amount for p in both.plans] == [PICO // 2 + 1, PICO // 2]


def test_units_without_groups_move_by_one() -> None:
    single = at(plan(aggregate("count_units", None), bounds=Bounds(9, 7)), amount=PICO)
    grouped = at(plan(aggregate("count_units", None), bounds=Bounds(9, 7), keys=by_key(3)), amount=PICO)
    assert single.plans[0].predictions["count_units_all"].noise_std == pytest.approx(math.sqrt(2))
    assert grouped.plans[0].predictions["count_units_all"].noise_std == pytest.approx(7 * math.sqrt(2))


# --- Undeclared keys -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["epsilon", "rho"])
def test_private_keys_take_a_share_and_their_delta(kind: str) -> None:
    core = plan(aggregate("count", None), keys=PRIVATE_KEY, bounds=Bounds(5, 5))
    priced = at(core, OPEN, kind=kind, delta=DELTA)
    assert 0 < priced.cost.delta <= DELTA
    assert isinstance(priced.plans[0].keys_need, KeysNeed)
    assert "people" in priced.notes[0]
    if kind == "epsilon":
        assert priced.cost.orders[-1] == PICO // 10
    else:
        assert list(priced.cost.orders[:-1]) == [math.ceil(order * PICO / 10) for order in OPEN.orders]


def test_counting_people_of_private_groups_is_free_beside_selecting_them() -> None:
    core = plan(aggregate("count_units", None), keys=PRIVATE_KEY, bounds=Bounds(5, 2))
    priced = at(core, OPEN, delta=DELTA, amount=PICO)
    assert priced.plans[0].value_needs() == ()
    assert priced.plans[0].predictions["count_units_all"].noise_std == pytest.approx(2 * math.sqrt(2))


# --- Bounds to be found ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["epsilon", "rho"])
def test_bounds_found_later_never_cost_more_than_was_charged(kind: str) -> None:
    core = plan(
        aggregate("avg", "m0"), aggregate("sum", "m1"), aggregate("max", "m0"),
        measures=(measure(low=-(10**6), high=10**6, auto=True), measure("m1", 0, 10**6)),
        bounds=Bounds(4, 1, unit_sum={"m1": None}),
    )  # fmt: skip
    priced = at(core, kind=kind)
    assert len(priced.plans[0].bounds_needs) == 2
    assert priced.plans[0].predictions["avg_m0"].noise_std is None
    for found in ((-5, 5), (0, 1), (3, 3), (-(10**6), 10**6)):
        given = priced.plans[0].given(ReleasedBounds({"m0": found}, {"m1": 17}))
        for part, drawn in given.drawn.items():
            assert_covered(given, part, drawn.event)
    if kind == "epsilon":
        assert priced.cost.orders[-1] == PICO // 10


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_run_time_check_catches_a_draw_that_costs_more(law: Law) -> None:
    core = priced(plan(aggregate("sum", "m0"), measures=(measure(),)), law)
    ((part, drawn),) = core.parts.items()
    assert_covered(core, part, drawn.event)
    for wrong in (
        replace(drawn, amount=drawn.amount * 2), PureEvent(Fraction(10**6)), replace(drawn, amount=Fraction(10**9)),
    ):  # fmt: skip
        event = wrong if isinstance(wrong, PureEvent) else wrong.event
        with pytest.raises(AssertionError):
            assert_covered(core, part, event)
    cheaper = replace(core, charges={part: replace(drawn, amount=drawn.amount / 2).event})
    with pytest.raises(AssertionError):
        assert_covered(cheaper, part, drawn.event)


@pytest.mark.parametrize("kind", ["epsilon", "rho"])
def test_members_of_a_family_may_be_of_any_kind(kind: str) -> None:
    measures = tuple(measure(f"m{i}", 0, 9, disjoint=("f", str(i))) for i in range(4))
    asked = ("max", "quantile", "avg", "sum")
    core = plan(
        *(aggregate(f, f"m{i}", p=Fraction(1, 2) if f == "quantile" else None) for i, f in enumerate(asked)),
        measures=measures,
    )  # fmt: skip
    paid = at(core, kind=kind)
    if kind == "epsilon":
        assert paid.cost.orders[-1] == PICO // 10
    else:
        assert list(paid.cost.orders[:-1]) == [math.ceil(order * PICO / 10) for order in TERMS.orders]


# --- Accuracy and share ----------------------------------------------------------------------------


def accurate(
    half_width: int | Fraction, output: str = "count_all", confidence: Fraction = Fraction(95, 100)
) -> dict[str, object]:
    return {"kind": "accuracy", "amount": 0, "accuracy": Accuracy(output, Fraction(half_width), confidence)}


@pytest.mark.parametrize("terms", [TERMS, PURE])
def test_an_accuracy_is_met_and_not_overpaid(terms: Terms) -> None:
    core = plan(aggregate("count", None), aggregate("sum", "m0"), measures=(measure(),), bounds=Bounds(2, 1))
    priced = at(core, terms, **accurate(200))
    width = priced.plans[0].predictions["count_all"].half_width_95
    assert width is not None
    assert 199.99 < width <= 200


def test_the_cheaper_noise_is_chosen() -> None:
    """Under delta 1e-6 Gaussian noise of the same width takes less of the budget; under delta 0 it has none."""
    core = plan(aggregate("count", None))
    assert at(core, TERMS, **accurate(300)).law is GAUSSIAN
    assert at(core, PURE, **accurate(300)).law is LAPLACE
    assert at(core, TERMS, **accurate(300)).share < at(core, TERMS, kind="epsilon", amount=PICO // 100).share * 2


def test_a_share_is_used_up_but_not_exceeded() -> None:
    for terms in (TERMS, PURE):
        priced = at(rich(), terms, kind="share", amount=PICO // 50)
        assert PICO // 50 * 0.999 < priced.share <= PICO // 50


def test_an_average_by_accuracy_needs_expected_rows() -> None:
    core = plan(aggregate("avg", "m0"), measures=(measure(),))
    with pytest.raises(LossOutOfRange, match="rows"):
        at(core, **accurate(1, "avg_m0"))
    known = plan(aggregate("avg", "m0"), measures=(measure(),), expected_rows=10_000)
    width = at(known, **accurate(1, "avg_m0")).plans[0].predictions["avg_m0"].half_width_95
    assert width == pytest.approx(1, rel=1e-3)


# --- Refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: at(plan(aggregate("count", None), keys=PRIVATE_KEY), OPEN), "delta"),
        (lambda: at(plan(aggregate("count", None), keys=PRIVATE_KEY), TERMS, delta=DELTA), "delta"),
        (lambda: at(plan(aggregate("count", None), bounds=Bounds(1, 1, clip="l2"))), "clip l2"),
        (lambda: at(plan(aggregate("count", None)), PURE, kind="rho"), "pure epsilon"),
        (lambda: at(rich(), amount=3), "too small"),
        (lambda: at(rich(), amount=0), "above zero"),
        (lambda: at(rich(), weights={"nope": Fraction(1)}), "not an output"),
        (lambda: at(rich(), weights={"sum_m0": Fraction(0)}), "above zero"),
        (lambda: at(rich(), kind="share", amount=2 * PICO), "at most 1"),
        (lambda: at(rich(), **accurate(1, "nope")), "not an output"),
        (lambda: at(rich(), **accurate(1, "quantile_m11/3")), "depends on the data"),
        (lambda: at(rich(), **accurate(0)), "above 0"),
        (lambda: at(plan(aggregate("sum", "m0"), measures=(measure(auto=True),)), **accurate(1, "sum_m0")), "bounds"),
    ],
)  # fmt: skip
def test_what_can_not_be_priced_is_refused_with_a_reason(ask: Callable[[], PricedQuery], words: str) -> None:
    with pytest.raises(LossOutOfRange, match=words):
        ask()


@pytest.mark.parametrize(
    ("core", "words"),
    [
        (plan(aggregate("count", None), bounds=Bounds(0, 1)), "rows_per_unit"),
        (plan(aggregate("count", None), bounds=Bounds(2**31 + 1, 1)), "rows_per_unit"),
        (plan(aggregate("count", None), bounds=Bounds(1, -1)), "groups_per_unit"),
        (plan(aggregate("sum", "m0"), measures=(measure(),), bounds=Bounds(1, 1, unit_sum={"m0": Fraction(0)})), "cap"),
        (plan(aggregate("sum", "m0"), measures=(measure(low=3, high=2),)), "lower bound"),
    ],
)  # fmt: skip
def test_bounds_that_bound_nothing_are_refused(core: Plan, words: str) -> None:
    for kind in ("epsilon", "rho"):
        with pytest.raises(BoundsMissing, match=words):
            at(core, kind=kind)


def test_clip_l2_is_priced_by_its_l2_bound_under_rho() -> None:
    core = plan(aggregate("count", None), bounds=Bounds(6, 1, clip="l2"), keys=by_key(3))
    priced = at(core, kind="rho", amount=PICO // 2)
    assert priced.plans[0].predictions["count_all"].noise_std == pytest.approx(6.0)


def test_a_simple_price_takes_milliseconds() -> None:
    core = plan(aggregate("count", None), aggregate("sum", "m0"), measures=(measure(),), keys=by_key(9))
    best = 1.0
    for amount in range(PICO // 10, PICO // 10 + 5):
        started = time.perf_counter()
        at(core, amount=amount)
        best = min(best, time.perf_counter() - started)
    assert best < 0.02
