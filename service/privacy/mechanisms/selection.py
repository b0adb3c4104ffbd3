"""Selecting private group keys: which groups may be named at all.

Every rule counts people per group, adds noise and names the groups that pass a threshold. A group that
only one person is in does not exist without that person, so no noise hides it: it must stay unnamed with
probability at least 1 - delta. What is named beyond that is protected by the noise.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import Literal

from service.core.boundary import Array
from service.core.errors import LossOutOfRange
from service.core.events import Event, SelectionEvent
from service.core.plan import ONE, Bounds, KeysNeed
from service.privacy.noise.laws import GAUSSIAN, LAPLACE, Law
from service.privacy.noise.sampling import NoiseSource
from service.privacy.noise.scaled import Noise, noise_for
from service.privacy.noise.sensitivity import Sensitivity
from service.privacy.noise.tails import each_of, truncated_bound

LARGEST_DELTA = Fraction(1, 10)
SHARED = Sensitivity.within(ONE)  # of counts in which a unit weighs ONE in all


@dataclass(frozen=True, slots=True)
class TruncatedLaplace:
    """Noise on -bound … bound, P proportional to exp(-epsilon·|z|): what it never reaches, nobody needs to hide."""

    epsilon: Fraction
    bound: int

    @property
    def words(self) -> str:
        return "truncated Laplace"

    def draw(self, source: NoiseSource, size: int) -> Array:
        return source.truncated_laplace(self.epsilon, self.bound, size)


Counting = Literal["units", "weighted", "shared", "rows"]


@dataclass(frozen=True, slots=True)
class Rule:
    """Name a group when its count, less (min_units - 1) people, plus noise reaches `threshold`.

    Neighbours   all rows of one privacy unit are added or removed.
    Needs        k = groups_per_unit slots per unit, chosen among *all* its groups by a hash of the unit's own
                 value (or its first k rows by a stored random rank). Nobody's slots depend on others.
                 counting "units": each kept group counts the unit as 1. "weighted": as isqrt(ONE²//j) with j
                 kept groups. "shared": as ONE // j. "rows": each of r kept rows as ONE // r.
    Sensitivity  units: k counts move by 1. weighted: L2 <= ONE. shared, rows: L1 <= ONE, hence L2 <= ONE.
    Guarantee    Let x be the unit that is there or not, and call a group lonely when fewer than
                 min_units others kept it but x makes it min_units: without x it is never named. With x its
                 count less (min_units - 1) people is at most what x adds, because nobody adds more
                 than one person. The threshold makes it pass with probability at most q, and
                 1 - (1-q)^j <= delta over the j <= k groups that x kept. Given that none of them
                 passes (probability at least 1 - delta), what is named and counted is a function of
                 noisy counts of the other groups: Gaussian or Laplace noise at the sensitivity above.
                 Truncated Laplace: n + Z and n + 1 + Z have probabilities within e^±epsilon' wherever both are
                 possible; the one value that only one of them reaches has probability at most q. So
                 each group is (epsilon', q)-DP, count included, and so is its naming.
    Checked by   tests/unit/privacy/test_selection.py (by summation), tests/statistical/test_selection.py.
    """

    counting: Counting
    noise: TruncatedLaplace | Noise
    threshold: int
    event: Event
    groups_per_unit: int
    min_units: int

    @property
    def person(self) -> int:
        """What one person with a single group adds to the count."""
        return 1 if self.counting == "units" else ONE

    @property
    def need(self) -> KeysNeed:
        return KeysNeed(self.counting, self.groups_per_unit, self.min_units)

    @property
    def people_needed(self) -> float:
        """People, each in this one group, at which the group is as likely named as not."""
        return self.threshold / self.person + self.min_units - 1

    @property
    def reuses_count(self) -> bool:
        """Whether the noisy count of people may be shown: it is of people only when they count as 1."""
        return self.counting == "units"


@dataclass(frozen=True, slots=True)
class Decision:
    """What selection decided: `named` marks the groups to name; `counts` are their noisy numbers of people, where the
    rule has them.

    Only the entries of `counts` where `named` holds are released.
    """

    named: Array
    counts: Array | None


def decide(n: Array, units: Array | None, rule: Rule, source: NoiseSource) -> Decision:
    """Judge every group that exists. `n` is the rule's count, `units` the people who kept the group
    (None: n counts them, or min_units is 1)."""
    people = n if rule.counting == "units" else units
    assert people is not None or rule.min_units == 1, "a minimum of people needs their number"
    noisy = n + rule.noise.draw(source, n.size)
    named = (noisy >= rule.threshold + (rule.min_units - 1) * rule.person).astype(bool)
    if people is not None:
        named &= (people >= rule.min_units).astype(bool)
    return Decision(named, noisy if rule.reuses_count else None)


def choose_rule(bounds: Bounds, law: Law, amount: Fraction, delta: Fraction, *, reuse_count: bool = False) -> Rule:
    """The rule that names groups of the fewest people at this price.

    `amount` is the whole epsilon or rho of the selection; `delta` its delta. `reuse_count`: only rules whose
    noisy count of people can be shown. Reads the request alone.
    """
    if delta <= 0:
        raise LossOutOfRange(
            "private group keys need a delta",
            {"field": "delta", "remedy": "give a delta, or declare the keys: a domain, a public table, or key IN (…)"},
        )
    if delta > LARGEST_DELTA:
        raise LossOutOfRange(f"delta may be at most {float(LARGEST_DELTA)}", {"field": "delta"})
    assert amount > 0
    if bounds.slots == "rows" and not reuse_count:
        return rows_rule(bounds, law, amount, delta)
    rules = [truncated_rule(bounds, amount, delta)] if law.pure else []
    rules.append(people_rule(bounds, law, amount, delta))
    if bounds.groups_per_unit > 1 and not reuse_count:
        rules.append((shared_rule if law.pure else weighted_rule)(bounds, amount, delta))
    return min(rules, key=lambda rule: rule.people_needed)


def truncated_rule(bounds: Bounds, epsilon: Fraction, delta: Fraction) -> Rule:
    """Each of k groups is (epsilon/k, q)-DP by noise that never exceeds K: n + Z > K needs n >= 1."""
    k = bounds.groups_per_unit
    each, q = epsilon / k, each_of(delta, k)
    bound = truncated_bound(each, q)
    return Rule("units", TruncatedLaplace(each, bound), bound + 1, SelectionEvent(k, each, q), k, bounds.min_units)


def people_rule(bounds: Bounds, law: Law, amount: Fraction, delta: Fraction) -> Rule:
    """k counts that move by 1 each: L1 = L2² = k."""
    k = bounds.groups_per_unit
    moved = Sensitivity.of_units(k)
    noise = noise_for(law, moved, amount)
    threshold = 1 + noise.reach(each_of(delta, k))
    return Rule("units", noise, threshold, law.selection_event(moved, noise.scale, delta), k, bounds.min_units)


def weighted_rule(bounds: Bounds, rho: Fraction, delta: Fraction) -> Rule:
    """A unit with j kept groups counts isqrt(ONE²//j) in each, and each may pass with q_j, 1-(1-q_j)^j = delta.

    The threshold is the largest over j of weight_j + reach(q_j). As j grows the weight falls and the reach
    rises; the derivative changes sign once, from falling to rising (docs/mechanisms.md, for delta <= 0.1),
    so the largest stands at j = 1 or j = k.
    """
    k = bounds.groups_per_unit
    moved = Sensitivity(Fraction(ONE * k), Fraction(ONE**2))  # j·(ONE²/j) = ONE² in L2², whatever j
    noise = noise_for(GAUSSIAN, moved, rho)
    threshold = max(isqrt(ONE**2 // j) + 1 + noise.reach(each_of(delta, j)) for j in (1, k))
    event = GAUSSIAN.selection_event(moved, noise.scale, delta)
    return Rule("weighted", noise, threshold, event, k, bounds.min_units)


def shared_rule(bounds: Bounds, epsilon: Fraction, delta: Fraction) -> Rule:
    """A unit with j kept groups counts ONE // j in each: L1 <= ONE, so the noise does not grow with k.

    The threshold is the largest over j, as for weighted_rule. People in one group need about a k-th of what
    counting everybody as 1 would need, people who fill all their slots about as many.
    """
    k = bounds.groups_per_unit
    noise = noise_for(LAPLACE, SHARED, epsilon)
    threshold = max(ONE // j + 1 + noise.reach(each_of(delta, j)) for j in (1, k))
    event = LAPLACE.selection_event(SHARED, noise.scale, delta)
    return Rule("shared", noise, threshold, event, k, bounds.min_units)


def rows_rule(bounds: Bounds, law: Law, amount: Fraction, delta: Fraction) -> Rule:
    """At most k rows of a unit, each counting ONE // (its kept rows): L1 <= ONE in at most k groups."""
    k = bounds.groups_per_unit
    noise = noise_for(law, SHARED, amount)
    threshold = ONE + noise.reach(each_of(delta, k))
    return Rule("rows", noise, threshold, law.selection_event(SHARED, noise.scale, delta), k, bounds.min_units)
