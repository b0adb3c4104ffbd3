"""Intervals of quantiles from counts around the choice."""

from fractions import Fraction

import numpy as np
import pytest

from service.core.boundary import Array
from service.core.plan import ONE
from service.privacy.mechanisms.bracket import Bracket, _Rings
from service.privacy.mechanisms.quantile import FromBottom, FromTop, Histograms, Quantile
from service.privacy.noise.laws import GAUSSIAN, LAPLACE
from service.privacy.noise.sampling import SecureNoise
from tests.unit.privacy.questions import Silent

HALF = Quantile(Fraction(1, 2))


def even(groups: int, bins: int, each: int) -> Histograms:
    """The same weight in every bin of every group."""
    group, at = np.repeat(np.arange(groups), bins), np.tile(np.arange(bins), groups)
    return Histograms(groups, bins, group, at, np.full(groups * bins, each * ONE))


@pytest.mark.parametrize("chosen", [0, 3, 49, 50, 99])
@pytest.mark.parametrize("groups", [1, 30_000])
def test_the_interval_holds_the_true_quantile_wherever_the_choice_fell(chosen: int, groups: int) -> None:
    bracket = Bracket(1, 100, LAPLACE, Fraction(1000))
    exact = even(1, 100, 50)
    many = Histograms(groups, 100, exact.group, exact.bin, exact.weight)  # all rows in the first group
    low, high = bracket.release(many, np.full(groups, chosen), HALF, Silent())
    assert low[0] <= 49 <= high[0]
    assert high[0] - low[0] <= 5 * abs(chosen - 49) + 5


def test_a_group_without_rows_has_the_whole_range() -> None:
    nothing = Histograms(500, 64, *(np.zeros(0, dtype=np.int64) for _ in range(3)))
    low, high = Bracket(1, 64, GAUSSIAN, Fraction(1, 8)).release(nothing, np.full(500, 20), HALF, SecureNoise())
    assert np.mean((low == 0) & (high == 63)) > 0.8


@pytest.mark.parametrize("groups", [100, 10**6])
@pytest.mark.parametrize("rank", [HALF, FromTop(3)])
def test_the_rings_reach_the_end_of_the_range(groups: int, rank: Quantile | FromTop) -> None:
    for bins in (1, 2, 3, 17, 4096):
        far = Bracket(1, bins, LAPLACE, Fraction(1))._distances(groups, rank)
        assert far[-1] >= bins - 1
        assert (np.diff(far) > 0).all()


@pytest.mark.parametrize("rows", [300, 30_000])
def test_extremes_reach_from_the_choice_to_the_end_of_the_range(rows: int) -> None:
    """Where rows beyond the choice are many: from it. Where they are few: from further inside, both ways alike."""
    exact, chosen = even(200, 300, max(1, rows // 300)), np.full(200, 250)
    bracket = Bracket(1, 300, LAPLACE, Fraction(1, 2))
    low, high = bracket.release(exact, chosen, FromTop(10 * ONE), SecureNoise())
    assert (high == 299).all() and (low <= 250).all()
    assert np.mean(low == 250) > 0.95
    upside_down = Histograms(200, 300, exact.group, 299 - exact.bin, exact.weight)
    first, last = bracket.release(upside_down, 299 - chosen, FromBottom(10 * ONE), SecureNoise())
    assert (first == 0).all() and np.mean(last == 49) > 0.95


def test_an_extreme_of_nothing_may_be_anywhere() -> None:
    nothing = Histograms(1000, 64, *(np.zeros(0, dtype=np.int64) for _ in range(3)))
    low, high = Bracket(1, 64, LAPLACE, Fraction(1)).release(nothing, np.full(1000, 40), FromTop(1), SecureNoise())
    assert np.mean(low == 0) > 0.8 and (high == 63).all()


def test_more_budget_makes_narrower_intervals() -> None:
    exact, chosen = even(50, 1000, 20), np.full(50, 500)
    widths = []
    for epsilon in (Fraction(1, 100), Fraction(1)):
        low, high = Bracket(2, 1000, LAPLACE, epsilon).release(exact, chosen, HALF, SecureNoise())
        widths.append(np.median(high - low))
    assert widths[1] < widths[0] / 4


def test_the_charge_is_for_all_rows_of_a_unit() -> None:
    laplace, gaussian = Bracket(7, 9, LAPLACE, Fraction(1, 3)), Bracket(7, 9, GAUSSIAN, Fraction(1, 3))
    assert laplace.event.l1 == 7 * ONE  # type: ignore[union-attr]
    assert laplace.event.l1 / laplace.event.scale == Fraction(1, 3)  # type: ignore[union-attr]
    assert gaussian.event.l2_squared / (2 * gaussian.event.sigma_squared) == Fraction(1, 3)  # type: ignore[union-attr]


def test_every_row_falls_into_exactly_one_cell() -> None:
    rng = np.random.default_rng(3)
    pairs = np.unique(rng.integers(0, 40 * 97, 600))
    exact = Histograms(40, 97, pairs // 97, pairs % 97, rng.integers(1, ONE, pairs.size))
    far = Bracket(1, 97, LAPLACE, Fraction(1))._distances(40, HALF)
    rings = _Rings(far, rng.integers(0, 97, 40), 97)
    cells = rings.weights(exact)
    assert not cells[~rings.inside].any(), "cells beyond the grid hold nothing, and get no noise"
    assert cells.sum(axis=0).tolist() == np.bincount(exact.group, exact.weight, 40).astype(int).tolist()


class Recorder(SecureNoise):
    """Remembers the scales it was asked for."""

    def __init__(self) -> None:
        self.scales: list[Fraction] = []

    def discrete_laplace(self, scale: Fraction, size: int) -> Array:
        self.scales.append(scale)
        return super().discrete_laplace(scale, size)


def test_what_is_drawn_is_what_is_charged() -> None:
    recorder = Recorder()
    bracket = Bracket(3, 50, LAPLACE, Fraction(1, 4))
    bracket.release(even(2, 50, 9), np.array([20, 30]), HALF, recorder)
    assert recorder.scales == [bracket.event.scale] == [Fraction(12 * ONE)]  # type: ignore[union-attr]
