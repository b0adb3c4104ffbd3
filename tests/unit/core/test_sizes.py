"""What is public about sizes: the arithmetic of a profile, and that nothing is lost on the way through the store."""

import pytest

from service.core.size_words import profile_in_words
from service.core.sizes import (
    MOST_UNSEEN,
    PrivateSize,
    Profile,
    PublicSize,
    Size,
    size_from_text,
    size_of_profile,
    size_to_text,
)

EXACT = Profile((5, 3, 2, 1), 0.0, "q_1")  # 5 units with 1 row, 3 with 2, 2 with 3 to 4, 1 with 5 to 8


def test_bins_end_at_the_most_that_a_unit_keeps_and_hold_everybody() -> None:
    assert list(EXACT.bins(8)) == [(1, 1, 5), (2, 2, 3), (3, 4, 2), (5, 8, 1)]
    assert list(EXACT.bins(6)) == [(1, 1, 5), (2, 2, 3), (3, 4, 2), (5, 6, 1)]
    assert list(EXACT.bins(2)) == [(1, 1, 5), (2, 2, 6)]


def test_bins_apart_are_the_same_with_one_entry_for_each_released_count() -> None:
    assert list(EXACT.bins_apart(2)) == [(1, 1, 5), (2, 2, 3), (2, 2, 2), (2, 2, 1)]
    assert list(EXACT.bins_apart(6)) == list(EXACT.bins(6))
    assert list(EXACT.bins_apart(100)) == list(EXACT.bins(100))


def test_without_noise_a_size_is_the_sum_over_upper_edges() -> None:
    size = size_of_profile(EXACT, 8)
    assert (size.rows, size.units) == (5 + 3 * 2 + 2 * 4 + 8, 11)
    assert size.squares == 5 + 3 * 4 + 2 * 16 + 64


def test_noise_adds_slack_in_proportion_to_the_edges() -> None:
    noisy = Profile((0, 0, 0), 10.0, "q_1")
    size = size_of_profile(noisy, 4)
    assert size.units == 70  # 4 deviations of the sum of three counts: 4 · 10 · √3
    assert size.rows == 184  # 4 · 10 · √(1 + 4 + 16)


def test_bins_that_are_merged_bring_their_noise_along() -> None:
    noisy = Profile((0, 0, 0, 0), 10.0, "q_1")
    assert size_of_profile(noisy, 1).units == 80  # all four bins: 4 · 10 · 2


@pytest.mark.parametrize(
    "size",
    [
        PrivateSize(10, 5, 3, None),
        PrivateSize(10, 5, 3, EXACT),
        PublicSize(7, {"code": 2}, {"name": 40}),
    ],
)
def test_sizes_come_back_from_the_store_as_they_were(size: Size) -> None:
    assert size_from_text(size_to_text(size)) == size


def test_the_last_bin_holds_everybody_beyond_and_so_ends_at_what_a_unit_keeps() -> None:
    assert list(EXACT.bins(100))[-1] == (5, 100, 1)
    assert size_of_profile(EXACT, 100).rows == 5 + 3 * 2 + 2 * 4 + 100


@pytest.mark.parametrize(
    ("counts", "kept"),
    [
        ((601, 0, 0, 0, 0), 2),  # twice the edge of the largest bin above six deviations
        ((601, 600, 600, 601, 600), 16),
        ((601, 0, 0, 0, 601), 16),  # never beyond what the bins can tell apart
        ((600, -900, 600, 0, 0), MOST_UNSEEN),  # nobody stands out
    ],
)
def test_what_a_unit_keeps_follows_from_the_largest_bin_that_stands_out(counts: tuple[int, ...], kept: int) -> None:
    assert Profile(counts, 100.0, "q_1").kept == kept


def test_words_round_and_leave_out_what_is_within_the_noise() -> None:
    profile = Profile((30_123, 10_456, 15_789, 4_000, 0, 59, -80), 10.0, "q_1")
    words = profile_in_words(profile, unit="customer", most=16)
    assert words == "about 60,000 customers, about 130,000 rows, half of the customers have at most 2"
    assert profile_in_words(Profile((40, -3), 10.0, "q_1"), unit="company", most=None) == (
        "too few companies to tell: below about 60 with any number of rows"
    )
