"""Is the noise of a tree of counts the one that is charged, and its deviation the one that intervals use?"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from service.core.boundary import Array, Floats
from service.core.plan import ONE
from service.privacy.mechanisms.quantile import Histograms
from service.privacy.mechanisms.tree import CountTree, _Descent
from service.privacy.noise.laws import GAUSSIAN, LAWS, Law
from service.privacy.noise.sampling import SecureNoise
from tests.statistical.laws import FALSE_ALARM, gaussian_below, laplace_below, p_value

NOTHING = np.zeros(0, dtype=np.int64)
GROUPS = 20_000


def empty(groups: int, bins: int) -> Histograms:
    return Histograms(groups, bins, NOTHING, NOTHING, NOTHING)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_every_level_has_the_noise_that_is_charged(law: Law) -> None:
    """A unit of three rows on a tree of several levels: each node's noise is for three rows on all levels."""
    amount, bins = Fraction(1, 2), 4096
    tree = CountTree(3, bins, law, amount)
    reach = tree.levels * 3 * ONE
    charged = laplace_below(reach / amount)
    forgetful = laplace_below(3 * ONE / amount)  # the twin that charges for one level
    if law is GAUSSIAN:
        charged = gaussian_below(tree.levels * (3 * ONE) ** 2 / (2 * amount))
        forgetful = gaussian_below((3 * ONE) ** 2 / (2 * amount))
    walk = _Descent(tree, empty(GROUPS, bins), [Fraction(1, 2)], SecureNoise())
    for level in range(tree.levels):
        drawn = walk._children(level)[:GROUPS, 5].astype(np.int64)  # one node of each group
        assert p_value(drawn, charged, 64 * reach) > FALSE_ALARM
        assert p_value(drawn, forgetful, 64 * reach) < FALSE_ALARM
        walk._step(level)


class Fixed(_Descent):
    """Goes where it is told, and keeps how far off each edge was in deviations as stated."""

    def __init__(self, tree: CountTree, path: Sequence[int], p: Fraction) -> None:
        super().__init__(tree, empty(GROUPS, tree.bins), [p], SecureNoise())
        self.told = list(path)
        self.off: list[Floats] = []
        self.plain: list[Floats] = []

    def _taken(self, excess: Floats) -> Array:
        nodes = np.arange(1, self.branch + 1) + sum(self.told[: len(self.path)])  # summed to reach each edge
        kept = slice(0, GROUPS)
        self.off.append((excess / np.sqrt(self.tree.noise.variance * self._spread()))[kept])
        self.plain.append((excess / np.sqrt(self.tree.noise.variance * nodes))[kept])
        return np.full(self.node.size, self.told[len(self.path)])


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("p", [Fraction(1, 2), Fraction(1, 10)])
def test_the_stated_deviation_is_that_of_the_difference(p: Fraction, law: Law) -> None:
    """Of (weight up to an edge) - p·(all weight), at every edge along some ways down."""
    tree = CountTree(1, 1000, law, Fraction(1))
    for path in ([0] * tree.levels, [tree.branch // 2] * tree.levels, [tree.branch - 1, 1] + [3] * tree.levels):
        walk = Fixed(tree, path[: tree.levels], p)
        walk.run()
        for level in walk.off:
            # 20,000 groups know a deviation to 0.5% (0.9% with Laplace tails); five of those
            assert np.abs(level.std(axis=0) - 1).max() < 0.045
            assert np.abs(level.mean(axis=0)).max() < 0.04
    assert np.abs(walk.plain[-1].std(axis=0) - 1).max() > 0.1, "the twin that counts nodes would be seen"
