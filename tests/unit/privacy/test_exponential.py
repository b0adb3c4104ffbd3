"""The exact draw of the exponential mechanism, case by case."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.privacy.mechanisms import exponential
from service.privacy.mechanisms.exponential import SHARE_BITS, Candidates, choose, exact_choice
from service.privacy.noise.decided import Words, exp_bounds
from service.privacy.noise.sampling import SecureNoise


class Scripted(SecureNoise):
    """One word for every draw, and the same bits whenever more are asked for."""

    def __init__(self, word: int, further: int = 0) -> None:
        self.word, self.further, self.asked = word, further, 0

    def words(self, size: int) -> Words:
        return np.full(size, self.word, dtype=np.uint64)

    def bits(self, k: int) -> int:
        self.asked += 1
        return self.further & ((1 << k) - 1)


def two(costs: list[int]) -> Candidates:
    return Candidates(np.array(costs), np.ones(len(costs), dtype=np.int64), np.array([0, len(costs)]))


@pytest.mark.parametrize(("further", "entry"), [(0, 0), (2**64 - 1, 1)])
def test_a_number_on_the_edge_between_two_entries_asks_for_more_bits(further: int, entry: int) -> None:
    """The edge lies at 1/(1 + 1/e), irrational: the further bits decide on which side the number is."""
    edge = int(2**SHARE_BITS / (1 + np.exp(-1.0)))
    low, high = edge - 4096, edge + 4096  # the edge in floats is off by far less
    while high - low > 1:
        middle = (low + high) // 2
        sides = {exact_choice(([0, 1], [1, 1]), Fraction(1), middle, Scripted(0, bits)) for bits in (0, 2**64 - 1)}
        if sides == {0}:
            low = middle
        elif sides == {1}:
            high = middle
        else:
            low = high = middle
    source = Scripted(low << 2, further)
    assert choose(two([0, 1]), Fraction(1), source).tolist() == [entry]
    assert source.asked >= 1


def test_equal_halves_split_at_one_half_exactly() -> None:
    assert choose(two([7, 7]), Fraction(1, 3), Scripted((1 << 63) - 1, 2**64 - 1)).tolist() == [0]
    assert choose(two([7, 7]), Fraction(1, 3), Scripted(1 << 63, 0)).tolist() == [1]


def test_the_largest_number_falls_into_the_last_entry() -> None:
    assert choose(two([0, 0, 100]), Fraction(1), Scripted(2**64 - 1, 2**64 - 1)).tolist() == [2]
    assert choose(two([0]), Fraction(1), Scripted(2**64 - 1)).tolist() == [0]


def test_huge_costs_and_copies_are_no_trouble() -> None:
    costs = np.array([10**40, 10**40 + 1, 10**60], dtype=object)
    candidates = Candidates(costs, np.array([1, 2**62, 2**62]), np.array([0, 3]))
    assert choose(candidates, Fraction(1), SecureNoise()).tolist() == [1]


def test_no_draws_need_no_candidates() -> None:
    empty = np.zeros(0, dtype=np.int64)
    assert choose(Candidates(empty, empty, np.zeros(1, dtype=np.int64)), Fraction(1), SecureNoise()).size == 0


def test_a_million_candidates_in_one_draw_stay_within_their_group() -> None:
    rng = np.random.default_rng()
    costs = rng.integers(0, 50, 200_000)
    candidates = Candidates(costs, np.ones(costs.size, dtype=np.int64), np.array([0, 100_000, 200_000]))
    first, second = choose(candidates, Fraction(2), SecureNoise()).tolist()
    assert 0 <= first < 100_000 <= second < 200_000


@settings(deadline=None)
@given(
    groups=st.lists(
        st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 2**40)), min_size=1, max_size=12),
        min_size=1,
        max_size=4,
    ),
    rate=st.fractions(Fraction(1, 10**7), Fraction(3), max_denominator=10**9),
)
def test_running_shares_are_well_within_the_band(groups: list[list[tuple[int, int]]], rate: Fraction) -> None:
    """A quarter of the band is all that they may be off, in every group beside every other."""
    entries = [entry for group in groups for entry in group]
    starts = np.concatenate(([0], np.cumsum([len(group) for group in groups])))
    costs, copies = (np.array([entry[i] for entry in entries]) for i in range(2))
    owner = np.repeat(np.arange(len(groups)), np.diff(starts))
    seen = exponential._running_shares(Candidates(costs, copies, starts), rate, owner).tolist()
    for group, start in zip(groups, starts.tolist(), strict=False):
        least = min(cost for cost, _ in group)
        weights = [copy * Fraction(exp_bounds((cost - least) * rate, 300)[0], 2**300) for cost, copy in group]
        for i in range(len(group)):
            truth = sum(weights[: i + 1]) / sum(weights) * 2**SHARE_BITS
            assert abs(seen[start + i] - truth) <= (exponential.BAND + exponential.BAND_PER_CANDIDATE * len(group)) / 4
