"""A part: integers of one shape, noised together with one amount of budget, described by its name.

The name says all that is needed to read the released values again years later: which moments they
are, between which codes, under which weights and under how much noise. So a stored release is a plain
mapping from names to arrays, and every aggregate can be derived from it without the price that made it.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Literal

from service.core.events import Event, GaussianEvent, LaplaceEvent, LaplaceUnitsEvent
from service.core.plan import (
    ONE,
    DistinctNeed,
    L2Weight,
    MomentsNeed,
    Need,
    RowsWeight,
    UnitsNeed,
    UnitSumWeight,
    Weight,
)
from service.privacy.mechanisms.counts import BesideRows, DistinctCount, RowCount
from service.privacy.mechanisms.moments import (
    CappedSum,
    CentredMean,
    CentredVariance,
    JointMean,
    JointVariance,
    PlainSum,
)
from service.privacy.mechanisms.vectors import Moments, Range, Shape

Law = Literal["laplace", "gaussian"]
Clip = Literal["rows", "l2", "cap", "pairs", "groups"]

SHAPES: dict[str, Shape] = {
    "count": RowCount(),
    "sum": PlainSum(),
    "capped": CappedSum(),
    "mean": JointMean(),
    "variance": JointVariance(),
    "centred-mean": CentredMean(),
    "centred-variance": CentredVariance(),
    "units": DistinctCount(),
    "distinct": DistinctCount(),
}

DEGREES = {"count": 0, "sum": 1, "capped": 1, "mean": 1, "variance": 2, "centred-mean": 1, "centred-variance": 2}

WITH_ROWS = "+rows"  # the same shape with COUNT(*) beside it
for _name in ("count", "mean", "variance", "centred-mean", "centred-variance"):
    SHAPES[_name + WITH_ROWS] = BesideRows(SHAPES[_name])
    DEGREES[_name + WITH_ROWS] = DEGREES[_name]

EVERY_ROW = "*"  # the source of COUNT(*)
EVERY_UNIT = "units"  # the source of COUNT(DISTINCT unit)


@dataclass(frozen=True)
class Part:
    """One vector of noised integers over all groups.

    `source` is a measure, an attribute, EVERY_ROW or EVERY_UNIT. `bound` is what `clip` limits: rows per
    unit, its L2 counterpart, the cap of a unit's sum in codes, pairs per unit, groups per unit. `amount`
    is the epsilon (Laplace) or rho (Gaussian) of this part alone.
    """

    shape: str
    source: str
    low: int
    high: int
    clip: Clip
    bound: int
    law: Law
    amount: Fraction

    @property
    def form(self) -> Shape:
        return SHAPES[self.shape]

    @property
    def at(self) -> Range:
        return Range(self.low, self.high)

    @property
    def one(self) -> int:
        """What counts as one row, unit or value in the coordinates."""
        return 1 if self.clip in ("pairs", "groups") else ONE

    @cached_property
    def scales(self) -> tuple[Fraction, ...]:
        """Per coordinate: the Laplace scale, or the Gaussian variance."""
        sizes = self.form.sizes(self.at)
        reach = self.one * self.bound
        assert self.amount > 0 and reach > 0 and min(sizes) > 0, "noise of scale zero is no noise"
        if self.law == "laplace":
            return tuple(size * reach * self.form.l1 / self.amount for size in sizes)
        squared = self.bound if self.clip == "groups" else reach * reach
        return tuple(size * size * squared * self.form.l2_squared / (2 * self.amount) for size in sizes)

    @cached_property
    def variances(self) -> tuple[float, ...]:
        """Of the noise per coordinate; of the continuous law, which the discrete one never exceeds."""
        if self.law == "laplace":
            return tuple(2.0 * float(scale) ** 2 for scale in self.scales)
        return tuple(float(scale) for scale in self.scales)

    @cached_property
    def moments(self) -> Moments:
        return self.form.moments(self.at)

    @property
    def event(self) -> Event:
        """What the noise really protects, from the scales that are drawn with."""
        first, size = self.scales[0], self.form.sizes(self.at)[0]
        reach = self.one * self.bound
        if self.law == "laplace" and self.clip == "groups":
            return LaplaceUnitsEvent(self.bound, first)
        if self.law == "laplace":
            return LaplaceEvent(Fraction(size * reach * self.form.l1), first)
        squared = self.bound if self.clip == "groups" else reach * reach
        return GaussianEvent(Fraction(size * size * squared * self.form.l2_squared), first)

    @property
    def weight(self) -> Weight:
        if self.clip == "l2":
            return L2Weight(self.bound)
        return UnitSumWeight(self.bound) if self.clip == "cap" else RowsWeight(self.bound)

    @property
    def needs(self) -> tuple[Need, ...]:
        if self.shape == "units":
            return (UnitsNeed(self.bound),)
        if self.shape == "distinct":
            return (DistinctNeed(self.source, self.bound),)
        measure = None if self.source == EVERY_ROW else self.source
        own = MomentsNeed(measure, DEGREES[self.shape], self.weight, self.low, self.high)
        return (own, MomentsNeed(None, 0, self.weight)) if self.shape.endswith(WITH_ROWS) else (own,)

    @property
    def name(self) -> str:
        fields = (self.shape, self.source, self.low, self.high, self.clip, self.bound, self.law, self.amount)
        return " ".join(str(field) for field in fields)


@lru_cache(maxsize=1024)
def read_part(name: str) -> Part:
    """The part that a name describes."""
    shape, source, low, high, clip, bound, law, amount = name.split(" ")
    assert shape in SHAPES and clip in ("rows", "l2", "cap", "pairs", "groups") and law in ("laplace", "gaussian")
    return Part(shape, source, int(low), int(high), clip, int(bound), law, Fraction(amount))  # type: ignore[arg-type]
