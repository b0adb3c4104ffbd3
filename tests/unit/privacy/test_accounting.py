"""Costs and limits against exact sums, dp-accounting, opendp and the figures that the design promises."""

import math
from decimal import Decimal
from fractions import Fraction

import opendp.prelude as dp
import pytest
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.amounts import ATTO, CLOSED, PICO, Cost, Terms, parse_delta, parse_epsilon
from service.core.events import (
    Event,
    ExponentialEvent,
    GaussianEvent,
    GaussianSelectionEvent,
    LaplaceEvent,
    LaplaceSelectionEvent,
    LaplaceUnitsEvent,
    PureEvent,
    SelectionEvent,
)
from service.privacy.accounting.costs import (
    cost,
    limits,
    open_terms,
    selection_limit,
    share,
    total_cost,
)
from service.privacy.accounting.renyi import laplace_curve, response_renyi

unhurried = settings(deadline=None)  # a busy machine is no failure
dp.enable_features("contrib")

ONE_BILLIONTH = Fraction(1, 10**9)
orders = st.fractions(Fraction(3, 2), Fraction(400), max_denominator=100)


def terms_of(epsilon: str, delta: str, *, keys_declared: bool = False) -> Terms:
    return open_terms(parse_epsilon(epsilon), parse_delta(delta), keys_declared=keys_declared)


def ceiling(terms: Terms) -> tuple[int, ...]:
    return limits(terms, terms.epsilon_ceiling, terms.delta_ceiling)


def accepted(event: Event, terms: Terms, spent: Cost | None = None) -> int:
    """How many equal queries the account takes: some order must hold after each."""
    each, allowed = cost(event, terms), ceiling(terms)
    start = spent.orders if spent else (0,) * len(allowed)
    return max((limit - used) // part for limit, used, part in zip(allowed, start, each.orders, strict=True))


def laplace_renyi(l1: Fraction, scale: Fraction, order: Fraction) -> Decimal:
    (found,) = laplace_curve(l1, scale, (order,))
    return found


def summed_laplace_renyi(moved: int, scale: float, order: float) -> float:
    """The Rényi divergence of discrete Laplace noise, term by term."""
    reach = math.ceil(45 * scale) + abs(moved)
    t = math.exp(-1 / scale)
    logs = [-(order * abs(k) + (1 - order) * abs(k - moved)) / scale for k in range(-reach, moved + reach + 1)]
    top = max(logs)
    return (top + math.log(math.fsum(math.exp(log - top) for log in logs) * (1 - t) / (1 + t))) / (order - 1)


# --- The figures of the design ---------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "expected"), [("1", 900), ("3", 6917)])
def test_as_many_gaussian_counts_fit_as_the_design_promises(epsilon: str, expected: int) -> None:
    """Counting queries with noise of standard deviation sqrt(2)·100 under (epsilon, 1e-6)."""
    count = accepted(GaussianEvent(Fraction(1), Fraction(20_000)), terms_of(epsilon, "1e-6"))
    assert abs(count - expected) <= 1


def test_ten_pure_queries_of_a_tenth_fit_and_the_eleventh_does_not() -> None:
    terms = terms_of("1", "1e-6")
    each, allowed = cost(PureEvent(Fraction(1, 10)), terms), ceiling(terms)
    spent = Cost((0,) * len(allowed))
    fits = []
    for _ in range(11):
        spent = spent + each
        fits.append(any(used <= limit for used, limit in zip(spent.orders, allowed, strict=True)))
    assert fits == [True] * 10 + [False]


def test_pure_charges_still_fit_after_a_gaussian_one() -> None:
    """The highest finite order keeps about 0.97 of epsilon for pure queries once infinity is closed."""
    terms = terms_of("1", "1e-6")
    spent = cost(GaussianEvent(Fraction(1), Fraction(10**8)), terms)
    assert spent.orders[-1] == CLOSED
    assert accepted(PureEvent(Fraction(97, 100)), terms, spent) == 1
    assert accepted(PureEvent(Fraction(98, 100)), terms, spent) == 0
    assert accepted(PureEvent(Fraction(1, 1000)), terms, spent) > 40_000, "small ones even compose"


def test_without_delta_only_pure_epsilon_counts() -> None:
    terms = open_terms(PICO, 0, keys_declared=True)
    assert terms.orders == ()
    assert ceiling(terms) == (PICO,)
    assert cost(PureEvent(Fraction(1, 10)), terms).orders == (PICO // 10,)
    assert cost(GaussianEvent(Fraction(1), Fraction(10**9)), terms).orders == (CLOSED,)
    assert share(cost(PureEvent(Fraction(1, 10)), terms), terms) == PICO // 10
    assert share(cost(GaussianEvent(Fraction(1), Fraction(10**9)), terms), terms) == CLOSED


# --- Limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", ["0.001", "0.1", "1", "3", "10", "100", "1000000"])
@pytest.mark.parametrize("delta", ["1e-18", "1e-9", "1e-6", "0.01"])
@pytest.mark.parametrize("keys_declared", [True, False])
def test_terms_split_delta_and_never_more_than_it(epsilon: str, delta: str, keys_declared: bool) -> None:
    terms = terms_of(epsilon, delta, keys_declared=keys_declared)
    assert sum(terms.weights) == (1 if terms.orders else 0)
    assert list(terms.orders) == sorted(set(terms.orders))
    assert all(order >= Fraction(3, 2) for order in terms.orders)
    assert terms.delta_selection + terms.delta_conversion == terms.delta_ceiling
    assert (terms.delta_selection == 0) is (keys_declared or delta == "1e-18")
    assert selection_limit(terms, terms.delta_ceiling) == terms.delta_selection


def test_a_limit_converts_back_to_the_epsilon_it_came_from() -> None:
    """dp-accounting turns the limit at each order, with that order's part of delta, into epsilon again."""
    terms = terms_of("1", "1e-6")
    for order, weight, limit in zip(terms.orders, terms.weights, ceiling(terms), strict=False):
        if limit > 0:
            delta = float(weight * terms.delta_conversion / ATTO)
            epsilon, _ = rdp_privacy_accountant.compute_epsilon([float(order)], [limit / PICO], delta)
            assert 1 - 1e-9 < epsilon < 1 + 1e-11


@unhurried
@given(part=st.integers(1, 1000), delta_part=st.integers(0, 1000))
def test_a_smaller_grant_never_allows_more(part: int, delta_part: int) -> None:
    terms = terms_of("2", "1e-6")
    less = limits(terms, terms.epsilon_ceiling * part // 1000, terms.delta_ceiling * delta_part // 1000)
    assert all(small <= large for small, large in zip(less, ceiling(terms), strict=True))
    assert selection_limit(terms, terms.delta_ceiling * delta_part // 1000) <= terms.delta_selection + 1


def test_the_main_order_is_the_best_one_nearby() -> None:
    terms = terms_of("1", "1e-6")
    best = terms.orders[terms.reference]
    count = accepted(GaussianEvent(Fraction(1), Fraction(20_000)), terms)
    for factor in (Fraction(9, 10), Fraction(11, 10)):
        moved = Terms(
            (best * factor,), (Fraction(4, 5),), terms.epsilon_ceiling, terms.delta_ceiling, terms.delta_selection, 0
        )
        assert accepted(GaussianEvent(Fraction(1), Fraction(20_000)), moved) < count


# --- Curves ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("moved", [1, 2, 7, 40])
@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(5, 2), Fraction(60)])
@pytest.mark.parametrize("order", [Fraction(3, 2), Fraction(5), Fraction(2367, 100)])
def test_the_laplace_curve_is_the_sum_over_the_integers(moved: int, scale: Fraction, order: Fraction) -> None:
    claimed = float(laplace_renyi(Fraction(moved), scale, order))
    assert claimed == pytest.approx(summed_laplace_renyi(moved, float(scale), float(order)), rel=1e-9, abs=1e-12)


def test_the_continuous_formula_would_undercharge_by_up_to_a_sixth() -> None:
    """The twin: textbook Laplace, priced for real numbers, on integers."""

    def continuous(epsilon: float, a: float) -> float:
        mean = a / (2 * a - 1) * math.exp((a - 1) * epsilon) + (a - 1) / (2 * a - 1) * math.exp(-a * epsilon)
        return math.log(mean) / (a - 1)

    ratios = [
        continuous(1 / b, a) / float(laplace_renyi(Fraction(1), Fraction(b), Fraction(a)))
        for b in (0.5, 1.0, 2.0)
        for a in (1.5, 2.0, 4.0)
    ]
    assert all(ratio < 1 for ratio in ratios)
    assert min(ratios) < 0.87


@unhurried
@given(
    first=st.integers(1, 60),
    second=st.integers(1, 60),
    scale=st.fractions(Fraction(1, 2), Fraction(200), max_denominator=9),
    order=orders,
)
def test_one_coordinate_that_moves_by_all_of_l1_is_the_worst_case(
    first: int, second: int, scale: Fraction, order: Fraction
) -> None:
    parts = laplace_renyi(Fraction(first), scale, order) + laplace_renyi(Fraction(second), scale, order)
    assert parts <= laplace_renyi(Fraction(first + second), scale, order) + Decimal("3e-25")


@unhurried
@given(
    scale=st.fractions(Fraction(1, 100), Fraction(10**6), max_denominator=1000),
    moved=st.integers(1, 10**6),
    order=orders,
)
def test_no_order_costs_more_than_pure_epsilon_or_less_than_a_lower_one(
    scale: Fraction, moved: int, order: Fraction
) -> None:
    curve = laplace_renyi(Fraction(moved), scale, order)
    assert 0 < curve <= Decimal(moved) * scale.denominator / scale.numerator * (1 + Decimal("1e-20")) + Decimal("1e-20")
    assert curve <= laplace_renyi(Fraction(moved), scale, order + 1) * (1 + Decimal("1e-20")) + Decimal("1e-20")


@pytest.mark.parametrize("rows", [1, 20, 2**31])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(123_456_789_012, PICO), Fraction(1, 10**6)])
def test_huge_scales_converge_to_the_continuous_curve(rows: int, epsilon: Fraction) -> None:
    """l1 = 2^20·B with scale l1/epsilon: 1 - t^2a alone loses up to 25 digits, the result none that matter."""
    l1 = Fraction(2**20 * rows)
    a, e = 23.67, float(epsilon)
    x = a / (2 * a - 1) * math.expm1((a - 1) * e) + (a - 1) / (2 * a - 1) * math.expm1(-a * e)
    claimed = float(laplace_renyi(l1, l1 / epsilon, Fraction("23.67")))
    assert claimed == pytest.approx(math.log1p(x) / (a - 1), rel=2e-5 if rows == 1 else 1e-6)
    assert claimed >= math.log1p(x) / (a - 1) * (1 - 1e-9)


@unhurried
@given(epsilon=st.fractions(ONE_BILLIONTH, Fraction(30), max_denominator=10**9), order=orders)
def test_randomised_response_costs_what_its_two_outcomes_say(epsilon: Fraction, order: Fraction) -> None:
    e, a = float(epsilon), float(order)
    summed = (
        math.log(math.exp(a * e - max(a, 1) * e) + math.exp((1 - a) * e - max(a, 1) * e))
        - math.log1p(math.exp(e))
        + max(a, 1) * e
    ) / (a - 1)
    assert float(response_renyi(epsilon, order)) == pytest.approx(summed, rel=1e-6, abs=1e-12)


@unhurried
@given(
    scores=st.lists(st.tuples(st.floats(-5, 5), st.floats(-1, 1)), min_size=2, max_size=6),
    epsilon=st.sampled_from([0.1, 1.0, 4.0]),
    a=st.sampled_from([1.5, 2.0, 11.835, 94.68]),
)
def test_no_exponential_draw_diverges_more_than_it_is_charged(
    scores: list[tuple[float, float]], epsilon: float, a: float
) -> None:
    """Scores that move by at most 1, drawn with exp(epsilon·score/2)."""

    def law(values: list[float]) -> list[float]:
        logs = [epsilon * value / 2 for value in values]
        whole = math.log(math.fsum(map(math.exp, logs)))
        return [log - whole for log in logs]

    p, q = law([s for s, _ in scores]), law([s + move for s, move in scores])
    diverged = math.log(math.fsum(math.exp(a * x + (1 - a) * y) for x, y in zip(p, q, strict=True))) / (a - 1)
    assert diverged <= min(epsilon, a * epsilon**2 / 8) + 1e-12


def test_a_lone_count_of_one_costs_exactly_what_randomised_response_costs() -> None:
    """Moving by 1, discrete Laplace loses exactly ±1/scale: it is randomised response."""
    for order in (Fraction(3, 2), Fraction(11)):
        ours = laplace_renyi(Fraction(1), Fraction(4), order)
        assert abs(ours - response_renyi(Fraction(1, 4), order)) < Decimal("1e-20")


# --- Events ----------------------------------------------------------------------------------------


def test_events_cost_what_the_table_says() -> None:
    terms = terms_of("1", "1e-6")
    a = terms.orders[1]
    gaussian = cost(GaussianEvent(Fraction(8), Fraction(1000)), terms)
    assert gaussian.orders[1] == math.ceil(a * 8 / 2000 * PICO)
    assert gaussian.orders[-1] == CLOSED
    weak = cost(ExponentialEvent(Fraction(1, 100)), terms)
    assert weak.orders[1] == math.ceil(a / 10_000 / 8 * PICO)
    assert cost(ExponentialEvent(Fraction(5)), terms).orders == (5 * PICO,) * 6
    units = cost(LaplaceUnitsEvent(5, Fraction(50)), terms)
    assert units.orders[-1] == PICO // 10
    assert units.orders[1] == math.ceil(5 * laplace_renyi(Fraction(1), Fraction(50), a) * PICO)
    assert units.orders[1] < cost(LaplaceEvent(Fraction(5), Fraction(50)), terms).orders[1]
    assert all(units.orders[i] <= cost(PureEvent(Fraction(1, 10)), terms).orders[i] for i in range(6))


def test_selection_costs_its_delta_and_its_noise() -> None:
    terms = terms_of("1", "1e-6")
    chosen = cost(SelectionEvent(4, Fraction(1, 40), ONE_BILLIONTH), terms)
    assert chosen.orders[-1] == PICO // 10
    assert chosen.delta == math.ceil((1 - (1 - ONE_BILLIONTH) ** 4) * ATTO)
    gaussian = GaussianSelectionEvent(Fraction(4), Fraction(100), ONE_BILLIONTH)
    assert cost(gaussian, terms).orders == cost(GaussianEvent(Fraction(4), Fraction(100)), terms).orders
    assert cost(gaussian, terms).delta == ATTO // 10**9
    laplace = LaplaceSelectionEvent(4, Fraction(1), Fraction(40), ONE_BILLIONTH)
    assert cost(laplace, terms).orders == cost(LaplaceUnitsEvent(4, Fraction(40)), terms).orders
    assert cost(laplace, terms).delta == ATTO // 10**9


def test_costs_add_up_and_closed_stays_closed() -> None:
    terms = terms_of("1", "1e-6")
    events = [PureEvent(Fraction(1, 10)), GaussianEvent(Fraction(1), Fraction(100)), PureEvent(Fraction(1, 10))]
    together = total_cost(events, terms)
    assert together.orders[0] == sum(cost(event, terms).orders[0] for event in events)
    assert together.orders[-1] == CLOSED
    assert total_cost([], terms).orders == (0,) * 6


def test_no_noise_at_all_has_no_price() -> None:
    terms = terms_of("1", "1e-6")
    for event in (LaplaceEvent(Fraction(0), Fraction(5)), PureEvent(Fraction(0))):
        with pytest.raises(AssertionError):
            cost(event, terms)


# --- Oracles ---------------------------------------------------------------------------------------


def test_opendp_charges_no_less_than_we_do_at_infinity_and_the_same_rho() -> None:
    terms = terms_of("1", "1e-6")
    l1_space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    l2_space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    for scale in (10, 137):
        pure = dp.m.make_laplace(*l1_space, scale=float(scale)).map(7)
        assert cost(LaplaceEvent(Fraction(7), Fraction(scale)), terms).orders[-1] / PICO == pytest.approx(
            pure, rel=1e-9
        )
        rho = dp.m.make_gaussian(*l2_space, scale=float(scale)).map(3.0)
        ours = cost(GaussianEvent(Fraction(9), Fraction(scale**2)), terms).orders[1] / PICO / float(terms.orders[1])
        assert ours == pytest.approx(rho, rel=1e-6)


def test_dp_accounting_converts_a_full_account_to_what_was_granted() -> None:
    """Each order alone, with its own part of delta: what fills its limit is the granted epsilon, and no more."""
    terms = terms_of("1", "1e-6")
    for order, weight, limit in zip(terms.orders, terms.weights, ceiling(terms), strict=False):
        delta = float(weight) * terms.delta_conversion / ATTO
        if limit > 0:
            found, _ = rdp_privacy_accountant.compute_epsilon([float(order)], [limit / PICO], delta)
            assert found == pytest.approx(1, rel=1e-9)


def test_a_share_is_a_part_of_the_main_orders_limit() -> None:
    terms = terms_of("1", "1e-6")
    event = GaussianEvent(Fraction(1), Fraction(20_000))
    assert PICO / 901 < share(cost(event, terms), terms) < PICO / 899
