"""What a noised vector looks like: which integers are released together, and how moments follow."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from service.core.boundary import Array
from service.core.derivations import CodeRange

Row = tuple[Fraction, ...]
Sizes = tuple[int | Fraction, ...]


@dataclass(frozen=True, slots=True)
class Sums:
    """Exact sums per group: Σw, Σw·x and Σw·x² over the rows where x is not NULL, and Σw over all rows."""

    n: Array
    s1: Array
    s2: Array
    rows: Array


@dataclass(frozen=True, slots=True)
class Moments:
    """How n = Σw, t1 = Σw(x - origin), t2 = Σw(x - origin)² follow from the released coordinates.

    Each row holds one coefficient per coordinate; None where the shape does not know that moment. `rows` is
    Σw over all rows, NULL or not.
    """

    origin: Fraction
    n: Row | None
    t1: Row | None
    t2: Row | None
    rows: Row | None = None


class Shape(Protocol):
    """Integers that are noised together.

    Per unit of weight, a row moves coordinate i by d_i with Σ|d_i|/size_i <= l1 and
    Σ(d_i/size_i)² <= l2_squared. So noise of scale size_i·W·l1/epsilon on coordinate i (or of variance
    size_i²·W²·l2_squared/(2·rho)) protects a unit whose weights add up to W.
    """

    @property
    def coordinates(self) -> int: ...
    @property
    def l1(self) -> int: ...
    @property
    def l2_squared(self) -> int: ...
    def sizes(self, at: CodeRange) -> Sizes: ...
    def exact(self, sums: Sums, at: CodeRange) -> list[Array]: ...
    def moments(self, at: CodeRange) -> Moments: ...
