"""Quantiles, minimum, maximum and mode: one exponential draw per group over a public grid."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from service.core.boundary import Array
from service.core.events import ExponentialEvent
from service.core.plan import ONE
from service.privacy.mechanisms.exponential import Candidates, choose
from service.privacy.noise.sampling import NoiseSource

SAFE = 2**60  # int64 arithmetic below it, Python integers beyond
MISSED = 0.05  # an extreme value gives up as many rows as the draw would miss with this probability


@dataclass(frozen=True, slots=True)
class Histograms:
    """Weights of many groups on one public grid, sparse: `weight` of group `group` in bin `bin`.

    No pair (group, bin) occurs twice; the order does not matter. Groups without entries are empty.
    """

    groups: int
    bins: int
    group: Array
    bin: Array
    weight: Array


@dataclass(frozen=True, slots=True)
class Quantile:
    """The value below which a part `p` of the weight lies."""

    p: Fraction


@dataclass(frozen=True, slots=True)
class FromTop:
    """The value that weight `rank` reaches from above, or the median where there is less than twice that."""

    rank: int


@dataclass(frozen=True, slots=True)
class FromBottom:
    """FromTop, mirrored."""

    rank: int


def extreme_rank(rows_per_unit: int, epsilon: Fraction, bins: int) -> int:
    """How far from the end MIN and MAX look: far enough that the draw rarely lands where no rows are."""
    return math.ceil(2 * ONE * rows_per_unit / epsilon * Fraction(math.log(bins / MISSED)))


def cap_rank(epsilon: Fraction) -> int:
    """The rank, from the top of Σ|x| per unit, of a good cap: sqrt(2)/epsilon units lie above it.

    A cap C clips the units above it (bias: their number times what they exceed) and sets the noise to
    C·sqrt(2)/epsilon; raising C by 1 wins as much as it loses when that many units exceed it.
    """
    return math.ceil(ONE * Fraction(math.sqrt(2)) / epsilon)


@dataclass(frozen=True, slots=True)
class RankDraw:
    """A value of given rank in each group, by the exponential mechanism.

    Neighbours   all rows of one privacy unit are added or removed.
    Needs        weights of which one unit adds at most W = ONE·rows_per_unit over all groups and bins;
                 a public grid; the groups are public (declared, or selected before).
    Cost         of bin j, with `below` = N_<(j), `upto` = N_<=(j), N the group's total, p = n/d:
                   Quantile    max(0, d·below - n·N, n·N - d·upto)
                   FromTop     max(0, 2(N - upto) - r, r - 2(N - below)), r = min(2·rank, N)
                   FromBottom  max(0, 2·below - r, r - 2·upto)
    Sensitivity  weight w added to the group moves d·below - n·N by between -n·w and (d-n)·w, and
                 n·N - d·upto alike: at most w·max(n, d-n). In FromTop it moves 2(N - upto) by 0 or 2w and
                 r by 0 to w, so their difference by at most 2w, FromBottom alike. A maximum
                 moves no more than its terms. Over all groups w adds up to W.
    Guarantee    epsilon-DP for all groups together, once, with rate = epsilon/(2·sensitivity)
                 (see exponential.choose). Neighbouring bins of equal cost are one entry with copies; the
                 answer is a uniform bin of the chosen entry. An empty group has cost 0 everywhere.
    Checked by   tests/statistical/test_quantile.py, tests/unit/privacy/test_quantile.py.
    """

    rank: Quantile | FromTop | FromBottom
    rows_per_unit: int
    epsilon: Fraction

    @property
    def event(self) -> ExponentialEvent:
        return ExponentialEvent(self.epsilon)

    @property
    def rate(self) -> Fraction:
        match self.rank:
            case Quantile(p):
                assert 0 <= p <= 1
                moved = max(p.numerator, p.denominator - p.numerator)
            case _:
                moved = 2
        return self.epsilon / (2 * ONE * self.rows_per_unit * moved)

    def release(self, histograms: Histograms, noise: NoiseSource) -> Array:
        """The chosen bin of every group."""
        return _draw(_runs(histograms, self._factor), self._costs, self.rate, noise)

    @property
    def _factor(self) -> int:
        return self.rank.p.denominator if isinstance(self.rank, Quantile) else 2

    def _costs(self, runs: "_Runs") -> Array:
        match self.rank:
            case Quantile(p):
                goal = p.numerator * runs.total
                over, under = p.denominator * runs.below - goal, goal - p.denominator * runs.upto
            case FromTop(rank):
                goal = _at_most(2 * rank, runs.total)
                over, under = 2 * (runs.total - runs.upto) - goal, goal - 2 * (runs.total - runs.below)
            case FromBottom(rank):
                goal = _at_most(2 * rank, runs.total)
                over, under = 2 * runs.below - goal, goal - 2 * runs.upto
        costs: Array = np.maximum(0, np.maximum(over, under))
        return costs


@dataclass(frozen=True, slots=True)
class ModeDraw:
    """The most frequent candidate in each group, by the exponential mechanism.

    Neighbours   all rows of one privacy unit are added or removed.
    Needs        the candidates are declared, or were selected before; weights as for RankDraw.
    Sensitivity  a unit raises the scores (weighted counts) of a group by at most w each, and w adds up to
                 W = ONE·rows_per_unit over all groups. All scores move the same way.
    Guarantee    one-sided scores: epsilon-DP with rate = epsilon/W (see exponential.choose).
    Checked by   tests/statistical/test_quantile.py, tests/unit/privacy/test_quantile.py.
    """

    rows_per_unit: int
    epsilon: Fraction

    @property
    def event(self) -> ExponentialEvent:
        return ExponentialEvent(self.epsilon)

    def release(self, histograms: Histograms, noise: NoiseSource) -> Array:
        """The chosen candidate of every group; `bin` numbers the candidates."""
        rate = self.epsilon / (ONE * self.rows_per_unit)
        return _draw(_runs(histograms, 1), self._costs, rate, noise)

    def _costs(self, runs: "_Runs") -> Array:
        scores = runs.upto - runs.below
        costs: Array = np.maximum.reduceat(scores, runs.starts[:-1])[runs.owner] - scores
        return costs


@dataclass(frozen=True, slots=True)
class _Runs:
    """Neighbouring bins that can not differ in cost: each occupied bin, and each gap between them."""

    first: Array
    length: Array
    below: Array  # weight of the group in lower bins
    upto: Array  # … and in this run
    total: Array  # weight of the group
    owner: Array
    starts: Array


def _runs(histograms: Histograms, factor: int) -> _Runs:
    """Entry i of group g becomes the gap before it (slot 2i + g) and its bin (slot 2i + 1 + g); the gap
    after the last entry of g closes the group. Gaps without bins are dropped."""
    order = np.lexsort((histograms.bin, histograms.group))
    group, bins = histograms.group[order].astype(np.int64), histograms.bin[order].astype(np.int64)
    weight, groups = _wide_enough(histograms.weight[order], factor), histograms.groups
    assert not np.any((np.diff(group) == 0) & (np.diff(bins) == 0)), "a bin occurs twice"
    edges = np.searchsorted(group, np.arange(groups + 1))
    running = np.concatenate((np.zeros(1, weight.dtype), np.cumsum(weight, dtype=weight.dtype)))
    base = running[edges]
    index = np.arange(group.size)
    gap_first = np.where(index == edges[group], 0, np.roll(bins, 1) + 1)
    last = np.where(edges[1:] > edges[:-1], np.append(bins, 0)[edges[1:] - 1] + 1, 0)
    gap, entry, close = 2 * index + group, 2 * index + group + 1, 2 * edges[1:] + np.arange(groups)
    size = 2 * group.size + groups
    first, length, owner = (np.zeros(size, dtype=np.int64) for _ in range(3))
    below, upto = np.zeros(size, dtype=weight.dtype), np.zeros(size, dtype=weight.dtype)
    first[gap], first[entry], first[close] = gap_first, bins, last
    length[gap], length[entry], length[close] = bins - gap_first, 1, histograms.bins - last
    owner[gap], owner[entry], owner[close] = group, group, np.arange(groups)
    before = running[:-1] - base[:-1][group]
    below[gap], below[entry], below[close] = before, before, base[1:] - base[:-1]
    upto[gap], upto[entry], upto[close] = before, running[1:] - base[:-1][group], below[close]
    total = (base[1:] - base[:-1])[owner]
    kept = length > 0
    starts = np.searchsorted(owner[kept], np.arange(groups + 1))
    return _Runs(first[kept], length[kept], below[kept], upto[kept], total[kept], owner[kept], starts)


def _wide_enough(weight: Array, factor: int) -> Array:
    """int64 when the whole weight times twice the factor fits, else Python integers."""
    if weight.dtype == object or float(weight.sum(dtype=np.float64)) * 2 * factor >= SAFE:
        return np.array([int(value) for value in weight], dtype=object)
    return weight.astype(np.int64)


def _at_most(limit: int, total: Array) -> Array:
    return np.minimum(limit if total.dtype == object else min(limit, 2 * SAFE), total)


def _draw(runs: _Runs, costs: Callable[[_Runs], Array], rate: Fraction, noise: NoiseSource) -> Array:
    chosen = choose(Candidates(costs(runs), runs.length, runs.starts), rate, noise)
    return runs.first[chosen] + noise.uniform(runs.length[chosen])
