"""Values chosen from a public grid: quantiles, minimum, maximum, mode.

Like a Part, a Pick is described by its name, so that a stored release can be read again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from math import log

import numpy as np

from service.core.boundary import Array, ReleasedColumn
from service.core.events import Event
from service.core.plan import Aggregate, CandidatesNeed, HistogramNeed, Need, Plan, RowsWeight
from service.core.schema import DOUBLE, SqlType
from service.privacy.mechanisms.bracket import Bracket
from service.privacy.mechanisms.quantile import FromBottom, FromTop, ModeDraw, Quantile, RankDraw, extreme_rank
from service.privacy.mechanisms.tree import CountTree
from service.privacy.noise.intervals import NORMAL_95
from service.privacy.primitives.noised import Law

PICKS = ("quantile", "min", "max", "mode")
MEAN_OF_NORMAL = 0.798  # E|Z| of a standard normal variable
BINS_MAX = 4096
FIRST_DAY = date(1970, 1, 1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)


@dataclass(frozen=True, slots=True)
class Pick:
    """One value per group: a draw of the exponential mechanism, or read off a tree of noisy counts.

    Bin i covers the codes low + i·width … (of the measure), or candidate i of an attribute's domain.
    A unit's weights over all groups add up to ONE·`bound`, so the draws over all groups together cost
    epsilon once: the scores of all groups move by at most the sensitivity, in sum.
    """

    function: str
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
        if self.function == "mode":
            return ModeDraw(self.bound, self.epsilon)
        rank: Quantile | FromTop | FromBottom = Quantile(self.p)
        if self.function in ("min", "max"):
            reach = extreme_rank(self.bound, self.epsilon, self.bins)
            rank = FromTop(reach) if self.function == "max" else FromBottom(reach)
        return RankDraw(rank, self.bound, self.epsilon)

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
        if self.function == "mode":
            return (CandidatesNeed(self.source, weight),)
        return (HistogramNeed(self.source, self.low, self.width, self.bins, weight),)

    @property
    def name(self) -> str:
        grid_ = (self.low, self.width, self.bins, self.bound)
        fields = (self.function, self.source, self.p, *grid_, self.epsilon, self.law, self.around)
        return " ".join(str(field) for field in fields)

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
        return draw_error(self.function, self.p) * self.bound / float(self.epsilon)

    def serves(self, aggregate: Aggregate) -> bool:
        same = self.function == aggregate.function and self.source == aggregate.argument
        return same and (self.function != "quantile" or self.p == aggregate.p)


@lru_cache(maxsize=1024)
def read_pick(name: str) -> Pick:
    """The pick that a name describes."""
    function, source, p, low, width, bins, bound, epsilon, law, around = name.split(" ")
    assert function in PICKS and law in ("laplace", "gaussian")
    numbers = int(low), int(width), int(bins), int(bound)
    return Pick(function, source, Fraction(p), *numbers, Fraction(epsilon), law, Fraction(around))  # type: ignore[arg-type]


def draw_error(function: str, p: Fraction) -> float:
    """Mean rank error of a draw at epsilon 1 and one row per unit: the scale of its two-sided law."""
    if function == "quantile":
        return 2 * float(max(p, 1 - p))
    return 1.0 if function == "mode" else 2.0


@dataclass(frozen=True, slots=True)
class Tree:
    """Several quantiles of one measure, read off one tree of noisy counts."""

    picks: tuple[Pick, ...]

    @property
    def mechanism(self) -> CountTree:
        tree = self.picks[0].tree
        assert tree is not None
        return tree

    @property
    def event(self) -> Event:
        return self.mechanism.event

    @property
    def needs(self) -> tuple[Need, ...]:
        return self.picks[0].needs


def grid(low: int, high: int) -> tuple[int, int]:
    """Width and number of bins over the codes low…high: one code per bin where BINS_MAX allows."""
    width = -(-(high - low + 1) // BINS_MAX)
    return width, -(-(high - low + 1) // width)


def typed(codes: Array, step: Fraction, type_: SqlType) -> Array:
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


def pick_column(plan: Plan, aggregate: Aggregate, picks: "dict[Pick, Array]") -> tuple[ReleasedColumn, str]:
    """A chosen value, with the interval that the counts around it gave. A mode has none: it is a name."""
    pick = best(picks, aggregate)
    assert pick is not None, f"no released primitive gives {aggregate.label}"
    codes, low, high = picks[pick]
    unknown = np.full(codes.size, np.nan)
    if pick.function == "mode":
        attribute = next(a for a in plan.attributes if a.name == pick.source)
        assert attribute.domain is not None
        domain = np.empty(len(attribute.domain), dtype=object)
        domain[:] = attribute.domain
        note = f"{aggregate.label}: within {some_rows(pick)} of the most frequent value at 95%."
        return ReleasedColumn(domain[codes.astype(np.int64)], unknown, unknown), note
    measure = next(m for m in plan.measures if m.name == pick.source)
    ends = measure.low, measure.high  # the last bin may reach beyond
    values = typed(np.clip(codes, *ends), measure.step, aggregate.type)
    note = f"{aggregate.label}: its rank is within {some_rows(pick)} of the one asked for at 95%."
    if pick.function in ("min", "max"):
        beyond = "below" if pick.function == "min" else "above"
        note = f"{aggregate.label}: leaves about {some_rows(pick)} {beyond}, so that nobody decides it alone."
    if not pick.around:
        return ReleasedColumn(values, unknown, unknown), note
    first, last = (typed(np.clip(edge, *ends), measure.step, as_real(aggregate.type)) for edge in (low, high))
    return ReleasedColumn(values, first, last), note


def some_rows(pick: Pick) -> str:
    """By how many rows a rank may be off, to two figures: "9.4 rows", "1,600 rows"."""
    return f"{float(f'{pick.rank_error_95:.2g}'):,.10g} rows"


def as_real(type_: SqlType) -> SqlType:
    """The type of an interval's ends: float64, except for dates and timestamps."""
    return DOUBLE if type_.is_numeric else type_


def best(picks: Iterable[Pick], aggregate: Aggregate) -> Pick | None:
    able = [pick for pick in picks if pick.serves(aggregate)]
    return min(able, key=lambda pick: pick.typical_error, default=None)
