"""Many quantiles of one measure from one release: a tree of noisy counts, of which only the parts that a
quantile needs are drawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import sqrt

import numpy as np

from service.core.boundary import Array, Floats
from service.core.events import Event
from service.core.plan import ONE
from service.privacy.mechanisms.quantile import Histograms
from service.privacy.noise.exact_integers import combine
from service.privacy.noise.laws import Law
from service.privacy.noise.sampling import NoiseSource
from service.privacy.noise.scaled import Noise, noise_for
from service.privacy.noise.sensitivity import Sensitivity

BLOCK = 2**21  # nodes held at once
FAR = 1.85  # deviations that noise exceeds, to either side, in 6.5% of the cases

VALUE, LOW, HIGH = range(3)


@dataclass(frozen=True, slots=True)
class CountTree:
    """The range in `branch` parts, each in `branch` parts again, over `levels` levels down to single bins.

    Neighbours   all rows of one privacy unit are added or removed.
    Needs        weights of which one unit adds at most W = ONE·rows_per_unit over all groups and bins;
                 a public grid; public groups.
    Sensitivity  a row is counted once on each of h levels: L1 <= h·W, and L2² <= h·W² since each level
                 moves by L2 <= W.
    Guarantee    discrete Laplace noise of scale h·W/epsilon, or Gaussian of variance h·W²/(2·rho), on every
                 node. A quantile reads the root's children and then those of one node per level. Which those are
                 depends on noisy counts alone, so leaving the others undrawn is the same as drawing them and not
                 looking. A node that several quantiles read is drawn once.
    Quantile     children are first made to add up to their parent: each is moved by the same amount. Then, level
                 by level, the child in which (weight up to its end) - p·(all weight) passes zero.
    Interval     for either end, level by level, the outermost child that is not more than FAR deviations
                 beyond; the deviation of that difference is known exactly (`_spread`). The edges of the true
                 quantile's bin are beyond that in 6.5% of the cases; what lies further out forgives a part.
    Checked by   tests/statistical/test_tree.py, tests/statistical/test_intervals_cover.py,
                 tests/unit/privacy/test_tree.py.
    """

    rows_per_unit: int
    bins: int
    law: Law
    amount: Fraction  # epsilon, or rho

    @property
    def levels(self) -> int:
        return best_levels(self.bins, self.law)

    @property
    def branch(self) -> int:
        return branching(self.bins, self.levels)

    @property
    def moved(self) -> Sensitivity:
        reach = ONE * self.rows_per_unit
        return Sensitivity(Fraction(self.levels * reach), Fraction(self.levels * reach**2))

    @property
    def noise(self) -> Noise:
        """Of every node."""
        return noise_for(self.law, self.moved, self.amount)

    @property
    def event(self) -> Event:
        return self.noise.event(self.moved)

    @property
    def rank_std(self) -> float:
        """Deviation of a quantile's rank in rows, on average over where it may lie."""
        return sqrt(self.noise.variance * unit_spread(self.branch, self.levels)) / ONE

    def release(self, exact: Histograms, ranks: Sequence[Fraction], source: NoiseSource) -> Array:
        """Bins, (ranks, 3, groups): the quantile, and the first and last bin of its interval."""
        found = np.zeros((len(ranks), 3, exact.groups), dtype=np.int64)
        order = np.argsort(exact.group, kind="stable")
        group, at, weight = exact.group[order].astype(np.int64), exact.bin[order].astype(np.int64), exact.weight[order]
        size = max(1, BLOCK // (3 * len(ranks) * self.branch))
        for start in range(0, exact.groups, size):
            end = min(start + size, exact.groups)
            rows = slice(*np.searchsorted(group, (start, end)))
            block = Histograms(end - start, exact.bins, group[rows] - start, at[rows], weight[rows])
            found[:, :, start:end] = _Descent(self, block, ranks, source).run()
        return np.clip(found, 0, self.bins - 1)


def branching(bins: int, levels: int) -> int:
    """The least number of parts with parts^levels >= bins."""
    branch = max(2, int(bins ** (1 / levels)) - 1)
    while int(branch**levels) < bins:
        branch += 1
    return branch


def unit_spread(branch: int, levels: int) -> float:
    """Σ over the levels of c - c²/branch for a random c: the variance of a quantile's rank in nodes' variances."""
    return levels * (branch - 1 / branch) / 6


@lru_cache(maxsize=1024)
def best_levels(bins: int, law: Law) -> int:
    """The number of levels with the least noise: each costs a share of the budget, and saves parts."""
    power = 2 / law.power

    def noise(levels: int) -> float:
        return float(levels**power) * unit_spread(branching(bins, levels), levels)

    return min(range(1, 13), key=noise)


class _Descent:
    """All quantiles of a block of groups, one level after the other.

    A walker is one of (rank, VALUE | LOW | HIGH) in one group: all of them sit at some node of the level.
    """

    def __init__(self, tree: CountTree, exact: Histograms, ranks: Sequence[Fraction], source: NoiseSource) -> None:
        self.tree, self.exact, self.source, self.branch = tree, exact, source, tree.branch
        walkers, groups = 3 * len(ranks), exact.groups
        self.shape = (len(ranks), 3, groups)
        self.p = np.repeat([float(p) for p in ranks], 3 * groups)
        self.what = np.tile(np.repeat([VALUE, LOW, HIGH], groups), len(ranks))
        self.group = np.tile(np.arange(groups), walkers)
        self.node = np.zeros(walkers * groups, dtype=np.int64)
        self.path: list[Array] = []  # the child taken on each level
        self.left = np.zeros(self.node.size)  # weight to the left of the node
        self.held = np.zeros(self.node.size)  # weight in the node
        self.total = np.zeros(self.node.size)

    def run(self) -> Array:
        if self.node.size:
            for level in range(self.tree.levels):
                self._step(level)
        bins = self.node.reshape(self.shape)
        value = bins[:, VALUE]
        bins[:, LOW], bins[:, HIGH] = np.minimum(bins[:, LOW], value), np.maximum(bins[:, HIGH], value)
        return bins

    def _step(self, level: int) -> None:
        children = self._children(level)
        if level == 0:
            self.total = self.held = children.sum(axis=1)
        children += ((self.held - children.sum(axis=1)) / self.branch)[:, None]
        ends = self.left[:, None] + np.cumsum(children, axis=1)
        child = self._taken(ends - (self.p * self.total)[:, None])
        rows = np.arange(child.size)
        self.held = children[rows, child]
        self.left = ends[rows, child] - self.held
        self.node = self.node * self.branch + child
        self.path.append(child)

    def _children(self, level: int) -> Floats:
        """(walkers, branch) noisy weights of the nodes below each walker. One draw for one node."""
        families = self.branch**level
        asked, family = np.unique(self.group * families + self.node, return_inverse=True)
        size = self.branch ** (self.tree.levels - level - 1)
        owner = self.exact.group * families + self.exact.bin // (size * self.branch)
        at = np.minimum(np.searchsorted(asked, owner), asked.size - 1)
        here = asked[at] == owner
        weights = np.zeros((asked.size, self.branch), dtype=self.exact.weight.dtype)
        np.add.at(weights, (at[here], self.exact.bin[here] // size % self.branch), self.exact.weight[here])
        drawn = self.tree.noise.draw(self.source, weights.size).reshape(weights.shape)
        noisy: Floats = combine((1, weights), (1, drawn)).astype(np.float64)
        return noisy[family]

    def _taken(self, excess: Floats) -> Array:
        """The child that each walker goes to, from (weight up to each child's end) - p·total."""
        limit = FAR * np.sqrt(self.tree.noise.variance * self._spread())
        shift = np.where((self.what == LOW)[:, None], limit, 0.0)
        reached = excess + shift >= 0
        first = np.where(reached.any(axis=1), np.argmax(reached, axis=1), self.branch - 1)
        begun = excess[:, :-1] <= limit[:, :-1]  # the next child's begin is not clearly above the quantile
        last = np.where(begun.any(axis=1), self.branch - 1 - np.argmax(begun[:, ::-1], axis=1), 0)
        return np.where(self.what == HIGH, last, first)

    def _spread(self) -> Floats:
        """Variance of (weight up to the end of child c) - p·total in nodes' variances, for c = 1 … branch.

        Making children add up to their parent leaves independent contrasts on every level. Of the family on
        level l, `taken` children lie to the left in full and the part r of one more: Σa² - (Σa)²/branch with
        a = (1, …, 1, r, 0, …). The root adds (share - p)²·branch, where `share` is the place in the range.
        """
        full = np.arange(1, self.branch + 1)[None, :]
        spread = np.broadcast_to(full - full**2 / self.branch, (self.node.size, self.branch))
        part = full / self.branch
        for child in reversed(self.path):
            taken = child[:, None]
            spread = spread + taken + part**2 - (taken + part) ** 2 / self.branch
            part = (taken + part) / self.branch
        result: Floats = spread + (part - self.p[:, None]) ** 2 * self.branch
        return result
