"""A question with a price: what will be drawn, what it costs, how wide the answers will be."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from service.core.aggregates import AggregateSpec, TakenOf
from service.core.amounts import CLOSED, PICO, Cost, Terms
from service.core.boundary import Array, KeyTable
from service.core.derivations import CodeRange
from service.core.events import Event
from service.core.plan import BoundsNeed, KeysNeed, Measure, Need, Plan, UnitTotalsNeed
from service.privacy.accounting.costs import cost
from service.privacy.mechanisms.approximate_bounds import ApproximateBounds, bins_needed
from service.privacy.mechanisms.bracket import Bracket
from service.privacy.mechanisms.quantile import FromTop, RankDraw, cap_rank, extreme_rank
from service.privacy.mechanisms.selection import Rule, choose_rule
from service.privacy.noise.laws import Law
from service.privacy.pricing.demands import Demand, Slice, cap_code, reuses_count
from service.privacy.primitives.chosen import ChosenValue, QuantileTree, grid
from service.privacy.primitives.noised import (
    BESIDE_ROWS,
    CAPPED_SUM,
    CENTRED_MEAN,
    CENTRED_VARIANCE,
    COUNT_OF_ROWS,
    COUNT_OF_UNITS,
    COUNT_OF_VALUES,
    EVERY_ROW,
    EVERY_UNIT,
    JOINT_MEAN,
    JOINT_VARIANCE,
    PLAIN_SUM,
    Clip,
    Part,
)

JOINT = (COUNT_OF_ROWS, JOINT_MEAN, JOINT_VARIANCE)  # by degree, for pure noise: complementary sums share it
TOTALS_BINS = 1024  # fewer bins than for quantiles: a cap need not be fine, and each doubling costs rank
CENTRED = (COUNT_OF_ROWS, CENTRED_MEAN, CENTRED_VARIANCE)  # for Gaussian noise: each coordinate has its own


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is known of an aggregate's noise before data is touched; None where it depends on the data."""

    noise_std: float | None = None
    half_width_95: float | None = None


@dataclass(frozen=True, slots=True)
class ReleasedBounds:
    """What stage 0 found: codes per measure, and caps of a unit's sum in codes. Public from then on."""

    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    caps: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


NOTHING_FOUND = ReleasedBounds()


def same_value(one: Demand, other: Demand) -> bool:
    """Are both about the same quantile of the same measure?"""
    return (one.source, one.function, one.p) == (other.source, other.function, other.p)


def chosen_by(part: Slice) -> AggregateSpec:
    """The aggregate that a draw or a tree is for."""
    assert part.demand.function is not None, "nothing is chosen here"
    return part.demand.function


@dataclass(frozen=True)
class PricedPlan:
    """One core with its amounts. Stage 0 finds bounds, stage 1 keys, stage 2 the values."""

    plan: Plan
    law: Law
    slices: tuple[Slice, ...]
    charges: Mapping[Slice, Event]
    predictions: Mapping[str, Prediction]
    terms: Terms
    delta: Fraction = Fraction(0)  # for selecting the keys
    found: ReleasedBounds = NOTHING_FOUND

    def given(self, found: ReleasedBounds) -> "PricedPlan":
        """The same price, with what stage 0 released."""
        return replace(self, found=found)

    def of(self, *kinds: str) -> tuple[Slice, ...]:
        return tuple(part for part in self.slices if part.demand.kind in kinds)

    @cached_property
    def bounds_stage(self) -> dict[Slice, ApproximateBounds | RankDraw]:
        """Draws of stage 0: one per measure whose bounds, or whose cap, must be found."""
        stage: dict[Slice, ApproximateBounds | RankDraw] = {}
        for part in self.of("bounds"):
            measure = self.measure(part.demand.source)
            bins = bins_needed(measure.low, measure.high)
            stage[part] = ApproximateBounds(1, bins, self.law, Fraction(part.amount, PICO))
        for part in self.of("totals"):
            stage[part] = RankDraw(
                FromTop(self._rank_of_cap(part)), 1, self.law.draw_epsilon(Fraction(part.amount, PICO))
            )
        return stage

    def _rank_of_cap(self, part: Slice) -> int:
        """Units that should exceed the cap: where bias and noise balance, but never so few that the draw
        could not tell them from the empty range above (its rank error is 2·ln(bins/0.05)/epsilon)."""
        total = next(other for other in self.of("capped") if other.demand.source == part.demand.source)
        balanced = cap_rank(self.law.noise_epsilon(Fraction(total.amount, PICO)))
        return max(balanced, extreme_rank(1, self.law.draw_epsilon(Fraction(part.amount, PICO)), TOTALS_BINS))

    @property
    def bounds_needs(self) -> tuple[Need, ...]:
        return tuple(self.bounds_need(part) for part in self.bounds_stage)

    def bounds_need(self, part: Slice) -> BoundsNeed | UnitTotalsNeed:
        measure = self.measure(part.demand.source)
        if part.demand.kind == "bounds":
            return BoundsNeed(measure.name, 1, bins_needed(measure.low, measure.high))
        assert part.demand.kind == "totals", part.demand.kind
        return UnitTotalsNeed(measure.name, max(1, -(-self.widest_cap(measure) // (TOTALS_BINS - 1))), TOTALS_BINS)

    def widest_cap(self, measure: Measure) -> int:
        """Beyond this a cap is weaker than what rows and range imply anyway."""
        return self.plan.bounds.rows_per_unit * max(1, abs(measure.low), abs(measure.high))

    @cached_property
    def keys_stage(self) -> tuple[Slice, Rule] | None:
        """Stage 1, where the keys are private: the rule that names groups of the fewest people."""
        selecting = self.of("keys")
        if not selecting:
            return None
        (part,) = selecting
        amount, reuse = Fraction(part.amount, PICO), reuses_count(self.plan)
        return part, choose_rule(self.plan.bounds, self.law, amount, self.delta, reuse_count=reuse)

    @property
    def keys_need(self) -> KeysNeed | None:
        return self.keys_stage[1].need if self.keys_stage else None

    @property
    def counted_units(self) -> Part | None:
        """The count of people that selection leaves behind, as a part: the noise has the same scale."""
        if not reuses_count(self.plan) or self.keys_stage is None:
            return None
        (part, rule), amount = self.keys_stage, Fraction(self.keys_stage[0].amount, PICO)
        assert rule.reuses_count and part.demand.kind == "keys"
        return Part(COUNT_OF_UNITS, EVERY_UNIT, 1, 1, "groups", rule.groups_per_unit, self.law, amount)

    def value_needs(self, found: ReleasedBounds | None = None) -> tuple[Need, ...]:
        """What stage 2 must compute; equal needs once."""
        here = self if found is None else self.given(found)
        return tuple(dict.fromkeys(need for item in here.drawn.values() for need in item.needs))

    @cached_property
    def parts(self) -> dict[Slice, Part]:
        """What will be noised, with the bounds that stage 0 released."""
        kinds = ("moments", "sum", "capped", "units", "distinct")
        return {part: self._part(part) for part in self.of(*kinds)}

    @cached_property
    def draws(self) -> dict[Slice, ChosenValue]:
        """What will be chosen by the exponential mechanism."""
        return {part: self._draw(part) for part in self.of("draw")}

    @cached_property
    def trees(self) -> dict[Slice, QuantileTree]:
        """Trees of noisy counts, each with the quantiles that are read off it."""
        return {
            part: QuantileTree(tuple(self._on_grid(part, p, Fraction(0), part.amount) for p in part.demand.ranks))
            for part in self.of("tree")
        }

    @property
    def chosen_values(self) -> list[ChosenValue]:
        """Every value that will be drawn or read off a tree."""
        return [*self.draws.values(), *(value for tree in self.trees.values() for value in tree.values)]

    @cached_property
    def brackets(self) -> dict[Slice, Bracket]:
        """The noisy counts around each quantile, minimum or maximum."""
        found = {}
        for part in self.of("bracket"):
            found[part] = next(value.bracket for s, value in self.draws.items() if same_value(s.demand, part.demand))
        return found

    @property
    def available(self) -> list[Part]:
        """Every part that aggregates may be derived from: what stage 2 noises and what selection counted."""
        return [*self.parts.values(), *filter(None, [self.counted_units])]

    @property
    def drawn(self) -> dict[Slice, Part | ChosenValue | QuantileTree]:
        return {**self.parts, **self.draws, **self.trees}

    def _range(self, source: str, found: ReleasedBounds) -> CodeRange:
        if source == EVERY_ROW:
            return CodeRange(1, 1)
        measure = self.measure(source)
        return CodeRange(*found.ranges.get(source, (measure.low, measure.high)))

    def measure(self, name: str) -> Measure:
        return next(measure for measure in self.plan.measures if measure.name == name)

    def _part(self, part: Slice) -> Part:
        demand, bounds = part.demand, self.plan.bounds
        amount = Fraction(part.amount, PICO)
        if demand.kind == "units":
            groups = bounds.groups_per_unit if self.plan.keys else 1
            return Part(COUNT_OF_UNITS, demand.source, 1, 1, "groups", groups, self.law, amount)
        if demand.kind == "distinct":
            return Part(COUNT_OF_VALUES, demand.source, 1, 1, "pairs", bounds.rows_per_unit, self.law, amount)
        measured = demand.kind != "capped"  # its weight is of the declared codes: clamping could raise Σ|x|
        at = self._range(demand.source, self.found if measured else NOTHING_FOUND)
        clip: Clip = "l2" if bounds.clip == "l2" else "rows"
        bound, vector = bounds.rows_per_unit, PLAIN_SUM
        if demand.kind == "capped":
            measure = self.measure(demand.source)
            cap = cap_code(self.plan, measure) or self.found.caps.get(measure.name, self.widest_cap(measure))
            clip, bound, vector = "cap", cap, CAPPED_SUM
        elif at.width == 0:
            vector = COUNT_OF_ROWS
        elif demand.kind == "moments":
            vector = (JOINT if self.law.pure else CENTRED)[demand.degree]
        else:
            assert demand.kind == "sum", demand.kind
        vector = BESIDE_ROWS[vector] if demand.rows else vector
        return Part(vector, demand.source, at.low, at.high, clip, bound, self.law, amount)

    def _draw(self, part: Slice) -> ChosenValue:
        demand, rows, spec = part.demand, self.plan.bounds.rows_per_unit, chosen_by(part)
        epsilon = self.law.draw_epsilon(Fraction(part.amount, PICO))
        if spec.taken_of is TakenOf.ATTRIBUTE:
            attribute = next(a for a in self.plan.attributes if a.name == demand.source)
            assert attribute.domain is not None, "candidates are declared"
            size = len(attribute.domain)
            return ChosenValue(spec, demand.source, Fraction(0), 0, 1, size, rows, epsilon, self.law, Fraction(0))
        around = next((other.amount for other in self.of("bracket") if same_value(other.demand, demand)), 0)
        return self._on_grid(part, demand.p, epsilon, around)

    def _on_grid(self, part: Slice, p: Fraction, epsilon: Fraction, around: int) -> ChosenValue:
        at, rows = self._range(part.demand.source, self.found), self.plan.bounds.rows_per_unit
        width, bins = grid(at.low, at.high)
        what = chosen_by(part), part.demand.source, p
        return ChosenValue(*what, at.low, width, bins, rows, epsilon, self.law, Fraction(around, PICO))


def assert_covered(priced: PricedPlan, part: Slice, drawn: Event) -> None:
    """Invariant M1: what is about to be drawn costs no more than its slice, nor than what was charged for it.

    `drawn` is read off the scales that the noise will have. Its cost must be finite (or CLOSED under Gaussian
    noise), within the slice's epsilon or rho, and at no order above the charge. This one check at run
    time catches most wiring mistakes: a scale of zero, a forgotten factor, a bound that changed between
    pricing and release.
    """
    terms, real = priced.terms, cost(drawn, priced.terms)
    if priced.law.pure:
        assert real.orders[-1] <= part.amount, "a draw would cost more epsilon than its slice"
    rho = CLOSED if priced.law.pure else part.amount
    for spent, order in zip(real.orders, terms.orders, strict=False):
        assert spent <= order * rho + 1, "a draw would cost more rho than its slice"
    paid = cost(priced.charges[part], terms)
    assert all(r <= p for r, p in zip(real.orders, paid.orders, strict=True)), "a draw would cost more than was charged"
    assert real.delta <= paid.delta, "a draw would use more delta than was charged"


@dataclass(frozen=True, slots=True)
class SelectedKeys:
    """Keys that may be named, in their own order, and the noisy people of each where the rule counts them."""

    keys: KeyTable
    counts: Array | None


@dataclass(frozen=True, slots=True)
class PricedQuery:
    """The price of a question: the same for the same request, declarations and terms."""

    plans: tuple[PricedPlan, ...]
    law: Law
    amount: int  # pico of what the law is paid in
    events: tuple[Event, ...]
    cost: Cost
    share: int
    mechanisms: tuple[str, ...]
    notes: tuple[str, ...]
    terms: Terms
