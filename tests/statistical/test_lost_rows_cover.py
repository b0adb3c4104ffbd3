"""What is said of the rows that a bound leaves out is true as often as it says.

The interval in rows, over the noise of the profile: both ends together in 95 % of all cases. The share of a count, over
the noise of the profile and of the answer: either end in 95 %, both together in 90 %.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from service.core.boundary import KeyTable, ReleasedColumn, ReleasedTable
from service.core.plan import Query
from service.core.reach import Reach, Spread, spread_of
from service.core.request import Ask, AskedBounds
from service.core.schema import Schema
from service.core.sizes import Profile, size_of_profile
from service.sql.understand import understand
from service.walk.clipped import clipped
from tests.fixtures.sql.shop import SCHEMA

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


def share_covered(
    rows: "np.ndarray[tuple[int], np.dtype[np.int64]]", noise: Noise, *, groups: int, forgets_noise: bool = False
) -> tuple[float, float, float]:
    """How often the upper end of the share holds, how often the lower, and how often both."""
    draw = np.random.default_rng(11)
    exact = np.bincount(np.ceil(np.log2(rows)).astype(int), minlength=10)
    bound, deviation = 20, 12.0
    lost, counted = int(np.maximum(rows - bound, 0).sum()), int(np.minimum(rows, bound).sum())
    true, answer_std = lost / (lost + counted), counted / 8 / groups**0.5
    hits = np.zeros(3)
    for _ in range(RUNS):
        counts = tuple(int(each) for each in np.rint(exact + noise(draw, deviation, exact.size)))
        sizes = {"orders": size_of_profile(Profile(counts, deviation, "q"), MOST)}
        parts = np.rint(counted / groups + noise(draw, answer_std, groups))
        share = share_said(replace(SCHEMA, sizes=sizes), parts, 0.0 if forgets_noise else answer_std, bound)
        over, under = true <= share[1] + 1e-6, share[0] - 1e-6 <= true
        hits += over, under, over and under
    return tuple(hits / RUNS)


def share_said(
    schema: Schema, values: "np.ndarray[tuple[int], np.dtype[np.float64]]", noise_std: float, bound: int
) -> tuple[float, float]:
    """The share as the answer to a count of all orders states it; as if its noise were that of several groups."""
    query = understood(bound)
    column = ReleasedColumn(values, values, values, noise_std)
    released = ReleasedTable(KeyTable({}, values.size), {query.cores[0].aggregates[0].name: column}, {}, {})
    found = clipped(query.outer.outputs[0], query, schema, [released]).share
    assert found is not None
    return found


@cache
def understood(bound: int) -> Query:
    asked = AskedBounds(rows_per_unit=bound)
    return understand(Ask("shop", "SELECT COUNT(*) AS n FROM orders", bounds=asked), SCHEMA)


@pytest.mark.parametrize("groups", [1, 12])
@pytest.mark.parametrize("noise", [laplace, gaussian])
@pytest.mark.parametrize("units", [at_upper_edges, at_lower_edges])
def test_true_shares_lie_within(
    noise: Noise, units: Callable[..., "np.ndarray[tuple[int], np.dtype[np.int64]]"], groups: int
) -> None:
    upper, lower, both = share_covered(units(np.random.default_rng(3)), noise, groups=groups)
    assert min(upper, lower) >= WANTED
    assert both >= 2 * WANTED - 1


def test_a_twin_that_takes_the_released_count_for_the_true_one_is_caught() -> None:
    """The hardest case for it: units at the upper edges, so that nothing but noise is between truth and upper end."""
    upper, _, _ = share_covered(at_upper_edges(np.random.default_rng(3)), laplace, groups=1, forgets_noise=True)
    assert upper < WANTED
