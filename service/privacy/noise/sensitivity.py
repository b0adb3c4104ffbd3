"""How much of a vector is one unit's: what noise is scaled to."""

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """By how much one unit moves a vector of integers: in L1, and in L2 squared.

    `units`: it moves at most so many coordinates, each by at most 1, which an account may charge less for.
    """

    l1: Fraction
    l2_squared: Fraction
    units: int | None = None

    @staticmethod
    def within(reach: int) -> "Sensitivity":
        """Everything that a unit adds, over all coordinates, is at most `reach`: so is its L1, and its L2."""
        return Sensitivity(Fraction(reach), Fraction(reach * reach))

    @staticmethod
    def of_units(groups: int) -> "Sensitivity":
        """A unit counts as 1 in at most so many groups."""
        return Sensitivity(Fraction(groups), Fraction(groups), groups)

    def times(self, size: int | Fraction) -> "Sensitivity":
        """Of the same vector in units that are smaller by `size`."""
        if size == 1:
            return self
        assert self.units is None, "people are counted one by one"
        return Sensitivity(self.l1 * size, self.l2_squared * size * size)
