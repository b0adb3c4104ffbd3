"""Bounds found privately: the worked example, and how often the threshold lets an empty bin pass."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binomtest

from service.core.boundary import Array
from service.core.events import GaussianEvent, LaplaceEvent
from service.core.plan import ONE
from service.privacy.mechanisms.approximate_bounds import ApproximateBounds, bins_needed
from service.privacy.noise.laws import GAUSSIAN, LAPLACE, LAWS, Law
from service.privacy.noise.sampling import SecureNoise
from tests.statistical.laws import FALSE_ALARM

INPUTS = [0, 0, 0, 0, 1, 3, 7, 8, 8, 8]


class Silent(SecureNoise):
    """No noise: what the rule does with the exact counts."""

    def discrete_laplace(self, scale: Fraction, size: int) -> Array:
        return np.zeros(size, dtype=np.int64)

    def discrete_gaussian(self, sigma_squared: Fraction, size: int) -> Array:
        return np.zeros(size, dtype=np.int64)


def counts(values: list[int], bounds: ApproximateBounds) -> Array:
    """One row per unit."""
    result = np.zeros(2 * bounds.bins, dtype=np.int64)
    for value in values:
        size = next(i for i in range(bounds.bins) if abs(value) <= bounds.scale << i)
        result[size if value >= 0 else bounds.bins + size] += ONE
    return result


def test_the_worked_example_gives_zero_to_eight() -> None:
    bounds = ApproximateBounds(1, 4, LAPLACE, Fraction(1), Fraction(9, 10))
    assert bounds.threshold / ONE == pytest.approx(3.51, abs=0.005)
    assert bounds.release(counts(INPUTS, bounds), Silent()) == (0, 8)
    assert bounds.event == LaplaceEvent(Fraction(ONE), Fraction(ONE))


def test_the_worked_example_with_gaussian_noise() -> None:
    bounds = ApproximateBounds(1, 4, GAUSSIAN, Fraction(1, 2), Fraction(9, 10))
    assert bounds.threshold / ONE == pytest.approx(2.17, abs=0.005)
    assert bounds.release(counts(INPUTS, bounds), Silent()) == (0, 8)
    assert bounds.event == GaussianEvent(Fraction(ONE**2), Fraction(ONE**2))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([-5] * 20, (-8, -4)),
        ([-5] * 20 + [5] * 20, (-8, 8)),
        ([-1] * 20, (-1, 0)),
        ([0] * 20, (0, 1)),
        ([3] * 20, (2, 4)),
        ([6], (4, 8)),  # nothing passes: the largest count gives both
    ],
)
def test_bounds_are_the_outer_edges_of_the_bins_that_pass(values: list[int], expected: tuple[int, int]) -> None:
    bounds = ApproximateBounds(1, 4, LAPLACE, Fraction(1), Fraction(9, 10))
    assert bounds.release(counts(values, bounds), Silent()) == expected


def test_every_code_of_a_range_has_a_bin() -> None:
    for low, high, scale in [(0, 1, 1), (-5, 8, 1), (0, 9, 1), (-1000, 3, 7), (0, 0, 1), (-(2**31), 2**31, 1)]:
        bins = bins_needed(low, high, scale)
        reach = scale << (bins - 1)
        assert reach >= max(abs(low), abs(high))
        assert bins == 1 or reach // 2 < max(abs(low), abs(high))


def passing_rate(law: Law, runs: int, *, lowered: float = 0.0) -> int:
    """In how many of `runs` some empty bin passes, when all values are in one bin."""
    bounds = ApproximateBounds(1, 6, law, Fraction(1, 4), Fraction(9, 10))
    noise = SecureNoise()
    size = runs * (2 * bounds.bins - 1)
    if law is LAPLACE:
        drawn = noise.discrete_laplace(4 * Fraction(ONE), size)
    else:
        drawn = noise.discrete_gaussian(2 * Fraction(ONE) ** 2, size)
    return int((drawn.reshape(runs, -1) >= bounds.threshold - lowered * ONE).any(axis=1).sum())


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_an_empty_bin_passes_as_rarely_as_the_threshold_says(law: Law) -> None:
    runs = 20_000
    assert binomtest(passing_rate(law, runs), runs, 0.1).pvalue > FALSE_ALARM
    assert binomtest(passing_rate(law, runs, lowered=1.0), runs, 0.1).pvalue < FALSE_ALARM


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_many_people_get_their_bounds_with_the_promised_probability(law: Law) -> None:
    bounds = ApproximateBounds(1, 6, law, Fraction(1, 4), Fraction(9, 10))
    exact = counts([1] * 500 + [20] * 500, bounds)
    hits = sum(bounds.release(exact, SecureNoise()) == (0, 32) for _ in range(400))
    assert binomtest(hits, 400, 0.9, alternative="less").pvalue > FALSE_ALARM
