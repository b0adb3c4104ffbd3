"""How far from a chosen value the true one can be: noisy counts around the choice."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from service.core.boundary import Array, Floats
from service.core.events import Event
from service.core.plan import ONE
from service.privacy.mechanisms.quantile import FromBottom, FromTop, Histograms, Quantile
from service.privacy.noise.exact_integers import combine
from service.privacy.noise.laws import Law
from service.privacy.noise.sampling import NoiseSource
from service.privacy.noise.scaled import Noise, noise_for
from service.privacy.noise.sensitivity import Sensitivity

MANY_GROUPS = 20_000
CLEAR = 1.5  # deviations that noise exceeds, to one side, in less than 7% of the cases whatever the law
SURE = 2.2  # where many cells are looked at and the first that is clear is taken


@dataclass(frozen=True, slots=True)
class Bracket:
    """The 95% interval of a quantile, minimum or maximum, from a small histogram around the released choice.

    Neighbours   all rows of one privacy unit are added or removed.
    Needs        the choice in every group, released before; weights of which one unit adds at most
                 W = ONE·rows_per_unit over all groups and bins.
    Cells        the chosen bin, and to either side rings of bins whose distance grows by half from one to
                 the next (fourfold where there are very many groups, and for extremes): every row
                 falls into exactly one cell, whatever the cells.
    Sensitivity  L1 and L2 of all cells of all groups: W.
    Guarantee    discrete Laplace noise of scale W/epsilon, or Gaussian of variance W²/(2·rho). The cells depend on
                 the choice, which is public by then; the two releases compose. A cell that lies wholly beyond
                 the grid is empty whatever the data: it needs no noise.
    Quantile     a cell is left out if it ends clearly below the quantile or begins clearly above it, that is,
                 if (weight up to that edge) - p·(all weight) is more than CLEAR deviations of its known noise
                 from zero. The interval is the hull of the other cells and the choice. The true quantile lies
                 to one side of the choice, so only one edge can exclude it: in less than 7% of the cases,
                 whatever the data; in 3% to 5% where rows are dense, since the hull forgives some.
    Extremes     a maximum may be anywhere up to the end of the range. It is at least where the noisy weight
                 from there on is clearly above zero (SURE deviations), never more than the choice; minimum mirrored.
    Checked by   tests/statistical/test_intervals_cover.py, tests/unit/privacy/test_bracket.py.
    """

    rows_per_unit: int
    bins: int
    law: Law
    amount: Fraction  # epsilon, or rho

    @property
    def moved(self) -> Sensitivity:
        return Sensitivity.within(ONE * self.rows_per_unit)

    @property
    def noise(self) -> Noise:
        """Of every cell."""
        return noise_for(self.law, self.moved, self.amount)

    @property
    def event(self) -> Event:
        return self.noise.event(self.moved)

    def release(
        self, exact: Histograms, chosen: Array, rank: Quantile | FromTop | FromBottom, source: NoiseSource
    ) -> tuple[Array, Array]:
        """First and last bin of the interval in every group."""
        if isinstance(rank, FromBottom):  # the same, seen from the other end
            last = self.bins - 1
            mirrored = Histograms(exact.groups, exact.bins, exact.group, last - exact.bin, exact.weight)
            low, high = self.release(mirrored, last - chosen, FromTop(rank.rank), source)
            return last - high, last - low
        rings = _Rings(self._distances(exact.groups, rank), chosen, self.bins)
        noisy = self._noised(rings.weights(exact), rings.inside, source)
        if isinstance(rank, FromTop):
            return self._lowest(noisy, rings), np.full(exact.groups, self.bins - 1)
        return self._hull(noisy, rings, float(rank.p))

    def _distances(self, groups: int, rank: Quantile | FromTop) -> Array:
        """The outermost distance of each ring, the last beyond the whole range."""
        coarse = groups > MANY_GROUPS or isinstance(rank, FromTop)
        far = [1]
        while far[-1] < self.bins - 1:
            far.append(4 * far[-1] if coarse else max(far[-1] + 1, far[-1] * 3 // 2))
        return np.array(far, dtype=np.int64)

    def _noised(self, weights: Array, inside: Array, source: NoiseSource) -> Floats:
        if not weights.size:
            return weights.astype(np.float64)
        drawn = self.noise.draw(source, weights.size).reshape(weights.shape)
        noisy: Floats = combine((1, weights), (1, drawn)).astype(np.float64)
        return np.where(inside, noisy, 0.0)

    def _hull(self, noisy: Floats, rings: "_Rings", p: float) -> tuple[Array, Array]:
        """Edge k is the last bin of cell k; its excess is clear of zero beyond the limit."""
        below, upto = np.cumsum(noisy, axis=0), np.cumsum(rings.inside, axis=0)
        spread = upto * (1 - p) ** 2 + (upto[-1] - upto) * p**2
        limit = CLEAR * np.sqrt(self.noise.variance * spread)
        excess = below - p * below[-1]
        edge = (upto > 0) & (upto < upto[-1])  # nothing lies before or beyond the grid: its ends exclude nothing
        quantile_beyond, quantile_before = edge & (excess < -limit), edge & (excess > limit)
        possible = rings.inside & ~quantile_beyond
        possible[1:] &= ~quantile_before[:-1]
        possible[rings.middle] = True
        groups = np.arange(noisy.shape[1])
        first = np.argmax(possible, axis=0)
        last = possible.shape[0] - 1 - np.argmax(possible[::-1], axis=0)
        return rings.first[first, groups], rings.last[last, groups]

    def _lowest(self, noisy: Floats, rings: "_Rings") -> Array:
        """The first bin of the highest cell, not above the choice, from which on there are clearly rows."""
        middle = rings.middle
        from_here = np.cumsum(noisy[::-1], axis=0)[::-1]
        cells = np.cumsum(rings.inside[::-1], axis=0)[::-1]
        clear = from_here[: middle + 1] > SURE * np.sqrt(self.noise.variance * cells[: middle + 1])
        clear[0] = True
        highest = middle - np.argmax(clear[::-1], axis=0)
        lowest: Array = rings.first[highest, np.arange(noisy.shape[1])]
        return lowest


class _Rings:
    """Cells of bins by distance from the choice, from far below to far above: (cells, groups)."""

    def __init__(self, far: Array, chosen: Array, bins: int) -> None:
        self.far, self.chosen, self.middle = far, chosen, far.size
        near = np.concatenate(([0], far[:-1])) + 1
        starts = np.concatenate((-far[::-1], [0], near))[:, None] + chosen
        ends = np.concatenate((-near[::-1], [0], far))[:, None] + chosen
        self.inside = (ends >= 0) & (starts < bins)
        self.first, self.last = np.clip(starts, 0, bins - 1), np.clip(ends, 0, bins - 1)

    def weights(self, exact: Histograms) -> Array:
        group = exact.group.astype(np.int64)
        away = exact.bin.astype(np.int64) - self.chosen[group]
        ring = np.searchsorted(self.far, np.abs(away), side="left") + 1
        cell = self.middle + np.where(away == 0, 0, np.sign(away) * ring)
        weights = np.zeros(self.inside.shape, dtype=exact.weight.dtype)
        np.add.at(weights, (cell, group), exact.weight)
        return weights
