"""Ranks and modes: the cost of every bin, its sensitivity, and the edges of the grid."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.boundary import Array
from service.core.plan import ONE
from service.privacy.mechanisms import quantile
from service.privacy.mechanisms.quantile import (
    FromBottom,
    FromTop,
    Histograms,
    ModeDraw,
    Quantile,
    RankDraw,
    cap_rank,
    extreme_rank,
)
from service.privacy.noise.sampling import SecureNoise

unhurried = settings(deadline=None)  # a busy machine is no failure
BINS = 9
ranks = st.one_of(
    st.fractions(0, 1, max_denominator=1000).map(Quantile),
    st.integers(1, 40).map(FromTop),
    st.integers(1, 40).map(FromBottom),
)
tables = st.lists(st.lists(st.integers(0, 12), min_size=BINS, max_size=BINS), min_size=1, max_size=4)


def sparse(dense: list[list[int]], kind: type = np.int64) -> Histograms:
    entries = [(g, b, w) for g, row in enumerate(dense) for b, w in enumerate(row) if w]
    group, bins, weight = (np.array([entry[i] for entry in entries], dtype=np.int64) for i in range(3))
    return Histograms(len(dense), BINS, group, bins, weight.astype(kind))


def costs_of(draw: RankDraw | ModeDraw, histograms: Histograms) -> list[list[int]]:
    """The cost of every bin of every group, unfolded from the runs."""
    runs = quantile._runs(histograms, 1000)
    unfolded = np.repeat(draw._costs(runs), runs.length)
    return [[int(cost) for cost in row] for row in unfolded.reshape(histograms.groups, BINS)]


def cost_by_definition(rank: Quantile | FromTop | FromBottom, row: list[int], j: int) -> int:
    total, below, upto = sum(row), sum(row[:j]), sum(row[: j + 1])
    if isinstance(rank, Quantile):
        n, d = rank.p.numerator, rank.p.denominator
        return max(0, (d - n) * below - n * (total - below), n * (total - upto) - (d - n) * upto)
    if isinstance(rank, FromTop):
        goal = min(2 * rank.rank, total)
        return max(0, 2 * (total - upto) - goal, goal - 2 * (total - below))
    goal = min(2 * rank.rank, total)
    return max(0, 2 * below - goal, goal - 2 * upto)


@unhurried
@given(dense=tables, rank=ranks, kind=st.sampled_from([np.int64, object]))
def test_every_bin_costs_what_the_definition_says(
    dense: list[list[int]], rank: Quantile | FromTop | FromBottom, kind: type
) -> None:
    expected = [[cost_by_definition(rank, row, j) for j in range(BINS)] for row in dense]
    assert costs_of(RankDraw(rank, 1, Fraction(1)), sparse(dense, kind)) == expected


@unhurried
@given(dense=tables, rank=ranks, data=st.data())
def test_a_unit_moves_the_costs_of_all_groups_by_at_most_the_sensitivity(
    dense: list[list[int]], rank: Quantile | FromTop | FromBottom, data: st.DataObject
) -> None:
    """The unit's weights fall anywhere; the largest move of each group, summed over groups, is within
    (weight of the unit)·(what one row may move), the denominator of the rate."""
    added = data.draw(st.lists(st.lists(st.integers(0, 3), min_size=BINS, max_size=BINS), min_size=len(dense)))
    joined = [[a + b for a, b in zip(row, more, strict=True)] for row, more in zip(dense, added, strict=False)]
    weight = sum(map(sum, added[: len(dense)]))
    draw = RankDraw(rank, 1, Fraction(1))
    before, after = costs_of(draw, sparse(dense)), costs_of(draw, sparse(joined))
    moved = sum(max(abs(a - b) for a, b in zip(x, y, strict=True)) for x, y in zip(before, after, strict=True))
    allowed = 1 / (2 * ONE * draw.rate)  # epsilon is 1: what one row of weight 1 may move
    assert moved <= weight * allowed


@unhurried
@given(dense=tables, data=st.data())
def test_a_unit_only_raises_the_scores_of_a_mode_and_by_no_more_than_its_weight(
    dense: list[list[int]], data: st.DataObject
) -> None:
    """The cost is the best score minus the bin's own; between two bins it moves by at most the unit's weight."""
    added = data.draw(st.lists(st.integers(0, 3), min_size=BINS, max_size=BINS))
    joined = [[a + b for a, b in zip(dense[0], added, strict=True)], *dense[1:]]
    draw = ModeDraw(1, Fraction(1))
    before, after = costs_of(draw, sparse(dense))[0], costs_of(draw, sparse(joined))[0]
    moves = [a - b for a, b in zip(after, before, strict=True)]
    assert max(moves) - min(moves) <= sum(added)


def test_the_mode_costs_least_where_most_rows_are() -> None:
    assert costs_of(ModeDraw(1, Fraction(1)), sparse([[0, 5, 0, 7, 0, 0, 0, 0, 1]]))[0] == [7, 2, 7, 0, 7, 7, 7, 7, 6]


@pytest.mark.parametrize("rank", [Quantile(Fraction(1, 2)), FromTop(3), FromBottom(3)], ids=str)
def test_an_empty_group_costs_nothing_anywhere(rank: Quantile | FromTop | FromBottom) -> None:
    assert (
        costs_of(RankDraw(rank, 1, Fraction(1)), sparse([[0] * BINS, [1] * BINS, [0] * BINS]))[::2] == [[0] * BINS] * 2
    )


def release(rank: Quantile | FromTop | FromBottom, dense: list[list[int]]) -> Array:
    weights = [[w * ONE for w in row] for row in dense]
    return RankDraw(rank, 1, Fraction(100)).release(sparse(weights), SecureNoise())


def test_with_next_to_no_noise_the_answers_are_the_true_ranks() -> None:
    rows = [[0, 0, 10, 0, 80, 0, 0, 10, 0], [50, 0, 0, 0, 0, 0, 0, 0, 50], [0, 0, 0, 0, 0, 0, 90, 0, 0]]
    assert release(Quantile(Fraction(1, 2)), rows)[[0, 2]].tolist() == [4, 6]
    assert release(Quantile(Fraction(1, 20)), rows).tolist() == [2, 0, 6]
    assert release(Quantile(Fraction(1)), [[10] * 5 + [0] * 4])[0] >= 4
    assert release(FromTop(5 * ONE), rows).tolist() == [7, 8, 6]
    assert release(FromBottom(5 * ONE), rows).tolist() == [2, 0, 6]


def test_a_rank_beyond_half_of_the_rows_gives_the_median_not_the_bottom_of_the_grid() -> None:
    rows = [[0, 0, 0, 10, 80, 10, 0, 0, 0]]
    assert release(FromTop(10**30), rows).tolist() == [4]
    assert release(FromBottom(10**30), rows).tolist() == [4]


def test_ranks_beyond_64_bits_use_big_integers() -> None:
    weight = np.array([2**70, 2**71], dtype=object)
    histograms = Histograms(1, BINS, np.zeros(2, dtype=np.int64), np.array([2, 6]), weight)
    assert RankDraw(Quantile(Fraction(9, 10)), 1, Fraction(1)).release(histograms, SecureNoise()).tolist() == [6]


def test_entries_may_come_in_any_order() -> None:
    shuffled = Histograms(2, BINS, np.array([1, 0, 1]), np.array([7, 3, 5]), np.array([900, 900, 1]) * ONE)
    assert RankDraw(Quantile(Fraction(1, 2)), 1, Fraction(100)).release(shuffled, SecureNoise()).tolist() == [3, 7]


def test_no_groups_give_no_values() -> None:
    assert RankDraw(Quantile(Fraction(1, 2)), 1, Fraction(1)).release(sparse([]), SecureNoise()).size == 0


def test_ranks_of_extremes_and_caps_follow_their_formulas() -> None:
    assert extreme_rank(20, Fraction(1, 2), 4096) == pytest.approx(2 * ONE * 20 / 0.5 * np.log(4096 / 0.05))
    assert cap_rank(Fraction(1, 10)) / ONE == pytest.approx(10 * 2**0.5, rel=1e-6)
