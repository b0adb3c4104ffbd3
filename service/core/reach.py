"""How many rows one unit may have in a question, and how many of them a bound leaves out, by public sizes alone.

in   a Reach (what the shape of a question says) and the sizes of its tables (service/core/sizes.py)
out  a Spread: units by the rows that they have there, as far as a profile tells it

Everything here is computed from released profiles and public tables: it reads no private row.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from service.core.sizes import PrivateSize, Size

Z = 2.2  # deviations on either side: both ends hold with at least 95 %, for Laplace and for Gaussian noise
VISIBLE = 2  # deviations from which on a bin counts when a default is chosen


@dataclass(frozen=True, slots=True)
class Reach:
    """At most `constant` rows of one unit, and for each of its rows in `table` another `times`, multiplied by the most
    rows that a unit has in each of `others`.

    `times` is the fan-out over public tables. RowBound says what holds by shape alone; this says what holds by
    public sizes, so it may be known where there is no RowBound.
    """

    table: str | None
    times: int = 1
    others: tuple[str, ...] = ()
    constant: int = 0

    def repeated(self, times: int) -> "Reach":
        """Every row met by up to `times` public ones."""
        return replace(self, times=self.times * times, constant=self.constant * times)

    def beside(self, other: "Reach") -> "Reach | None":
        """The rows of both together (UNION ALL); None where two tables would have to be known of one unit at once."""
        constant = self.constant + other.constant
        if self.table is None or other.table is None:
            return replace(other if self.table is None else self, constant=constant)
        if (self.table, self.others) != (other.table, other.others):
            return None
        return replace(self, times=self.times + other.times, constant=constant)

    def crossed(self, other: "Reach") -> "Reach | None":
        """Every row of the one with every row of the other, of the same unit."""
        if self.constant and self.table is None:
            return other.repeated(self.constant)
        if other.constant and other.table is None:
            return self.repeated(other.constant)
        if self.constant or other.constant or self.table is None or other.table is None:
            return None
        return Reach(self.table, self.times * other.times, (*self.others, other.table, *other.others))


@dataclass(frozen=True, slots=True)
class Spread:
    """Units by their rows: (fewest, most, released units) per bin, with the deviation of every such count.

    Nobody has more than `most` rows. `bins` None: no profile tells more than that. `constant` rows a unit may have
    that is in no bin.
    """

    most: int
    bins: tuple[tuple[int, int, int], ...] | None = None
    deviation: float = 0.0
    constant: int = 0

    def lost(self, bound: int, *, whole: bool = False, most: int | None = None) -> tuple[int, int] | None:
        """Between how many rows and how many a bound on rows per unit leaves out; None: not known.

        `whole`: the question is of all rows of the table, so the lower end holds as well; else it is 0. `most`: what a
        unit has at most for another reason (it is in no more groups than there are).
        """
        highest = self.most if most is None else min(self.most, most)
        if highest <= bound:
            return 0, 0
        if self.bins is None or bound < self.constant:
            return None
        above = [(units, max(0, min(high, highest) - bound)) for _, high, units in self.bins]
        high = max(0, math.ceil(_sum(above) + self._noise(above)))
        if not whole:
            return 0, high
        below = [(units, max(0, low - bound)) for low, _, units in self.bins]
        return min(high, max(0, math.floor(_sum(below) - self._noise(below)))), high

    def counted(self, bound: int) -> tuple[int, int] | None:
        """Between how many rows of the whole table and how many count under this bound."""
        if self.bins is None:
            return None
        below = [(units, min(low, bound)) for low, _, units in self.bins]
        above = [(units, min(high, bound)) for _, high, units in self.bins]
        return (
            max(0, math.floor(_sum(below) - self._noise(below))),
            max(0, math.ceil(_sum(above) + self._noise(above))),
        )

    def expected_lost(self, bound: int) -> float:
        """The same as one figure: units lie evenly within their bin, and bins within the noise are empty."""
        lost = 0.0
        for low, high, units in self.visible():
            beyond = max(0, high - max(bound, low - 1))  # rows of the bin that lie above the bound
            mean = (max(low, bound + 1) + high) / 2 - bound
            lost += units * beyond / (high - low + 1) * mean
        return lost

    def visible(self) -> Iterator[tuple[int, int, int]]:
        """Bins that stand out of the noise."""
        return (each for each in self.bins or () if each[2] > 0 and each[2] >= VISIBLE * self.deviation)

    def _noise(self, terms: list[tuple[int, int]]) -> float:
        return Z * self.deviation * math.sqrt(float(sum(factor * factor for _, factor in terms)))


def _sum(terms: list[tuple[int, int]]) -> int:
    return sum(units * factor for units, factor in terms)


def spread_of(reach: Reach, sizes: Mapping[str, Size], *, typical: bool = False) -> Spread | None:
    """Units by their rows in what has this reach; None: some size is not known.

    `typical`: by the mean rows of a unit in the other tables of a join instead of the most.
    """
    if reach.table is None:
        return Spread(reach.constant, (), constant=reach.constant)
    size, factor, most = sizes.get(reach.table), reach.times, reach.times
    if not isinstance(size, PrivateSize):
        return None
    for name in reach.others:
        other = sizes.get(name)
        if not isinstance(other, PrivateSize):
            return None
        factor *= max(1, round(other.rows / other.units)) if typical else other.most
        most *= other.most
    highest = most * size.most + reach.constant
    if size.profile is None:
        return Spread(highest, constant=reach.constant)
    bins = tuple(
        (low, factor * high + reach.constant, units) for low, high, units in size.profile.bins_apart(size.most)
    )
    return Spread(highest, bins, size.profile.deviation, reach.constant)
