"""Values chosen from a public grid: quantiles, minimum, maximum, mode.

Like a Part, a ChosenValue says all that is needed to read it again from a stored release.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from math import log

import numpy as np

from service.core.aggregates import AggregateSpec, TakenOf
from service.core.boundary import Array, Primitive, ReleasedColumn
from service.core.derivations import Rank
from service.core.events import Event
from service.core.plan import Aggregate, CandidatesNeed, HistogramNeed, Need, Plan, RowsWeight
from service.core.schema import DOUBLE, SqlType
from service.privacy.mechanisms.bracket import Bracket
from service.privacy.mechanisms.quantile import FromBottom, FromTop, ModeDraw, Quantile, RankDraw, extreme_rank
from service.privacy.mechanisms.tree import CountTree
from service.privacy.noise.intervals import NORMAL_95
from service.privacy.noise.laws import Law

MEAN_OF_NORMAL = 0.798  # E|Z| of a standard normal variable
BINS_MAX = 4096
FIRST_DAY = date(1970, 1, 1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)


@dataclass(frozen=True, slots=True)
class ChosenValue(Primitive):
    """One value per group, chosen from a public grid: a draw of the exponential mechanism, or read off a tree of
    noisy counts.

    Bin i covers the codes low + i·width … (of the measure), or candidate i of an attribute's domain.
    A unit's weights over all groups add up to ONE·`bound`, so the draws over all groups together cost
    epsilon once: the scores of all groups move by at most the sensitivity, in sum.
    """

    spec: AggregateSpec
    source: str
    p: Fraction
    low: int
    width: int
    bins: int
    bound: int
    epsilon: Fraction  # of the draw; 0: read off a tree
    law: Law
    around: Fraction  # the epsilon or rho of the noisy counts (around the draw, or in the tree); 0: no interval

    @property
    def event(self) -> Event:
        return self.draw.event

    @property
    def draw(self) -> RankDraw | ModeDraw:
        """The mechanism that chooses a bin in every group."""
        match self.spec.choice.rank:
            case Rank.MOST_FREQUENT:
                return ModeDraw(self.bound, self.epsilon)
            case Rank.ASKED:
                return RankDraw(Quantile(self.p), self.bound, self.epsilon)
            case Rank.HIGHEST:
                return RankDraw(FromTop(self._given_up), self.bound, self.epsilon)
            case Rank.LOWEST:
                return RankDraw(FromBottom(self._given_up), self.bound, self.epsilon)

    @property
    def _given_up(self) -> int:
        """The weight that an extreme leaves beyond itself."""
        return extreme_rank(self.bound, self.epsilon, self.bins)

    def codes(self, bins: Array) -> Array:
        """The middle code of each chosen bin; for a mode, the candidate's number."""
        return self.low + bins.astype(np.int64) * self.width + (self.width - 1) // 2

    @property
    def bracket(self) -> Bracket:
        return Bracket(self.bound, self.bins, self.law, self.around)

    @property
    def tree(self) -> CountTree | None:
        """The tree that the value was read off, if it was."""
        return None if self.epsilon else CountTree(self.bound, self.bins, self.law, self.around)

    def edges(self, low: Array, high: Array) -> tuple[Array, Array]:
        """First code of the first bin, last code of the last."""
        return self.low + low * self.width, self.low + (high + 1) * self.width - 1

    @property
    def needs(self) -> tuple[Need, ...]:
        weight = RowsWeight(self.bound)
        if self.spec.taken_of is TakenOf.ATTRIBUTE:
            return (CandidatesNeed(self.source, weight),)
        return (HistogramNeed(self.source, self.low, self.width, self.bins, weight),)

    @property
    def rank_error_95(self) -> float:
        """Rows by which the rank may be off: the exponential mechanism's score falls short of the best by
        more than (2Δ/epsilon)·ln(bins/0.05) with probability at most 5% (weights in units of ONE)."""
        if self.tree is not None:
            return NORMAL_95 * self.tree.rank_std
        return self.typical_error * log(self.bins / 0.05)

    @property
    def typical_error(self) -> float:
        """Rows by which the rank is off on average, where rows are dense."""
        if self.tree is not None:
            return MEAN_OF_NORMAL * self.tree.rank_std
        return self.spec.choice.error(self.p) * self.bound / float(self.epsilon)

    def serves(self, aggregate: Aggregate) -> bool:
        same = self.spec is aggregate.function and self.source == aggregate.argument
        return same and (self.spec.choice.rank is not Rank.ASKED or self.p == aggregate.p)


@dataclass(frozen=True, slots=True)
class QuantileTree:
    """Several quantiles of one measure, read off one tree of noisy counts."""

    values: tuple[ChosenValue, ...]

    @property
    def mechanism(self) -> CountTree:
        tree = self.values[0].tree
        assert tree is not None
        return tree

    @property
    def event(self) -> Event:
        return self.mechanism.event

    @property
    def needs(self) -> tuple[Need, ...]:
        return self.values[0].needs


def grid(low: int, high: int) -> tuple[int, int]:
    """Width and number of bins over the codes low…high: one code per bin where BINS_MAX allows."""
    width = -(-(high - low + 1) // BINS_MAX)
    return width, -(-(high - low + 1) // width)


def as_values(codes: Array, step: Fraction, type_: SqlType) -> Array:
    """Codes as values of the aggregate's type."""
    if type_.name in ("DOUBLE", "DECIMAL"):
        real = codes.astype(np.float64) * float(step.numerator) / float(step.denominator)
        return np.round(real, type_.scale or 0) if type_.name == "DECIMAL" else real
    values = codes if step == 1 else np.array([round(code * step) for code in codes.tolist()], dtype=np.int64)
    if type_.name == "DATE":
        return np.array([FIRST_DAY + timedelta(days=day) for day in values.tolist()], dtype=object)
    if type_.name == "TIMESTAMP":
        return np.array([EPOCH + timedelta(microseconds=tick) for tick in values.tolist()], dtype=object)
    return values


def chosen_column(
    plan: Plan, aggregate: Aggregate, released: Mapping[ChosenValue, Array]
) -> tuple[ReleasedColumn, str]:
    """A chosen value, with the interval that the counts around it gave, and how far off its rank may be."""
    chosen = best_chosen(released, aggregate)
    assert chosen is not None, f"no released primitive gives {aggregate.label}"
    codes, low, high = released[chosen]
    note = f"{aggregate.label}: {rank_words(chosen)}."
    unknown = np.full(codes.size, np.nan)
    if chosen.spec.taken_of is TakenOf.ATTRIBUTE:
        return ReleasedColumn(candidates(plan, chosen.source)[codes.astype(np.int64)], unknown, unknown), note
    measure = next(m for m in plan.measures if m.name == chosen.source)
    ends = measure.low, measure.high  # the last bin may reach beyond
    values = as_values(np.clip(codes, *ends), measure.step, aggregate.type)
    if not chosen.around:
        return ReleasedColumn(values, unknown, unknown), note
    real = DOUBLE if aggregate.type.is_numeric else aggregate.type
    first, last = (as_values(np.clip(edge, *ends), measure.step, real) for edge in (low, high))
    return ReleasedColumn(values, first, last), note


def candidates(plan: Plan, source: str) -> Array:
    """The declared values of an attribute, in order."""
    attribute = next(a for a in plan.attributes if a.name == source)
    assert attribute.domain is not None
    domain = np.empty(len(attribute.domain), dtype=object)
    domain[:] = attribute.domain
    return domain


def rank_words(chosen: ChosenValue) -> str:
    """By how many rows a rank may be off, to two figures: "9.4 rows", "1,600 rows"."""
    rows = f"{float(f'{chosen.rank_error_95:.2g}'):,.10g} rows"
    match chosen.spec.choice.rank:
        case Rank.MOST_FREQUENT:
            return f"within {rows} of the most frequent value at 95%"
        case Rank.ASKED:
            return f"its rank is within {rows} of the one asked for at 95%"
        case Rank.LOWEST:
            return f"leaves about {rows} below, so that nobody decides it alone"
        case Rank.HIGHEST:
            return f"leaves about {rows} above, so that nobody decides it alone"


def best_chosen(released: Iterable[ChosenValue], aggregate: Aggregate) -> ChosenValue | None:
    """Of the values that are what the aggregate asks for, the one that is off by least."""
    able = [value for value in released if value.serves(aggregate)]
    return min(able, key=lambda value: value.typical_error, default=None)
