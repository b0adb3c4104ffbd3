"""How far from a chosen quantile the true one can be: noisy counts around the choice."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from service.core.boundary import Array
from service.core.events import GaussianEvent, LaplaceEvent
from service.core.plan import ONE
from service.privacy.mechanisms.quantile import Histograms
from service.privacy.sampling import NoiseSource
from service.privacy.wholes import combine

MANY_GROUPS = 20_000
FACTOR = 2.1  # deviations; a little above 1.96, because several edges are tried on either side


@dataclass(frozen=True, slots=True)
class Bracket:
    """The 95% interval of a quantile, from a small histogram that is centred on the released choice.

    Neighbours   all rows of one privacy unit are added or removed.
    Needs        the choice in every group, released before; weights of which one unit adds at most
                 W = ONE·rows_per_unit over all groups and bins.
    Cells        the chosen bin, and to either side the bins at distance 1, 2, 3-4, 5-8, … (1, 2-4, 5-16, … where
                 there are very many groups): every row falls into exactly one cell, whatever the cells.
    Sensitivity  L1 and L2 of all cells of all groups: W.
    Guarantee    discrete Laplace noise of scale W/epsilon, or Gaussian of variance W²/(2·rho). The cells depend on
                 the choice, which is public by then; the two releases compose.
    Interval     from the choice outwards, the first edge that is below the quantile (above it) by more
                 than FACTOR deviations of the noise; the end of the range where there is none. The noise
                 of (weight below the edge) - p·(all weight) is known exactly.
    Checked by   tests/statistical/test_intervals_cover.py, tests/unit/privacy/test_bracket.py.
    """

    rows_per_unit: int
    bins: int
    law: Literal["laplace", "gaussian"]
    amount: Fraction  # epsilon, or rho

    @property
    def reach(self) -> int:
        return ONE * self.rows_per_unit

    @property
    def scale(self) -> Fraction:
        """The Laplace scale, or the Gaussian variance."""
        return self.reach / self.amount if self.law == "laplace" else self.reach**2 / (2 * self.amount)

    @property
    def event(self) -> LaplaceEvent | GaussianEvent:
        if self.law == "laplace":
            return LaplaceEvent(Fraction(self.reach), self.scale)
        return GaussianEvent(Fraction(self.reach**2), self.scale)

    def release(self, exact: Histograms, chosen: Array, p: Fraction, noise: NoiseSource) -> tuple[Array, Array]:
        """First and last bin of the interval in every group."""
        far = self.distances(exact.groups)
        noisy = self._cells(exact, chosen, far)
        if exact.groups:
            draw = noise.discrete_laplace if self.law == "laplace" else noise.discrete_gaussian
            drawn = draw(self.scale, noisy.size).reshape(noisy.shape)
            noisy = combine((1, noisy), (1, drawn))
        return self._interval(noisy.astype(np.float64), chosen, far, float(p))

    def distances(self, groups: int) -> Array:
        """The outermost distance of each ring of cells, the last beyond the whole range."""
        growth, far = (2 if groups <= MANY_GROUPS else 4), [1]
        while far[-1] < self.bins - 1:
            far.append(far[-1] * growth)
        return np.array(far, dtype=np.int64)

    def _cells(self, exact: Histograms, chosen: Array, far: Array) -> Array:
        """(cells, groups): weights by distance from the choice, from far below to far above."""
        group = exact.group.astype(np.int64)
        away = exact.bin.astype(np.int64) - chosen[group]
        ring = np.searchsorted(far, np.abs(away), side="left") + 1
        cell = far.size + np.where(away == 0, 0, np.sign(away) * ring)
        counts = np.zeros((2 * far.size + 1, exact.groups), dtype=exact.weight.dtype)
        np.add.at(counts, (cell, group), exact.weight)
        return counts

    def _interval(self, noisy: Array, chosen: Array, far: Array, p: float) -> tuple[Array, Array]:
        """Edge k is the last bin of cell k. The cells before the middle one end 1, 2, 3, 5, … bins below the
        choice, the middle one ends at it, the others 1, 2, 4, 8, … above."""
        steps, cells = far.size, noisy.shape[0]
        below = np.cumsum(noisy, axis=0)
        excess = below - p * below[-1]
        upto = np.arange(1, cells + 1)
        each = 2.0 * float(self.scale) ** 2 if self.law == "laplace" else float(self.scale)
        limit = FACTOR * np.sqrt(each * (upto * (1 - p) ** 2 + (cells - upto) * p * p))[:, None]
        lower = excess[steps - 1 :: -1] < -limit[steps - 1 :: -1]
        upper = excess[steps:] > limit[steps:]
        outwards, groups = np.concatenate(([0], far)), np.arange(noisy.shape[1])
        first, last = np.argmax(lower, axis=0), np.argmax(upper, axis=0)
        low = np.where(lower[first, groups], chosen - outwards[first], 0)
        high = np.where(upper[last, groups], chosen + outwards[last], self.bins - 1)
        return np.clip(low, 0, self.bins - 1), np.clip(high, 0, self.bins - 1)
