"""A tree of noisy counts: any number of quantiles of one measure from one release. The rival of the
exponential mechanism in benchmarks/quality.py, which is better up to about nine quantiles a query."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from service.core.boundary import Array
from service.core.events import GaussianEvent, LaplaceEvent
from service.core.plan import ONE
from service.privacy.mechanisms.quantile import Histograms
from service.privacy.sampling import NoiseSource
from service.privacy.wholes import combine

Floats = npt.NDArray[np.float64]

BRANCH = 16


@dataclass(frozen=True, slots=True)
class CountTree:
    """Counts of a histogram at several resolutions, each noised, the finest being the bins themselves.

    Neighbours   all rows of one privacy unit are added or removed.
    Needs        weights of which one unit adds at most W = ONE·rows_per_unit over all groups and bins;
                 a public grid; public groups.
    Sensitivity  a row is counted once on each of h levels: L1 <= h·W, and L2² <= h·W² since each level
                 moves by L2 <= W.
    Guarantee    discrete Laplace noise of scale h·W/epsilon, or Gaussian of variance h·W²/(2·rho).
    Estimates    the weight up to a bin is a sum of a few nodes; nodes are first made consistent by least
                 squares (Hay et al. 2010), which is post-processing.
    Checked by   tests/unit/privacy/test_count_tree.py.
    """

    rows_per_unit: int
    bins: int
    law: Literal["laplace", "gaussian"]
    amount: Fraction  # epsilon, or rho

    @property
    def levels(self) -> int:
        levels = 1
        while BRANCH**levels < self.bins:
            levels += 1
        return levels

    @property
    def leaves(self) -> int:
        return int(BRANCH**self.levels)

    @property
    def scale(self) -> Fraction:
        """The Laplace scale, or the Gaussian variance, of every node."""
        reach = ONE * self.rows_per_unit
        if self.law == "laplace":
            return self.levels * reach / self.amount
        return self.levels * reach**2 / (2 * self.amount)

    @property
    def event(self) -> LaplaceEvent | GaussianEvent:
        reach = ONE * self.rows_per_unit
        if self.law == "laplace":
            return LaplaceEvent(Fraction(self.levels * reach), self.scale)
        return GaussianEvent(Fraction(self.levels * reach**2), self.scale)

    def release(self, exact: Histograms, noise: NoiseSource) -> list[Array]:
        """Per level from coarse to fine: (nodes, groups) of noisy counts."""
        draw = noise.discrete_laplace if self.law == "laplace" else noise.discrete_gaussian
        released = []
        for level in range(1, self.levels + 1):
            nodes, size = BRANCH**level, self.leaves // BRANCH**level
            counts = np.zeros((nodes, exact.groups), dtype=exact.weight.dtype)
            at = exact.bin.astype(np.int64) // size, exact.group.astype(np.int64)
            np.add.at(counts, at, exact.weight)
            if exact.groups:
                drawn = draw(self.scale, counts.size).reshape(counts.shape)
                counts = combine((1, counts), (1, drawn))
            released.append(counts)
        return released

    def consistent(self, released: Sequence[Array]) -> Floats:
        """Leaf counts (bins, groups) that fit all levels best, in rows."""
        noisy = [level.astype(np.float64) / ONE for level in released]
        best = [noisy[-1]]
        for height, level in enumerate(reversed(noisy[:-1]), start=2):
            over, under = float(BRANCH**height), float(BRANCH ** (height - 1))
            children = best[0].reshape(level.shape[0], BRANCH, -1).sum(axis=1)
            weight = (over - under) / (over - 1)
            best.insert(0, weight * level + (1 - weight) * children)
        fitted = best[0]
        for level in best[1:]:
            family = level.reshape(fitted.shape[0], BRANCH, -1)
            gap = (fitted - family.sum(axis=1)) / BRANCH
            fitted = (family + gap[:, None, :]).reshape(level.shape)
        return fitted[: self.bins]

    def quantiles(self, released: Sequence[Array], ranks: Sequence[Fraction]) -> list[Array]:
        """The first bin at which the estimated weight reaches each rank, per group."""
        below = np.cumsum(self.consistent(released), axis=0)
        below = np.maximum.accumulate(below, axis=0)  # a running total never falls
        return [self._first(below, float(p)) for p in ranks]

    def _first(self, below: Floats, p: float) -> Array:
        reached = below >= p * below[-1]
        return np.where(reached.any(axis=0), np.argmax(reached, axis=0), self.bins - 1)
