"""Counts: of weighted rows, of units, of distinct values."""

from dataclasses import dataclass
from fractions import Fraction

from service.core.boundary import Array
from service.privacy.mechanisms.shape import Moments, Range


@dataclass(frozen=True, slots=True)
class RowCount:
    """Weighted rows per group.

    Neighbours   all rows of one unit are added or removed.
    Needs        weights of at most ONE per row that add up to at most W over a unit's rows
                 (W = ONE·rows_per_unit; under clip l2 the vector of a unit's weight per group has L2 <= W).
    Sensitivity  the vector of counts moves by L1 <= W (l2: L2 <= W), wherever the rows fall.
    Guarantee    Laplace of scale W/epsilon: epsilon-DP. Gaussian of variance W²/(2·rho): cost a·rho.
    Checked by   tests/property/test_release_sensitivity.py, tests/statistical/test_moments.py.
    """

    coordinates: int = 1
    l1: int = 1
    l2_squared: int = 1

    def sizes(self, at: Range) -> tuple[int, ...]:
        return (1,)

    def exact(self, n: Array, s1: Array, s2: Array, at: Range) -> list[Array]:
        return [n]

    def moments(self, at: Range) -> Moments:
        """A measure with one possible value (low = high) has its sum and squares from the count."""
        nothing = (Fraction(0),) if at.width == 0 else None
        return Moments(Fraction(at.low), (Fraction(1),), nothing, nothing)


@dataclass(frozen=True, slots=True)
class DistinctCount:
    """Units per group, or distinct values per group.

    Neighbours   all rows of one unit are added or removed.
    Needs        each unit in at most k groups, or with at most B distinct (group, value) pairs, chosen by
                 a hash of its own (MECHANISMS section 7): what it keeps depends on its own rows alone.
    Sensitivity  units: at most k counts move, each by at most 1. Values: L1 <= B, since a value that
                 leaves the set of kept pairs lowers one count by at most 1.
    Guarantee    Laplace of scale k/epsilon (B/epsilon); Gaussian of variance k/(2·rho) (B²/(2·rho)).
    Checked by   tests/property/test_release_sensitivity.py, tests/statistical/test_moments.py.
    """

    coordinates: int = 1
    l1: int = 1
    l2_squared: int = 1

    def sizes(self, at: Range) -> tuple[int, ...]:
        return (1,)

    def exact(self, n: Array, s1: Array, s2: Array, at: Range) -> list[Array]:
        return [n]

    def moments(self, at: Range) -> Moments:
        return Moments(Fraction(0), (Fraction(1),), None, None)
