"""The rival of the exponential mechanism must be a fair one."""

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.count_tree import CountTree
from service.core.plan import ONE
from service.privacy.mechanisms.quantile import Histograms
from service.privacy.sampling import SecureNoise
from tests.unit.privacy.questions import Silent


def test_without_noise_the_tree_gives_the_quantiles() -> None:
    exact = Histograms(1, 300, np.zeros(4, int), np.array([3, 7, 200, 299]), np.array([10, 20, 30, 40]) * ONE)
    tree = CountTree(1, 300, "laplace", Fraction(1))
    ranks = [Fraction(1, 10), Fraction(1, 4), Fraction(1, 2), Fraction(99, 100)]
    assert [int(bins[0]) for bins in tree.quantiles(tree.release(exact, Silent()), ranks)] == [3, 7, 200, 299]


def test_fitting_the_levels_to_each_other_lowers_the_error() -> None:
    nothing = Histograms(200, 256, *(np.zeros(0, dtype=np.int64) for _ in range(3)))
    tree = CountTree(1, 256, "gaussian", Fraction(1, 8))
    released = tree.release(nothing, SecureNoise())
    plain = released[-1].astype(float) / ONE
    middle = slice(0, 128)
    assert tree.consistent(released)[middle].sum(axis=0).std() < 0.6 * plain[middle].sum(axis=0).std()


@pytest.mark.parametrize(("bins", "levels"), [(2, 1), (16, 1), (17, 2), (4096, 3)])
def test_levels_follow_the_number_of_bins(bins: int, levels: int) -> None:
    tree = CountTree(1, bins, "laplace", Fraction(1, 2))
    assert tree.levels == levels
    assert tree.event.l1 / tree.event.scale == Fraction(1, 2)  # type: ignore[union-attr]
