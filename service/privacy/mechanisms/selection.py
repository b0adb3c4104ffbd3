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
from service.core.events import Event, GaussianSelectionEvent, LaplaceSelectionEvent, SelectionEvent
from service.core.plan import ONE, Bounds, KeysNeed
from service.privacy.noise.sampling import NoiseSource
from service.privacy.noise.tails import each_of, gaussian_reach, laplace_reach, truncated_bound

LARGEST_DELTA = Fraction(1, 10)


@dataclass(frozen=True, slots=True)
class TruncatedLaplace:
    epsilon: Fraction
    bound: int


@dataclass(frozen=True, slots=True)
class Laplace:
    scale: Fraction


@dataclass(frozen=True, slots=True)
class Gaussian:
    sigma_squared: Fraction


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
    law: TruncatedLaplace | Laplace | Gaussian
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
    """`named` marks the groups to name; `counts` are their noisy numbers of people, where the rule has them.

    Only the entries of `counts` where `named` holds are released.
    """

    named: Array
    counts: Array | None


def decide(n: Array, units: Array | None, rule: Rule, noise: NoiseSource) -> Decision:
    """Judge every group that exists. `n` is the rule's count, `units` the people who kept the group
    (None: n counts them, or min_units is 1)."""
    match rule.law:
        case TruncatedLaplace(epsilon, bound):
            drawn = noise.truncated_laplace(epsilon, bound, n.size)
        case Laplace(scale):
            drawn = noise.discrete_laplace(scale, n.size)
        case Gaussian(sigma_squared):
            drawn = noise.discrete_gaussian(sigma_squared, n.size)
    people = n if rule.counting == "units" else units
    assert people is not None or rule.min_units == 1, "a minimum of people needs their number"
    noisy = n + drawn
    named = (noisy >= rule.threshold + (rule.min_units - 1) * rule.person).astype(bool)
    if people is not None:
        named &= (people >= rule.min_units).astype(bool)
    return Decision(named, noisy if rule.reuses_count else None)


def choose_rule(
    bounds: Bounds, kind: Literal["epsilon", "rho"], amount: Fraction, delta: Fraction, *, reuse_count: bool = False
) -> Rule:
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
        return rows_rule(bounds, kind, amount, delta)
    if kind == "epsilon":
        rules = [truncated_rule(bounds, amount, delta), laplace_rule(bounds, amount, delta)]
    else:
        rules = [gaussian_rule(bounds, amount, delta)]
    if bounds.groups_per_unit > 1 and not reuse_count:
        rules.append((shared_rule if kind == "epsilon" else weighted_rule)(bounds, amount, delta))
    return min(rules, key=lambda rule: rule.people_needed)


def truncated_rule(bounds: Bounds, epsilon: Fraction, delta: Fraction) -> Rule:
    """Each of k groups is (epsilon/k, q)-DP by noise that never exceeds K: n + Z > K needs n >= 1."""
    k = bounds.groups_per_unit
    each, q = epsilon / k, each_of(delta, k)
    bound = truncated_bound(each, q)
    law = TruncatedLaplace(each, bound)
    return Rule("units", law, bound + 1, SelectionEvent(k, each, q), k, bounds.min_units)


def laplace_rule(bounds: Bounds, epsilon: Fraction, delta: Fraction) -> Rule:
    """k counts that move by 1 each, noise of scale k/epsilon."""
    k = bounds.groups_per_unit
    scale = k / epsilon
    threshold = 1 + laplace_reach(scale, each_of(delta, k))
    event = LaplaceSelectionEvent(k, Fraction(1), scale, delta)
    return Rule("units", Laplace(scale), threshold, event, k, bounds.min_units)


def gaussian_rule(bounds: Bounds, rho: Fraction, delta: Fraction) -> Rule:
    """k counts that move by 1 each: L2² = k."""
    k = bounds.groups_per_unit
    sigma_squared = k / (2 * rho)
    threshold = 1 + gaussian_reach(sigma_squared, each_of(delta, k))
    event = GaussianSelectionEvent(Fraction(k), sigma_squared, delta)
    return Rule("units", Gaussian(sigma_squared), threshold, event, k, bounds.min_units)


def weighted_rule(bounds: Bounds, rho: Fraction, delta: Fraction) -> Rule:
    """A unit with j kept groups counts isqrt(ONE²//j) in each, and each may pass with q_j, 1-(1-q_j)^j = delta.

    The threshold is the largest over j of weight_j + reach(q_j). As j grows the weight falls and the reach
    rises; the derivative changes sign once, from falling to rising (docs/mechanisms.md, for delta <= 0.1),
    so the largest stands at j = 1 or j = k.
    """
    k = bounds.groups_per_unit
    law = Gaussian(ONE**2 / (2 * rho))
    threshold = max(isqrt(ONE**2 // j) + 1 + _reach(law, each_of(delta, j)) for j in (1, k))
    event = GaussianSelectionEvent(Fraction(ONE**2), law.sigma_squared, delta)
    return Rule("weighted", law, threshold, event, k, bounds.min_units)


def shared_rule(bounds: Bounds, epsilon: Fraction, delta: Fraction) -> Rule:
    """A unit with j kept groups counts ONE // j in each: L1 <= ONE, so the noise does not grow with k.

    The threshold is the largest over j, as for weighted_rule. People in one group need about a k-th of what
    counting everybody as 1 would need, people who fill all their slots about as many.
    """
    k = bounds.groups_per_unit
    law = Laplace(ONE / epsilon)
    threshold = max(ONE // j + 1 + _reach(law, each_of(delta, j)) for j in (1, k))
    event = LaplaceSelectionEvent(1, Fraction(ONE), law.scale, delta)
    return Rule("shared", law, threshold, event, k, bounds.min_units)


def rows_rule(bounds: Bounds, kind: Literal["epsilon", "rho"], amount: Fraction, delta: Fraction) -> Rule:
    """At most k rows of a unit, each counting ONE // (its kept rows): L1 <= ONE in at most k groups."""
    k = bounds.groups_per_unit
    law: Laplace | Gaussian
    event: Event
    if kind == "epsilon":
        law = Laplace(ONE / amount)
        event = LaplaceSelectionEvent(1, Fraction(ONE), law.scale, delta)
    else:
        law = Gaussian(ONE**2 / (2 * amount))
        event = GaussianSelectionEvent(Fraction(ONE**2), law.sigma_squared, delta)
    return Rule("rows", law, ONE + _reach(law, each_of(delta, k)), event, k, bounds.min_units)


def _reach(law: Laplace | Gaussian, q: Fraction) -> int:
    return laplace_reach(law.scale, q) if isinstance(law, Laplace) else gaussian_reach(law.sigma_squared, q)
