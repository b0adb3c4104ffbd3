"""The interval of rows that a bound leaves out contains the true number, over the noise of the profile."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from service.core.reach import Reach, Spread, spread_of
from service.core.sizes import Profile, size_of_profile

RUNS = 3_000
WANTED = 0.95
MOST = 512
Noise = Callable[[np.random.Generator, float, int], "np.ndarray[tuple[int], np.dtype[np.float64]]"]


def laplace(draw: np.random.Generator, deviation: float, size: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return draw.laplace(0, deviation / 2**0.5, size)


def gaussian(draw: np.random.Generator, deviation: float, size: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return draw.normal(0, deviation, size)


def at_upper_edges(draw: np.random.Generator) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Rows per unit: the hardest case for the upper end."""
    return (2 ** draw.integers(0, 10, 2_000)).astype(np.int64)


def at_lower_edges(draw: np.random.Generator) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    exponents = draw.integers(1, 10, 2_000)
    return (2 ** (exponents - 1) + 1).astype(np.int64)


def covered(rows: "np.ndarray[tuple[int], np.dtype[np.int64]]", noise: Noise, *, forgets_noise: bool = False) -> float:
    draw = np.random.default_rng(7)
    exact = np.bincount(np.ceil(np.log2(rows)).astype(int), minlength=10)
    hits, bound, deviation = 0, 20, 12.0
    true = int(np.maximum(rows - bound, 0).sum())
    for _ in range(RUNS):
        counts = tuple(int(each) for each in np.rint(exact + noise(draw, deviation, exact.size)))
        found = spread_of(Reach("visits"), {"visits": size_of_profile(Profile(counts, deviation, "q"), MOST)})
        assert isinstance(found, Spread)
        if forgets_noise:
            found = replace(found, deviation=0.0)
        low, high = found.lost(bound, whole=True) or (0, 0)
        hits += low <= true <= high
    return hits / RUNS


@pytest.mark.parametrize("noise", [laplace, gaussian])
@pytest.mark.parametrize("units", [at_upper_edges, at_lower_edges])
def test_true_losses_lie_within(
    noise: Noise, units: Callable[..., "np.ndarray[tuple[int], np.dtype[np.int64]]"]
) -> None:
    assert covered(units(np.random.default_rng(3)), noise) >= WANTED


@pytest.mark.parametrize("units", [at_upper_edges, at_lower_edges])
def test_a_twin_that_forgets_the_noise_is_caught(
    units: Callable[..., "np.ndarray[tuple[int], np.dtype[np.int64]]"],
) -> None:
    assert covered(units(np.random.default_rng(3)), laplace, forgets_noise=True) < WANTED
