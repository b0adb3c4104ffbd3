"""Vectors of integers that were noised together: the Parts of which a release consists.

A part says all that is needed to read its released values again years later: which moments they are, between which
codes, under which weights and under how much noise. So a stored release is a plain mapping from parts (and chosen
values) to arrays, and every aggregate can be derived from it without the price that made it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Literal

from service.core.aggregates import ReleasedAs
from service.core.boundary import Primitive
from service.core.derivations import CodeRange
from service.core.events import Event
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
from service.privacy.mechanisms.vectors import Moments, Shape
from service.privacy.noise.laws import Law
from service.privacy.noise.sensitivity import Sensitivity

Clip = Literal["rows", "l2", "cap", "pairs", "groups"]


@dataclass(frozen=True, slots=True, eq=False)
class NoisedVector:
    """A shape with its place in this house: one of VECTORS, told apart by identity.

    `name` is in stored releases and never changes. `degree` is that of the highest moment. Receipts tell the noise of
    the first coordinate, whose unit is the measure's step to the power of `first`. `with_rows`: COUNT(*) is beside it.
    """

    name: str
    shape: Shape
    words: str
    degree: int = 0
    first: int = 0
    released_as: ReleasedAs = ReleasedAs.MOMENTS
    with_rows: bool = False

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Callable[[str], "NoisedVector"], tuple[str]]:
        """In another process too there is one of each."""
        return vector_named, (self.name,)


COUNT_OF_ROWS = NoisedVector("count", RowCount(), "weighted count of rows")
PLAIN_SUM = NoisedVector("sum", PlainSum(), "sum", degree=1, first=1)
CAPPED_SUM = NoisedVector("capped", CappedSum(), "sum with a cap per unit", degree=1, first=1)
JOINT_MEAN = NoisedVector(
    "mean", JointMean(), "two complementary sums (count, sum and mean from joint noise)", degree=1, first=1
)
JOINT_VARIANCE = NoisedVector(
    "variance", JointVariance(), "three complementary sums (count, sum, mean and variance from joint noise)",
    degree=2, first=2,
)  # fmt: skip
CENTRED_MEAN = NoisedVector("centred-mean", CentredMean(), "count and centred sum", degree=1)
CENTRED_VARIANCE = NoisedVector(
    "centred-variance", CentredVariance(), "count, centred sum and centred squares", degree=2
)
COUNT_OF_UNITS = NoisedVector("units", DistinctCount(), "distinct units", released_as=ReleasedAs.UNITS)
COUNT_OF_VALUES = NoisedVector("distinct", DistinctCount(), "distinct values", released_as=ReleasedAs.DISTINCT)

BESIDE_ROWS = {
    vector: replace(vector, name=f"{vector.name}+rows", shape=BesideRows(vector.shape), with_rows=True)
    for vector in (COUNT_OF_ROWS, JOINT_MEAN, JOINT_VARIANCE, CENTRED_MEAN, CENTRED_VARIANCE)
}
VECTORS = (
    COUNT_OF_ROWS, PLAIN_SUM, CAPPED_SUM, JOINT_MEAN, JOINT_VARIANCE, CENTRED_MEAN, CENTRED_VARIANCE, COUNT_OF_UNITS,
    COUNT_OF_VALUES, *BESIDE_ROWS.values(),
)  # fmt: skip


def vector_named(name: str) -> NoisedVector:
    return next(vector for vector in VECTORS if vector.name == name)


EVERY_ROW = "*"  # the source of COUNT(*)
EVERY_UNIT = "units"  # the source of COUNT(DISTINCT unit)


@lru_cache(maxsize=1024)
def moments_of(vector: NoisedVector, low: int, high: int) -> Moments:
    """How moments follow from the coordinates, for codes between two bounds: the same for every price."""
    return vector.shape.moments(CodeRange(low, high))


@dataclass(frozen=True)
class Part(Primitive):
    """One vector of noised integers over all groups.

    `source` is a measure, an attribute, EVERY_ROW or EVERY_UNIT. `bound` is what `clip` limits: rows per
    unit, its L2 counterpart, the cap of a unit's sum in codes, pairs per unit, groups per unit. `amount`
    is the epsilon (Laplace) or rho (Gaussian) of this part alone.
    """

    vector: NoisedVector
    source: str
    low: int
    high: int
    clip: Clip
    bound: int
    law: Law
    amount: Fraction

    @property
    def shape(self) -> Shape:
        return self.vector.shape

    @property
    def at(self) -> CodeRange:
        return CodeRange(self.low, self.high)

    @property
    def one(self) -> int:
        """What counts as one row, unit or value in the coordinates."""
        return 1 if self.clip in ("pairs", "groups") else ONE

    @cached_property
    def moved(self) -> Sensitivity:
        """By how much one unit moves the coordinates, each in units of its size."""
        if self.clip == "groups":
            return Sensitivity.of_units(self.bound)
        reach = self.one * self.bound
        return Sensitivity(Fraction(reach * self.shape.l1), Fraction(reach * reach * self.shape.l2_squared))

    @cached_property
    def scales(self) -> tuple[Fraction, ...]:
        """Of the noise on each coordinate."""
        sizes = self.shape.sizes(self.at)
        assert self.amount > 0 and self.one * self.bound > 0 and min(sizes) > 0, "noise of scale zero is no noise"
        scale = self.law.scale(self.moved, self.amount)
        by_size = {size: scale * size**self.law.power for size in set(sizes)}
        return tuple(by_size[size] for size in sizes)

    @cached_property
    def variances(self) -> tuple[float, ...]:
        """Of the noise on each coordinate."""
        return tuple(self.law.variance(scale) for scale in self.scales)

    @cached_property
    def moments(self) -> Moments:
        return moments_of(self.vector, self.low, self.high)

    @property
    def event(self) -> Event:
        """What the noise really protects, from the scales that are drawn with."""
        return self.law.event(self.moved.times(self.shape.sizes(self.at)[0]), self.scales[0])

    @property
    def weight(self) -> Weight:
        match self.clip:
            case "rows":
                return RowsWeight(self.bound)
            case "l2":
                return L2Weight(self.bound)
            case "cap":
                return UnitSumWeight(self.bound)
            case "pairs" | "groups":
                raise AssertionError("units and values are counted, rows are weighed")

    @property
    def needs(self) -> tuple[Need, ...]:
        if self.vector is COUNT_OF_UNITS:
            return (UnitsNeed(self.bound),)
        if self.vector is COUNT_OF_VALUES:
            return (DistinctNeed(self.source, self.bound),)
        measure = None if self.source == EVERY_ROW else self.source
        own = MomentsNeed(measure, self.vector.degree, self.weight, self.low, self.high)
        return (own, MomentsNeed(None, 0, self.weight)) if self.vector.with_rows else (own,)
