"""How often a lone person's groups are named: the real draws, against delta. False alarms: 1e-6 per test."""

from fractions import Fraction
from math import isqrt
from typing import Literal

import numpy as np
import pytest
from scipy.stats import binomtest

from service.core.plan import ONE, Bounds
from service.privacy.mechanisms.selection import (
    Rule,
    decide,
    people_rule,
    rows_rule,
    shared_rule,
    truncated_rule,
    weighted_rule,
)
from service.privacy.noise.laws import GAUSSIAN, LAPLACE
from service.privacy.noise.sampling import SecureNoise
from tests.statistical.laws import FALSE_ALARM

RUNS = 30_000
DELTA = Fraction(1, 20)
K = 4
BOUNDS = Bounds(rows_per_unit=K, groups_per_unit=K)

RULES = {
    "truncated": truncated_rule(BOUNDS, Fraction(8), DELTA),
    "laplace": people_rule(BOUNDS, LAPLACE, Fraction(8), DELTA),
    "gaussian": people_rule(BOUNDS, GAUSSIAN, Fraction(1, 50), DELTA),
    "shared laplace": shared_rule(BOUNDS, Fraction(1), DELTA),
    "weighted gaussian": weighted_rule(BOUNDS, Fraction(1, 50), DELTA),
    "rows laplace": rows_rule(BOUNDS, LAPLACE, Fraction(1), DELTA),
    "rows gaussian": rows_rule(BOUNDS, GAUSSIAN, Fraction(1, 50), DELTA),
}


def times_named(rule: Rule, groups: int, *, lowered: float = 0.0) -> int:
    """In how many runs any of a lone person's `groups` own groups is named."""
    weights = {"units": 1, "weighted": isqrt(ONE**2 // groups), "shared": ONE // groups, "rows": ONE // groups}
    shift = int(lowered * rule.person)
    n = np.full(RUNS * groups, weights[rule.counting] + shift, dtype=np.int64)
    return int(decide(n, None, rule, SecureNoise()).named.reshape(RUNS, groups).any(axis=1).sum())


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("groups", [1, K])
def test_a_lone_person_is_named_no_more_often_than_delta(name: str, groups: int) -> None:
    seen = times_named(RULES[name], groups)
    assert binomtest(seen, RUNS, float(DELTA), alternative="greater").pvalue > FALSE_ALARM


@pytest.mark.parametrize("name", RULES)
def test_the_check_catches_a_threshold_that_is_too_low(name: str) -> None:
    """One person lower where noise is narrow; more where it is wide, or where the worst case (a whole person
    in each of k groups) is one that rows can not reach."""
    rule = RULES[name]
    lowered = {"truncated": 1.0, "rows laplace": 4.0, "rows gaussian": 6.0}.get(name, 3.0)
    seen = times_named(rule, 1 if rule.counting == "rows" else K, lowered=lowered)
    assert binomtest(seen, RUNS, float(DELTA), alternative="greater").pvalue < FALSE_ALARM


@pytest.mark.parametrize("name", ["truncated", "laplace", "gaussian"])
def test_the_check_catches_a_person_without_slots(name: str) -> None:
    """In ten times as many groups as there are slots."""
    seen = times_named(RULES[name], 10 * K)
    assert binomtest(seen, RUNS, float(DELTA), alternative="greater").pvalue < FALSE_ALARM


@pytest.mark.parametrize("kind", ["truncated", "gaussian"])
def test_a_group_at_the_threshold_is_named_about_half_the_time(kind: Literal["truncated", "gaussian"]) -> None:
    rule = RULES[kind]
    n = np.full(RUNS, round(rule.people_needed), dtype=np.int64)
    named = int(decide(n, None, rule, SecureNoise()).named.sum())
    assert 0.45 < named / RUNS < 0.9
