"""Are released quantiles and modes drawn from the law they are priced for? False alarms: 1e-6 per test."""

from fractions import Fraction

import numpy as np
import pytest

from service.core.boundary import Array
from service.core.plan import ONE
from service.privacy.mechanisms.quantile import FromBottom, FromTop, Histograms, ModeDraw, Quantile, RankDraw
from service.privacy.noise.sampling import SecureNoise
from tests.statistical.laws import FALSE_ALARM, shares_p_value

DRAWS = 20_000
ROWS = [0, 0, 3, 0, 1, 9, 0, 0, 0, 4, 2, 0]
BINS = len(ROWS)
Rank = Quantile | FromTop | FromBottom


def copies_of(rows: list[int], groups: int) -> Histograms:
    """The same histogram in many groups."""
    occupied = np.flatnonzero(rows)
    return Histograms(
        groups,
        BINS,
        np.repeat(np.arange(groups), occupied.size),
        np.tile(occupied, groups),
        np.tile(np.array(rows)[occupied] * ONE, groups),
    )


def law(rank: Rank, rows_per_unit: int, epsilon: float) -> list[float]:
    """P[j] proportional to exp(epsilon·u(j)/(2·sensitivity)), written as in docs/mechanisms.md, in rows."""
    n = float(sum(ROWS))
    weights = []
    for j in range(BINS):
        below, upto = float(sum(ROWS[:j])), float(sum(ROWS[: j + 1]))
        if isinstance(rank, Quantile):
            p, moved = float(rank.p), max(float(rank.p), 1 - float(rank.p))
            missed = max(0.0, (1 - p) * below - p * (n - below), p * (n - upto) - (1 - p) * upto)
        else:
            goal, moved = min(rank.rank / ONE, n / 2), 1.0
            above, not_above = (n - upto, n - below) if isinstance(rank, FromTop) else (below, upto)
            missed = max(0.0, above - goal, goal - not_above)
        weights.append(np.exp(-epsilon * missed / (2 * rows_per_unit * moved)))
    return weights


def drawn(rank: Rank, rows_per_unit: int, epsilon: Fraction) -> Array:
    return RankDraw(rank, rows_per_unit, epsilon).release(copies_of(ROWS, DRAWS), SecureNoise())


RANKS = [
    Quantile(Fraction(1, 2)),
    Quantile(Fraction(9, 10)),
    Quantile(Fraction(0)),
    FromTop(3 * ONE),
    FromBottom(2 * ONE),
    FromTop(50 * ONE),
]


@pytest.mark.parametrize("rank", RANKS, ids=str)
@pytest.mark.parametrize("rows_per_unit", [1, 4])
def test_ranks_follow_the_exponential_law(rank: Rank, rows_per_unit: int) -> None:
    seen = drawn(rank, rows_per_unit, Fraction(3, 2))
    assert shares_p_value(seen, law(rank, rows_per_unit, 1.5)) > FALSE_ALARM


def test_the_fit_catches_twice_the_epsilon() -> None:
    """The twin that forgets the 2 of the exponential mechanism would cost twice what is charged."""
    seen = drawn(RANKS[0], 1, Fraction(3))
    assert shares_p_value(seen, law(RANKS[0], 1, 1.5)) < FALSE_ALARM


def test_the_fit_catches_answers_at_the_low_end_of_a_gap() -> None:
    runs = copies_of(ROWS, DRAWS)
    uniform = RankDraw(RANKS[0], 4, Fraction(1, 2)).release(runs, SecureNoise())
    lazy = np.array([max(b for b in range(j + 1) if b == 0 or ROWS[b - 1] or ROWS[b]) for j in range(BINS)])[uniform]
    assert shares_p_value(uniform, law(RANKS[0], 4, 0.5)) > FALSE_ALARM
    assert shares_p_value(lazy, law(RANKS[0], 4, 0.5)) < FALSE_ALARM


def test_an_empty_group_is_answered_uniformly() -> None:
    empty = np.zeros(0, dtype=np.int64)
    seen = RankDraw(RANKS[0], 1, Fraction(1)).release(Histograms(DRAWS, BINS, empty, empty, empty), SecureNoise())
    assert shares_p_value(seen, [1.0] * BINS) > FALSE_ALARM


@pytest.mark.parametrize("rows_per_unit", [1, 4])
def test_modes_follow_the_one_sided_exponential_law(rows_per_unit: int) -> None:
    seen = ModeDraw(rows_per_unit, Fraction(1)).release(copies_of(ROWS, DRAWS), SecureNoise())
    scores = [np.exp(rows / rows_per_unit) for rows in ROWS]
    assert shares_p_value(seen, scores) > FALSE_ALARM
    assert shares_p_value(seen, [score**0.5 for score in scores]) < FALSE_ALARM
