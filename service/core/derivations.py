"""How aggregates follow from what is released: a combination of moments, a ratio, a variance, or a choice.

The moments of a measure are taken about an origin o: n = Σw, t1 = Σw(x - o) and t2 = Σw(x - o)², x an integer code
between two bounds. A combination of them is written as its coefficients of n, t1 and t2. Everything here is pure
arithmetic on released moments and on declared bounds; what the noise does to the results is known in
service/privacy/primitives/from_moments.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

import numpy as np

from service.core.boundary import Floats

Coefficients = tuple[Fraction, Fraction, Fraction]

NONE, ONCE = Fraction(0), Fraction(1)
N: Coefficients = (ONCE, NONE, NONE)  # the moments by themselves
T1: Coefficients = (NONE, ONCE, NONE)
T2: Coefficients = (NONE, NONE, ONCE)


def sum_of_codes(origin: Fraction) -> Coefficients:
    """Σw·x = t1 + o·n."""
    return origin, ONCE, NONE


@dataclass(frozen=True, slots=True)
class CodeRange:
    """Codes of a measure after clamping: low <= x <= high."""

    low: int
    high: int

    @property
    def width(self) -> int:
        return self.high - self.low

    @property
    def middle(self) -> int:
        return (self.low + self.high) // 2

    @property
    def radius(self) -> int:
        return max(self.high - self.middle, self.middle - self.low)

    @property
    def magnitude(self) -> int:
        return max(abs(self.low), abs(self.high))


@dataclass(frozen=True, slots=True)
class Typical:
    """A group to predict with: how its value moves with n, t1 and t2, times its rows; and the value before any root."""

    slopes: tuple[float, float, float]
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """A combination of moments by itself, as COUNT and SUM: its noise is the same in every group."""

    degree: int  # of the highest moment that is read
    combination: Callable[[Fraction], Coefficients]  # by the origin

    @property
    def power(self) -> int:
        """Of the measure's step in the value's unit."""
        return self.degree

    def reads(self, origin: Fraction) -> tuple[Coefficients, ...]:
        """What must be known of a measure, the count first; of two releases the one with less noise here is better."""
        return (self.combination(origin),)


@dataclass(frozen=True, slots=True, eq=False)
class Ratio:
    """A combination of moments divided by the count, as AVG: its noise depends on how many rows there are.

    `numerator` leaves out what is known without noise, `offset`: their sum is what is meant, (Σw·x)/n = o + t1/n.
    """

    degree: int
    power: int
    numerator: Callable[[Fraction], Coefficients]
    offset: Callable[[Fraction], Fraction]
    within: Callable[[CodeRange], tuple[int, int]]  # where the value lies whatever the rows, in codes
    usual: Callable[[CodeRange], float]  # the ratio without its offset, of a group to predict with
    root: bool = False  # the square root of the ratio is meant

    def reads(self, origin: Fraction) -> tuple[Coefficients, ...]:
        n, t1, t2 = self.numerator(origin)
        return N, (n + self.offset(origin), t1, t2)

    def combinations(self, origin: Fraction) -> tuple[Coefficients, ...]:
        return N, self.numerator(origin)

    def value(self, moments: tuple[Floats, ...], origin: Fraction, at: CodeRange) -> Floats:
        """In codes and inside its bounds; a count below one row divides as one row."""
        n, top = moments
        return self.finished(float(self.offset(origin)) + top / np.maximum(n, 1.0), at)

    def finished(self, ratio: Floats, at: CodeRange) -> Floats:
        """The value of a ratio with its offset, inside its bounds."""
        low, high = self.within(at)
        if not self.root:
            return np.clip(ratio, float(low), float(high))
        return np.clip(np.sqrt(np.clip(ratio, float(low * low), float(high * high))), float(low), float(high))

    def reach(self, at: CodeRange) -> int:
        """How far the ratio without its offset can be from zero."""
        low, high = self.within(at)
        return high * high - low * low if self.root else high - low

    def typical(self, origin: Fraction, at: CodeRange) -> Typical:
        n, t1, t2 = (float(part) for part in self.numerator(origin))
        usual = self.usual(at)
        return Typical((n - usual, t1, t2), float(self.offset(origin)) + usual)


@dataclass(frozen=True, slots=True, eq=False)
class Variance:
    """VAR and STDDEV: t2/n - (t1/n)², of all rows or as a sample's estimate (times n/(n-1)), or its square root."""

    samples: bool
    root: bool

    @property
    def degree(self) -> int:
        return 2

    @property
    def power(self) -> int:
        return 1 if self.root else 2

    def reads(self, origin: Fraction) -> tuple[Coefficients, ...]:
        return N, sum_of_codes(origin), T2

    def combinations(self, origin: Fraction) -> tuple[Coefficients, ...]:
        return N, T1, T2

    def value(self, moments: tuple[Floats, ...], origin: Fraction, at: CodeRange) -> Floats:
        squared = self.squared(moments, at)
        return np.sqrt(squared) if self.root else squared

    def squared(self, moments: tuple[Floats, ...], at: CodeRange) -> Floats:
        """The variance itself in codes², inside [0, (width/2)²] before a sample's factor."""
        n, t1, t2 = moments
        count = np.maximum(n, 1.0)
        mean = t1 / count
        result: Floats = np.clip(t2 / count - mean * mean, 0.0, (at.width / 2) ** 2) * self.factor(n)
        return result

    def factor(self, n: Floats) -> Floats:
        """n/(n-1) for a sample."""
        count = np.maximum(n, 1.0)
        result: Floats = count / np.maximum(1.0, count - 1) if self.samples else np.ones_like(count)
        return result

    def slopes(self, moments: tuple[Floats, ...]) -> Floats:
        """d variance / d (n, t1, t2), without a sample's factor: (3, groups)."""
        n, t1, t2 = moments
        count = np.maximum(n, 1.0)
        mean, square = t1 / count, t2 / count
        return np.stack([(2 * mean * mean - square) / count, -2 * mean / count, 1 / count])

    def typical(self, origin: Fraction, at: CodeRange) -> Typical:
        """Values spread evenly: the variance moves by (t2 - v·n)/rows about the centre."""
        even = evenly(at)
        return Typical((-even, 0.0, 1.0), even)


def evenly(at: CodeRange) -> float:
    """The variance of values that are spread evenly, in codes²."""
    half = at.width / 2
    return half * half / 3


class Rank(Enum):
    """Which value a choice is after."""

    ASKED = "the value of the rank that was asked for"
    LOWEST = "the lowest"
    HIGHEST = "the highest"
    MOST_FREQUENT = "the most frequent of declared candidates"


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One value chosen from a public grid or among public candidates, as MEDIAN, MIN, MAX and MODE.

    `around` is the part of its budget that pays for noisy counts around it: they give its interval.
    """

    rank: Rank
    around: Fraction

    @property
    def degree(self) -> int:
        return 0

    def error(self, p: Fraction) -> float:
        """Mean rank error of a draw at epsilon 1 and one row per unit: the scale of its two-sided law."""
        if self.rank is Rank.ASKED:
            return 2 * float(max(p, 1 - p))
        return 1.0 if self.rank is Rank.MOST_FREQUENT else 2.0


FromMoments = Linear | Ratio | Variance
Derivation = FromMoments | Choice
