"""A tree of noisy counts gives the right quantiles, and is charged for what it draws."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.boundary import Array
from service.core.plan import ONE
from service.privacy.mechanisms.quantile import Histograms
from service.privacy.mechanisms.tree import CountTree, _Descent, branching
from service.privacy.noise.laws import GAUSSIAN, LAPLACE, LAWS, Law
from service.privacy.noise.sampling import SecureNoise
from tests.unit.privacy.questions import Silent

DECILES = [Fraction(i, 10) for i in range(1, 10)]


def histogram(rows: Array, bins: int, groups: int = 1) -> Histograms:
    """The same rows in every group."""
    at, counts = np.unique(rows, return_counts=True)
    group = np.repeat(np.arange(groups), at.size)
    return Histograms(groups, bins, group, np.tile(at, groups), np.tile(counts * ONE, groups))


@pytest.mark.parametrize("bins", [2, 3, 17, 100, 1000, 4096])
def test_without_noise_a_tree_gives_the_quantiles(bins: int) -> None:
    rows = np.sort(np.random.default_rng(bins).integers(0, bins, 501))
    found = CountTree(1, bins, LAPLACE, Fraction(1000)).release(histogram(rows, bins), DECILES, Silent())
    true = [rows[int(np.ceil(p * rows.size)) - 1] for p in DECILES]
    assert found[:, 0, 0].tolist() == true
    assert (found[:, 1, 0] <= true).all() and (found[:, 2, 0] >= true).all()


def test_groups_are_apart_and_may_be_cut_into_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.privacy.mechanisms.tree.BLOCK", 300)  # two groups at a time
    group = np.array([4, 4, 0, 2, 2, 2])
    at = np.array([90, 10, 50, 5, 6, 7])
    exact = Histograms(5, 100, group, at, np.full(6, 3 * ONE))
    found = CountTree(1, 100, GAUSSIAN, Fraction(1000)).release(exact, [Fraction(1, 2)] * 5, Silent())
    assert found[0, 0, [0, 2, 4]].tolist() == [50, 6, 10]


def test_a_group_without_rows_has_the_whole_range() -> None:
    nothing = Histograms(500, 64, *(np.zeros(0, dtype=np.int64) for _ in range(3)))
    found = CountTree(1, 64, GAUSSIAN, Fraction(1, 8)).release(nothing, DECILES, SecureNoise())
    assert np.mean((found[4, 1] == 0) & (found[4, 2] == 63)) > 0.7
    assert ((found >= 0) & (found < 64)).all()


def test_no_groups_no_draws() -> None:
    nothing = Histograms(0, 64, *(np.zeros(0, dtype=np.int64) for _ in range(3)))
    assert CountTree(1, 64, LAPLACE, Fraction(1)).release(nothing, DECILES, SecureNoise()).shape == (9, 3, 0)


def test_weights_beyond_64_bits_are_counted_exactly() -> None:
    huge = np.array([2**70, 2**70, 2**71], dtype=object)
    exact = Histograms(1, 4096, np.zeros(3, dtype=np.int64), np.array([5, 700, 3000]), huge)
    found = CountTree(2**31, 4096, LAPLACE, Fraction(10**6)).release(exact, [Fraction(1, 4), Fraction(9, 10)], Silent())
    assert found[:, 0, 0].tolist() == [5, 3000]


@pytest.mark.parametrize(
    ("bins", "law", "levels"), [(2, LAPLACE, 1), (16, LAPLACE, 1), (4096, LAPLACE, 3), (4096, GAUSSIAN, 4)]
)
def test_levels_are_those_with_the_least_noise(bins: int, law: Law, levels: int) -> None:
    tree = CountTree(1, bins, law, Fraction(1, 2))
    assert tree.levels == levels
    assert tree.branch**levels >= bins


def test_branching_is_the_least_that_reaches_every_bin() -> None:
    for bins in range(1, 4200):
        for levels in (1, 2, 3, 4):
            branch = branching(bins, levels)
            assert branch**levels >= bins
            assert branch == 2 or (branch - 1) ** levels < bins


def test_the_charge_is_for_every_level() -> None:
    laplace, gaussian = CountTree(7, 4096, LAPLACE, Fraction(1, 3)), CountTree(7, 4096, GAUSSIAN, Fraction(1, 3))
    assert laplace.event.l1 == 3 * 7 * ONE  # type: ignore[union-attr]
    assert laplace.event.l1 / laplace.event.scale == Fraction(1, 3)  # type: ignore[union-attr]
    assert gaussian.event.l2_squared == 4 * (7 * ONE) ** 2  # type: ignore[union-attr]
    assert gaussian.event.l2_squared / (2 * gaussian.event.sigma_squared) == Fraction(1, 3)  # type: ignore[union-attr]


class Recorder(SecureNoise):
    """Remembers the scales and sizes it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[Fraction, int]] = []

    def discrete_laplace(self, scale: Fraction, size: int) -> Array:
        self.asked.append((scale, size))
        return np.zeros(size, dtype=np.int64)


def test_a_node_is_drawn_once_however_many_quantiles_read_it() -> None:
    """Twice the same rank goes the same way: not one draw more. Every draw has the scale of the charge."""
    exact = histogram(np.arange(4096), 4096, groups=3)
    once, twice = Recorder(), Recorder()
    tree = CountTree(2, 4096, LAPLACE, Fraction(1, 4))
    tree.release(exact, [Fraction(1, 2)], once)
    tree.release(exact, [Fraction(1, 2)] * 2, twice)
    assert once.asked == twice.asked
    assert {scale for scale, _ in once.asked} == {tree.event.scale} == {Fraction(3 * 2 * 4 * ONE)}  # type: ignore[union-attr]
    assert once.asked[0][1] == 3 * 16, "one family per group on the first level"


def nodes(tree: CountTree, exact: Histograms) -> Array:
    """Every node of every level without noise."""
    found = []
    for level in range(tree.levels):
        every = _Descent(tree, exact, [Fraction(1, 2)], Silent())
        families = tree.branch**level
        every.group = np.repeat(np.arange(exact.groups), families)
        every.node = np.tile(np.arange(families), exact.groups)
        found.append(every._children(level).ravel())
    return np.concatenate(found)


@settings(max_examples=40, deadline=None)
@given(
    others=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 299)), max_size=20),
    theirs=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 299)), min_size=1, max_size=6),
    law=st.sampled_from(LAWS),
)
def test_one_unit_moves_all_nodes_by_no_more_than_the_charge_is_for(
    others: list[tuple[int, int]], theirs: list[tuple[int, int]], law: Law
) -> None:
    """A unit of c rows whose weights add up to the bound, over any groups and bins."""
    bound = len(theirs)
    tree = CountTree(bound, 300, law, Fraction(1))
    moved = np.abs(nodes(tree, of_rows(others + theirs)) - nodes(tree, of_rows(others)))
    event = tree.event
    if law is LAPLACE:
        assert moved.sum() == tree.levels * bound * ONE == event.l1  # type: ignore[union-attr]
    else:
        assert (moved**2).sum() <= event.l2_squared  # type: ignore[union-attr]
    assert moved.sum() > bound * ONE, "a charge that forgets the levels would be caught"


def of_rows(rows: list[tuple[int, int]]) -> Histograms:
    pairs, counts = np.unique(np.array(rows, dtype=np.int64).reshape(-1, 2), axis=0, return_counts=True)
    return Histograms(3, 300, pairs[:, 0], pairs[:, 1], counts * ONE)
