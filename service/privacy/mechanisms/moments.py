"""Sums, means and variances from a few integers that are noised together.

All of them read the same exact columns: n = Σw, s1 = Σw·x and s2 = Σw·x² over the non-NULL rows of a
group, with x an integer code in [low, high] and weights that add up to at most W over a unit's rows.
A unit moves the released vector by Σ over its rows of w·(what one row adds), so the norm of what one row
of weight 1 can add, times W, bounds the whole vector over all groups, in L1 as in L2.
"""

from dataclasses import dataclass
from fractions import Fraction

from service.core.boundary import Array
from service.core.derivations import NONE, ONCE, CodeRange
from service.privacy.mechanisms.vectors import Moments, Sizes, Sums
from service.privacy.noise.exact_integers import combine

HALF, QUARTER = Fraction(1, 2), Fraction(1, 4)


@dataclass(frozen=True, slots=True)
class PlainSum:
    """Σw·x alone.

    Neighbours   all rows of one unit are added or removed.
    Needs        codes in [low, high]; weights as above.
    Sensitivity  L1 <= W·max(|low|, |high|), L2 likewise.
    Guarantee    Laplace of scale L1/epsilon, or Gaussian of variance L2²/(2·rho).
    Checked by   tests/property/test_release_sensitivity.py, tests/statistical/test_moments.py.
    """

    coordinates: int = 1
    l1: int = 1
    l2_squared: int = 1

    def sizes(self, at: CodeRange) -> Sizes:
        return (at.magnitude,)

    def exact(self, sums: Sums, at: CodeRange) -> list[Array]:
        return [sums.s1]

    def moments(self, at: CodeRange) -> Moments:
        return Moments(NONE, None, (ONCE,), None)


@dataclass(frozen=True, slots=True)
class CappedSum:
    """Σw·x with the weight (ONE·cap) // max(Σ|x|, cap), Σ|x| over all rows of the unit.

    Neighbours   all rows of one unit are added or removed.
    Needs        UnitSumWeight, whose weight is of this one measure and shared with nothing else.
    Sensitivity  Σ over the unit's rows of w·|x| <= ONE·cap, hence L1 and L2 <= ONE·cap over all groups.
    Guarantee    Laplace of scale ONE·cap/epsilon, or Gaussian of variance (ONE·cap)²/(2·rho).
    Checked by   tests/property/test_release_sensitivity.py, tests/statistical/test_moments.py.
    """

    coordinates: int = 1
    l1: int = 1
    l2_squared: int = 1

    def sizes(self, at: CodeRange) -> Sizes:
        return (1,)

    def exact(self, sums: Sums, at: CodeRange) -> list[Array]:
        return [sums.s1]

    def moments(self, at: CodeRange) -> Moments:
        return Moments(NONE, None, (ONCE,), None)


@dataclass(frozen=True, slots=True)
class JointMean:
    """n and Σw·x from complementary sums: up = Σw(x - low), down = Σw(high - x).

    Neighbours   all rows of one unit are added or removed.
    Needs        codes in [low, high], low < high; weights as above.
    Sensitivity  both differences are >= 0 and add up to M = high - low, so a row of weight w moves the
                 pair by exactly w·M in L1, a unit by L1 <= W·M. Nothing is lost to sharing.
    Guarantee    Laplace of scale W·M/epsilon on each: epsilon-DP for both together.
    Derived      n = (up + down)/M and, about the centre c = (low + high)/2, Σw(x - c) = (up - down)/2.
    Checked by   tests/property/test_release_sensitivity.py, tests/statistical/test_moments.py.
    """

    coordinates: int = 2
    l1: int = 1
    l2_squared: int = 1

    def sizes(self, at: CodeRange) -> Sizes:
        return (at.width, at.width)

    def exact(self, sums: Sums, at: CodeRange) -> list[Array]:
        return [combine((1, sums.s1), (-at.low, sums.n)), combine((at.high, sums.n), (-1, sums.s1))]

    def moments(self, at: CodeRange) -> Moments:
        share = Fraction(1, at.width)
        return Moments(Fraction(at.low + at.high, 2), (share, share), (HALF, -HALF), None)


@dataclass(frozen=True, slots=True)
class JointVariance:
    """n, Σw·x and Σw·x² from three sums that complement each other.

    With y = x - low in [0, M]: top = Σw·y², mixed = Σw·2y(M - y), bottom = Σw·(M - y)².

    Neighbours   all rows of one unit are added or removed.
    Needs        codes in [low, high], low < high; weights as above.
    Sensitivity  the three are >= 0 and add up to (y + M - y)² = M² per unit of weight: L1 <= W·M².
    Guarantee    Laplace of scale W·M²/epsilon on each: epsilon-DP for all three together.
    Derived      n = (bottom + mixed + top)/M²; about the centre, Σw(x - c) = (top - bottom)/(2M) and
                 Σw(x - c)² = (bottom - mixed + top)/4.
    Checked by   tests/property/test_release_sensitivity.py, tests/statistical/test_moments.py.
    """

    coordinates: int = 3
    l1: int = 1
    l2_squared: int = 1

    def sizes(self, at: CodeRange) -> Sizes:
        return (at.width**2,) * 3

    def exact(self, sums: Sums, at: CodeRange) -> list[Array]:
        low, high, n, s1, s2 = at.low, at.high, sums.n, sums.s1, sums.s2
        bottom = combine((high * high, n), (-2 * high, s1), (1, s2))
        mixed = combine((-2 * low * high, n), (2 * (low + high), s1), (-2, s2))
        top = combine((low * low, n), (-2 * low, s1), (1, s2))
        return [bottom, mixed, top]

    def moments(self, at: CodeRange) -> Moments:
        share, slope = Fraction(1, at.width**2), Fraction(1, 2 * at.width)
        return Moments(
            Fraction(at.low + at.high, 2),
            (share, share, share),
            (-slope, NONE, slope),
            (QUARTER, -QUARTER, QUARTER),
        )


@dataclass(frozen=True, slots=True)
class CentredMean:
    """n and Σw(x - mid), each with noise of its own, for Gaussian noise.

    Neighbours   all rows of one unit are added or removed.
    Needs        codes in [low, high]; weights as above, clip l1 or l2.
    Sensitivity  with R = max(high - mid, mid - low) and u = (x - mid)/R, a row of weight w moves (n, Σ/R) by
                 w·(1, u), |u| <= 1: L2² <= 2w², a unit by L2² <= 2W².
    Guarantee    Gaussian of variance 2W²/(2·rho) on n, R² times that on the sum: cost a·rho.
    Checked by   tests/property/test_release_sensitivity.py, tests/statistical/test_moments.py.
    """

    coordinates: int = 2
    l1: int = 2
    l2_squared: int = 2

    def sizes(self, at: CodeRange) -> Sizes:
        return (1, at.radius)

    def exact(self, sums: Sums, at: CodeRange) -> list[Array]:
        return [sums.n, combine((1, sums.s1), (-at.middle, sums.n))]

    def moments(self, at: CodeRange) -> Moments:
        return Moments(Fraction(at.middle), (ONCE, NONE), (NONE, ONCE), None)


@dataclass(frozen=True, slots=True)
class CentredVariance:
    """n, Σw(x - mid) and Σw(R² - (x - mid)²), for Gaussian noise.

    Neighbours   all rows of one unit are added or removed.
    Needs        codes in [low, high]; weights as above, clip l1 or l2.
    Sensitivity  with u as for CentredMean a row of weight w moves the vector, in units of (1, R, R²), by
                 w·(1, u, 1 - u²), and u² + (1 - u²)² = 1 - u²(1 - u²) <= 1: L2² <= 2w², a unit by 2W².
                 The squares cost nothing beside the sum.
    Guarantee    Gaussian of variance 2W²/(2·rho), times 1, R² and R⁴: cost a·rho.
    Derived      Σw(x - mid)² = R²·n - (third coordinate).
    Checked by   tests/property/test_release_sensitivity.py, tests/statistical/test_moments.py.
    """

    coordinates: int = 3
    l1: int = 3
    l2_squared: int = 2

    def sizes(self, at: CodeRange) -> Sizes:
        return (1, at.radius, at.radius**2)

    def exact(self, sums: Sums, at: CodeRange) -> list[Array]:
        mid, radius, n, s1, s2 = at.middle, at.radius, sums.n, sums.s1, sums.s2
        bulge = combine((radius * radius - mid * mid, n), (2 * mid, s1), (-1, s2))
        return [n, combine((1, s1), (-mid, n)), bulge]

    def moments(self, at: CodeRange) -> Moments:
        square = Fraction(at.radius**2)
        return Moments(Fraction(at.middle), (ONCE, NONE, NONE), (NONE, ONCE, NONE), (square, NONE, -ONCE))
