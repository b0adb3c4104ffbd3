"""Selecting keys: the claims of every rule, by summation instead of by trial."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from service.core.amounts import ATTO, PICO
from service.core.boundary import Array
from service.core.errors import LossOutOfRange
from service.core.plan import ONE, Bounds
from service.privacy.accounting.costs import cost, open_terms
from service.privacy.mechanisms.selection import (
    Rule,
    TruncatedLaplace,
    choose_rule,
    decide,
    people_rule,
    rows_rule,
    shared_rule,
    truncated_rule,
    weighted_rule,
)
from service.privacy.noise import tails
from service.privacy.noise.laws import GAUSSIAN, LAPLACE, LAWS, Law
from service.privacy.noise.sampling import SecureNoise
from service.privacy.noise.scaled import Noise

unhurried = settings(deadline=None)  # a busy machine is no failure
DELTA = Fraction(1, 10**6)
TERMS = open_terms(PICO, ATTO // 10**6, keys_declared=False)


def bounds(k: int, min_units: int = 1, slots: Literal["pairs", "rows"] = "pairs") -> Bounds:
    return Bounds(rows_per_unit=k, groups_per_unit=k, min_units=min_units, slots=slots)


class Silent(SecureNoise):
    """No noise: what the rule does with the exact counts."""

    def discrete_laplace(self, scale: Fraction, size: int) -> Array:
        return np.zeros(size, dtype=np.int64)

    def discrete_gaussian(self, sigma_squared: Fraction, size: int) -> Array:
        return np.zeros(size, dtype=np.int64)

    def truncated_laplace(self, epsilon: Fraction, bound: int, size: int) -> Array:
        return np.zeros(size, dtype=np.int64)


# --- Truncated Laplace: (epsilon', q)-DP per group, count included ------------------------------------


def outcomes(n: int, epsilon: float, bound: int, threshold: int) -> dict[int | None, float]:
    """What is released of a group of n people: its noisy count, or None. No people: no group, no release."""
    if n == 0:
        return {None: 1.0}
    weights = {z: math.exp(-epsilon * abs(z)) for z in range(-bound, bound + 1)}
    whole = math.fsum(weights.values())
    seen: dict[int | None, float] = {}
    for z, weight in weights.items():
        shown = n + z if n + z >= threshold else None
        seen[shown] = seen.get(shown, 0.0) + weight / whole
    return seen


def excess(p: dict[int | None, float], q: dict[int | None, float], epsilon: float) -> float:
    """The delta that P needs against Q at this epsilon."""
    return math.fsum(max(0.0, chance - math.exp(epsilon) * q.get(shown, 0.0)) for shown, chance in p.items())


def worst_excess(epsilon: Fraction, bound: int, threshold: int) -> float:
    e = float(epsilon)
    tables = [outcomes(n, e, bound, threshold) for n in range(2 * bound + 4)]
    return max(max(excess(a, b, e), excess(b, a, e)) for a, b in pairwise(tables))


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(3)])
@pytest.mark.parametrize("q", [Fraction(1, 100), Fraction(1, 10**6)])
def test_truncated_laplace_keeps_its_claim_for_every_number_of_people(epsilon: Fraction, q: Fraction) -> None:
    bound = tails.truncated_bound(epsilon, q)
    assert worst_excess(epsilon, bound, bound + 1) <= float(q) * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(3)])
def test_the_sum_catches_a_threshold_one_lower_and_noise_one_narrower(epsilon: Fraction) -> None:
    q = Fraction(1, 10**6)
    bound = tails.truncated_bound(epsilon, q)
    assert worst_excess(epsilon, bound, bound) > float(q)
    assert worst_excess(epsilon, bound - 1, bound) > float(q)


# --- The others: a lone person's groups stay unnamed with probability 1 - delta ----------------------


def passes(rule: Rule, weight: int, lowered: int = 0) -> float:
    """The chance that a group with one person of this weight is named."""
    gap = rule.threshold - lowered - weight
    match rule.noise:
        case TruncatedLaplace(epsilon, bound):
            weights = np.exp(-float(epsilon) * np.abs(np.arange(-bound, bound + 1)))
            return float(weights[gap + bound :].sum() / weights.sum())
        case Noise(law, scale) if law is LAPLACE:
            return math.exp(-gap / scale) / (1 + math.exp(-1 / scale))
        case Noise(_, sigma_squared) if sigma_squared > 10**6:
            return float(norm.sf((gap - 0.5) / math.sqrt(sigma_squared)))
        case Noise(_, sigma_squared):
            reach = math.ceil(40 * math.sqrt(sigma_squared))
            weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * float(sigma_squared)))
            return float(weights[gap + reach :].sum() / weights.sum())


def leak(rule: Rule, groups: int, weight: int, lowered: int = 0) -> float:
    """The chance that any of a person's own groups is named."""
    return -math.expm1(groups * math.log1p(-passes(rule, weight, lowered)))


@pytest.mark.parametrize("k", [1, 5, 64])
def test_a_person_alone_in_all_slots_stays_unnamed(k: int) -> None:
    for rule in (
        truncated_rule(bounds(k), Fraction(1), DELTA),
        people_rule(bounds(k), LAPLACE, Fraction(1), DELTA),
        people_rule(bounds(k), GAUSSIAN, Fraction(1, 50), DELTA),
    ):
        assert leak(rule, k, 1) <= float(DELTA) * (1 + 1e-9)
        narrow = isinstance(rule.noise, Noise) and rule.noise.law is GAUSSIAN and k < 5
        assert leak(rule, k, 1, lowered=2 if narrow else rule.threshold // 10 + 1) > float(DELTA)


@pytest.mark.parametrize("k", [2, 64])
def test_without_slots_a_person_in_many_groups_would_be_named(k: int) -> None:
    """The twin that counts a person in every one of 100·k groups of their own."""
    for rule in (truncated_rule(bounds(k), Fraction(1), DELTA), people_rule(bounds(k), LAPLACE, Fraction(1), DELTA)):
        assert leak(rule, 100 * k, 1) > 10 * float(DELTA)


@pytest.mark.parametrize("amount", [Fraction(1, 1000), Fraction(1, 10), Fraction(1), Fraction(20)])
@pytest.mark.parametrize("delta", [Fraction(1, 10), Fraction(1, 10**3), Fraction(1, 10**9)])
def test_weighted_and_shared_thresholds_hold_however_many_slots_a_person_fills(
    amount: Fraction, delta: Fraction
) -> None:
    """The threshold is computed at the ends, j = 1 and j = k; it must cover all j between."""
    k = 64
    rule = weighted_rule(bounds(k), amount, delta)
    assert max(leak(rule, j, math.isqrt(ONE**2 // j)) for j in range(1, k + 1)) <= float(delta) * (1 + 1e-5)
    rule = shared_rule(bounds(k), amount, delta)
    assert max(leak(rule, j, ONE // j) for j in range(1, k + 1)) <= float(delta) * (1 + 1e-5)


def test_the_check_catches_thresholds_for_one_group_only() -> None:
    single, wide = (weighted_rule(bounds(k), Fraction(1, 1000), DELTA) for k in (1, 64))
    assert leak(wide, 64, ONE // 8, lowered=wide.threshold - single.threshold) > float(DELTA)
    single, wide = (shared_rule(bounds(k), Fraction(1, 10), DELTA) for k in (1, 64))
    assert leak(wide, 64, ONE // 64, lowered=wide.threshold - single.threshold) > float(DELTA)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_rows_as_slots_hold_however_the_rows_are_spread(law: Law) -> None:
    k = 8
    rule = rows_rule(bounds(k), law, Fraction(1, 2), DELTA)
    for parts in ([8], [4, 4], [7, 1], [1] * 8, [3, 3, 2]):
        stays = math.prod(1 - passes(rule, part * (ONE // k)) for part in parts)
        assert 1 - stays <= float(DELTA) * (1 + 1e-5)
    assert leak(rule, 1, ONE, lowered=rule.threshold // 2) > float(DELTA)


@pytest.mark.parametrize("j", range(1, 70))
def test_a_person_in_j_groups_moves_the_counts_by_at_most_what_is_charged(j: int) -> None:
    assert j * math.isqrt(ONE**2 // j) ** 2 <= weighted_rule(bounds(j), Fraction(1), DELTA).event.l2_squared  # type: ignore[union-attr]
    assert j * (ONE // j) <= shared_rule(bounds(j), Fraction(1), DELTA).event.each  # type: ignore[union-attr]


# --- Prices ------------------------------------------------------------------------------------------


@unhurried
@given(
    k=st.integers(1, 500),
    epsilon=st.integers(10**6, 10 * PICO),
    delta=st.integers(1, ATTO // 10**3),
    slots=st.sampled_from(["pairs", "rows"]),
    reuse=st.booleans(),
)
def test_a_rule_never_costs_more_than_was_offered(
    k: int, epsilon: int, delta: int, slots: Literal["pairs", "rows"], reuse: bool
) -> None:
    amount, offered = Fraction(epsilon, PICO), Fraction(delta, ATTO)
    pure = choose_rule(bounds(k, slots=slots), LAPLACE, amount, offered, reuse_count=reuse)
    price = cost(pure.event, TERMS)
    assert price.orders[-1] <= epsilon
    assert price.delta <= delta
    narrow = choose_rule(bounds(k, slots=slots), GAUSSIAN, amount, offered, reuse_count=reuse)
    price = cost(narrow.event, TERMS)
    assert all(paid <= math.ceil(order * epsilon) for paid, order in zip(price.orders, TERMS.orders, strict=False))
    assert price.delta <= delta
    assert not reuse or (pure.reuses_count and narrow.reuses_count)


def test_the_rule_with_the_lowest_threshold_is_taken() -> None:
    alone = choose_rule(bounds(1), LAPLACE, Fraction(1, 10), DELTA)
    assert isinstance(alone.noise, TruncatedLaplace)
    assert alone.people_needed < people_rule(bounds(1), LAPLACE, Fraction(1, 10), DELTA).people_needed
    many = choose_rule(bounds(64), GAUSSIAN, Fraction(1, 250), DELTA)
    assert many.counting == "weighted"
    plain = people_rule(bounds(64), GAUSSIAN, Fraction(1, 250), DELTA)
    assert 7.5 < plain.people_needed / many.people_needed < 8.5
    pure = choose_rule(bounds(5), LAPLACE, Fraction(1), DELTA)
    assert pure.counting == "shared"
    assert pure.people_needed < truncated_rule(bounds(5), Fraction(1), DELTA).people_needed / 4
    fast = choose_rule(bounds(64, slots="rows"), GAUSSIAN, Fraction(1, 250), DELTA)
    assert fast.counting == "rows"
    assert fast.need.rule == "rows"


def test_a_count_is_reused_only_when_it_counts_people() -> None:
    counted = choose_rule(bounds(64), GAUSSIAN, Fraction(1, 250), DELTA, reuse_count=True)
    assert counted.counting == "units"
    assert decide(np.array([5]), None, counted, Silent()).counts is not None
    weighted = choose_rule(bounds(64), GAUSSIAN, Fraction(1, 250), DELTA)
    assert decide(np.array([5 * ONE]), None, weighted, Silent()).counts is None


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 5)])
def test_private_keys_without_a_sensible_delta_are_refused(delta: Fraction) -> None:
    with pytest.raises(LossOutOfRange):
        choose_rule(bounds(5), LAPLACE, Fraction(1), delta)


# --- Deciding ----------------------------------------------------------------------------------------


def test_a_group_is_named_from_its_threshold_on() -> None:
    rule = truncated_rule(bounds(1), Fraction(1), DELTA)
    n = np.array([0, 1, rule.threshold - 1, rule.threshold, 10_000])
    decision = decide(n, None, rule, Silent())
    assert decision.named.tolist() == [False, False, False, True, True]
    assert decision.counts is not None
    assert decision.counts.tolist() == n.tolist()


def test_truncated_noise_never_names_a_group_without_people_and_always_a_large_one() -> None:
    rule = truncated_rule(bounds(1), Fraction(1, 2), Fraction(1, 10))
    assert not decide(np.zeros(50_000, dtype=np.int64), None, rule, SecureNoise()).named.any()
    large = np.full(50_000, 2 * rule.threshold, dtype=np.int64)
    assert decide(large, None, rule, SecureNoise()).named.all()


@pytest.mark.parametrize("minimum", [2, 10])
def test_the_minimum_of_people_is_hard_and_shifts_the_threshold(minimum: int) -> None:
    rule = truncated_rule(bounds(1, minimum), Fraction(1), Fraction(1, 10))
    first = rule.threshold + minimum - 1
    assert decide(np.array([first - 1, first]), None, rule, Silent()).named.tolist() == [False, True]
    assert rule.people_needed == first
    few = np.full(20_000, minimum - 1, dtype=np.int64)
    assert not decide(few, None, rule, SecureNoise()).named.any()


@pytest.mark.parametrize("build", [weighted_rule, shared_rule])
def test_the_minimum_of_people_holds_for_weighted_counts(build: Callable[..., Rule]) -> None:
    rule = build(bounds(4, min_units=5), Fraction(10), Fraction(1, 10))
    n = np.full(3, 100 * ONE)
    assert decide(n, np.array([4, 5, 100]), rule, Silent()).named.tolist() == [False, True, True]
    edge = rule.threshold + 4 * ONE
    assert decide(np.array([edge - 1, edge]), np.array([9, 9]), rule, Silent()).named.tolist() == [False, True]
    with pytest.raises(AssertionError):
        decide(n, None, rule, Silent())


def test_counts_beyond_64_bits_are_judged_too() -> None:
    rule = rows_rule(bounds(4), LAPLACE, Fraction(1, 10**12), DELTA)
    decision = decide(np.array([2**90, 0], dtype=object), None, rule, SecureNoise())
    assert decision.named.tolist() == [True, False]
    assert decision.named.dtype == bool


# --- Tails -------------------------------------------------------------------------------------------


@unhurried
@given(exponent=st.floats(0.31, 38))
def test_the_normal_point_is_proved_and_close(exponent: float) -> None:
    q = Fraction(10.0**-exponent)
    z = tails.normal_point(q)
    assert norm.sf(float(z)) <= float(q) * (1 + 1e-9)
    assert norm.sf(float(z) - 1e-6) > float(q)


@unhurried
@given(delta=st.integers(1, ATTO // 10), groups=st.integers(1, 10**6))
def test_parts_of_delta_put_together_are_delta_at_most(delta: int, groups: int) -> None:
    offered = Fraction(delta, ATTO)
    q = tails.each_of(offered, groups)
    assert float(q) == pytest.approx(-math.expm1(math.log1p(-float(offered)) / groups), rel=1e-9)
    if groups <= 50:
        assert 1 - (1 - q) ** groups <= offered


@pytest.mark.parametrize("sigma_squared", [Fraction(1, 4), Fraction(2), Fraction(500)])
@pytest.mark.parametrize("q", [Fraction(1, 10), Fraction(1, 10**4), Fraction(1, 10**9)])
def test_the_gaussian_reach_covers_the_discrete_tail(sigma_squared: Fraction, q: Fraction) -> None:
    reach = tails.gaussian_reach(sigma_squared, q)
    wide = math.ceil(60 * math.sqrt(sigma_squared)) + reach
    weights = np.exp(-(np.arange(-wide, wide + 1.0) ** 2) / (2 * float(sigma_squared)))
    assert weights[wide + reach :].sum() / weights.sum() <= float(q)
    assert weights[wide + reach - 3 :].sum() / weights.sum() > float(q)


@pytest.mark.parametrize("value", [Fraction(0), Fraction(1), Fraction(4), Fraction(17, 4), Fraction(10**40)])
def test_the_root_is_rounded_up(value: Fraction) -> None:
    root = tails.ceil_root(value)
    assert root**2 >= value
    assert root == 0 or (root - 1) ** 2 < value
