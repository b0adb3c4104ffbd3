"""The profile of a private table: how many units have how many rows in it, with noise."""

from dataclasses import dataclass
from fractions import Fraction

from service.core.boundary import Array
from service.core.events import Event
from service.core.sizes import BINS
from service.privacy.noise.laws import Law
from service.privacy.noise.sampling import NoiseSource
from service.privacy.noise.scaled import Noise, noise_for
from service.privacy.noise.sensitivity import Sensitivity

MOVED = Sensitivity.of_units(1)  # one unit is in one bin


@dataclass(frozen=True, slots=True)
class UnitHistogram:
    """Units of one table by how many rows they have in it: 1, 2, 3 to 4, 5 to 8, …; the last bin holds all beyond.

    Neighbours   all rows of one unit are added or removed, in all tables.
    Needs        BINS counts, whose number is fixed and public. A unit's rows in the table are a function of its own
                 rows: those with the unit's own name, or those whose foreign key leads to a row that the unit kept in
                 the parent table, which its own rows and fresh coins decide (invariant N5). So a unit that is there
                 is in one bin, whoever else is, and one that is not is in none: nobody moves between bins.
    Sensitivity  one count moves by 1: L1 = L2 = 1.
    Guarantee    discrete Laplace noise of scale 1/epsilon: epsilon-DP. Discrete Gaussian noise of variance 1/(2·rho):
                 a·rho at order a. What follows (the most rows that a unit keeps, sizes, words) reads noisy counts
                 only. Several tables, and a second profile of one, are charges of their own and add up.
    Checked by   tests/property/test_profile_neighbours.py, tests/statistical/test_profile.py.
    """

    law: Law
    amount: Fraction  # epsilon, or rho

    @property
    def noise(self) -> Noise:
        return noise_for(self.law, MOVED, self.amount)

    @property
    def event(self) -> Event:
        return self.noise.event(MOVED)

    @property
    def deviation(self) -> float:
        return float(self.noise.variance**0.5)

    def release(self, units: Array, source: NoiseSource) -> tuple[int, ...]:
        """The exact counts of all bins with their noise; below zero where there are few."""
        assert units.size == BINS
        return tuple(int(count) for count in units + self.noise.draw(source, BINS))
