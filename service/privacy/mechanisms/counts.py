"""Counts: of weighted rows, of units, of distinct values."""

from dataclasses import dataclass
from fractions import Fraction

from service.core.boundary import Array
from service.core.derivations import CodeRange
from service.privacy.mechanisms.vectors import Moments, Shape, Sizes, Sums
from service.privacy.noise.exact_integers import combine

SMALLER = Fraction(5, 7)  # a size s with 1/s² = 1.96 <= 2, the L2² of centred moments


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

    def sizes(self, at: CodeRange) -> Sizes:
        return (1,)

    def exact(self, sums: Sums, at: CodeRange) -> list[Array]:
        return [sums.n]

    def moments(self, at: CodeRange) -> Moments:
        """A measure with one possible value (low = high) has its sum and squares from the count."""
        nothing = (Fraction(0),) if at.width == 0 else None
        return Moments(Fraction(at.low), (Fraction(1),), nothing, nothing)


@dataclass(frozen=True, slots=True)
class DistinctCount:
    """Units per group, or distinct values per group.

    Neighbours   all rows of one unit are added or removed.
    Needs        each unit in at most k groups, or with at most B distinct (group, value) pairs, chosen by
                 a hash of its own: what it keeps depends on its own rows alone.
    Sensitivity  units: at most k counts move, each by at most 1. Values: L1 <= B, since a value that
                 leaves the set of kept pairs lowers one count by at most 1.
    Guarantee    Laplace of scale k/epsilon (B/epsilon); Gaussian of variance k/(2·rho) (B²/(2·rho)).
    Checked by   tests/property/test_release_sensitivity.py, tests/statistical/test_moments.py.
    """

    coordinates: int = 1
    l1: int = 1
    l2_squared: int = 1

    def sizes(self, at: CodeRange) -> Sizes:
        return (1,)

    def exact(self, sums: Sums, at: CodeRange) -> list[Array]:
        return [sums.n]

    def moments(self, at: CodeRange) -> Moments:
        return Moments(Fraction(0), (Fraction(1),), None, None)


@dataclass(frozen=True, slots=True)
class BesideRows:
    """Another shape together with the count of all rows, which then costs nothing more.

    Neighbours   all rows of one unit are added or removed.
    Needs        the weights of `inner`, the same for rows where x is NULL and where it is not.
    Sensitivity  one more coordinate counts the rows where x is NULL. A row moves either that coordinate or
                 those of `inner`, never both. Under Laplace noise it counts in units of inner's L1, which
                 a row of either kind then moves by the same. Under Gaussian noise a NULL may move it by 1/size
                 with 1/size² <= inner's L2². So the bound of `inner` is the bound of both.
    Guarantee    that of `inner`.
    Derived      all rows = n + (rows where x is NULL).
    Checked by   tests/property/test_release_sensitivity.py, tests/statistical/test_moments.py.
    """

    inner: Shape

    @property
    def coordinates(self) -> int:
        return self.inner.coordinates + 1

    @property
    def l1(self) -> int:
        return self.inner.l1

    @property
    def l2_squared(self) -> int:
        return self.inner.l2_squared

    def _unit(self, at: CodeRange) -> int:
        """What one NULL adds: as much as any row adds to `inner`, where that is the same for all coordinates."""
        sizes = self.inner.sizes(at)
        return int(sizes[0]) if self.inner.l1 == 1 else 1

    def sizes(self, at: CodeRange) -> Sizes:
        last = self._unit(at) if self.inner.l1 == 1 else SMALLER
        return (*self.inner.sizes(at), last)

    def exact(self, sums: Sums, at: CodeRange) -> list[Array]:
        missing = combine((self._unit(at), sums.rows), (-self._unit(at), sums.n))
        return [*self.inner.exact(sums, at), missing]

    def moments(self, at: CodeRange) -> Moments:
        inner = self.inner.moments(at)
        assert inner.n is not None, "all rows are the counted ones and the others"
        n, t1, t2 = (None if row is None else (*row, Fraction(0)) for row in (inner.n, inner.t1, inner.t2))
        return Moments(inner.origin, n, t1, t2, rows=(*inner.n, Fraction(1, self._unit(at))))
