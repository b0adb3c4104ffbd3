"""The laws that the noise claims, and tests of draws against them.

Every test here raises a false alarm with probability at most FALSE_ALARM: it compares counts in cells that
were fixed before the draw, each expected at least EXPECTED times.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from scipy.stats import chi2_contingency, chisquare, norm

from service.core.boundary import Array

FALSE_ALARM = 1e-6
EXPECTED = 20.0
CELLS = 40

Below = Callable[[int], float]  # P[Z <= z]


def laplace_below(scale: Fraction) -> Below:
    """P[Z <= z] of the discrete Laplace law, t**(-z)/(1+t) below zero and mirrored above."""
    odds = 1 + math.exp(-1 / scale)

    def below(z: int) -> float:
        return math.exp(z / scale) / odds if z < 0 else 1 - math.exp(-(z + 1) / scale) / odds

    return below


def gaussian_below(sigma_squared: Fraction) -> Below:
    """P[Z <= z] of the discrete Gaussian law: summed where it is narrow, the normal integral to the next half
    integer where it is wide (they differ by less than 1/(24·sigma²))."""
    sigma = math.sqrt(sigma_squared)
    if sigma > 300:
        return lambda z: float(norm.cdf((z + 0.5) / sigma))
    reach = math.ceil(40 * sigma) + 40
    weights = np.exp(-(np.arange(-reach, reach + 1, dtype=float) ** 2) / (2 * float(sigma_squared)))
    running = np.cumsum(weights / weights.sum())
    return lambda z: 0.0 if z < -reach else float(running[min(z, reach) + reach])


def truncated_below(epsilon: Fraction, bound: int) -> Below:
    weights = np.exp(-float(epsilon) * np.abs(np.arange(-bound, bound + 1)))
    running = np.cumsum(weights / weights.sum())
    return lambda z: 0.0 if z < -bound else float(running[min(z, bound) + bound])


def cells(below: Below, draws: int, reach: int) -> list[int]:
    """Right ends of cells, all but the last: about CELLS equally likely ones, then ever rarer ones in both
    tails as long as EXPECTED draws fall beyond."""
    rare = [0.5**i for i in range(6, 40) if 0.5**i * draws >= 2 * EXPECTED]
    goals = sorted({*rare, *(1 - p for p in rare), *(i / CELLS for i in range(1, CELLS))})
    ends: list[int] = []
    for goal in goals:
        end = _first(below, goal, reach)
        left = below(ends[-1]) if ends else 0.0
        if (below(end) - left) * draws >= EXPECTED and (1 - below(end)) * draws >= EXPECTED:
            ends.append(end)
    return ends


def _first(below: Below, goal: float, reach: int) -> int:
    low, high = -reach, reach
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if below(middle) >= goal else (middle + 1, high)
    return low


def p_value(drawn: Array, below: Below, reach: int) -> float:
    """Chi-squared fit of draws to a law on the integers that is concentrated within ±reach."""
    ends = cells(below, drawn.size, reach)
    edges = np.array(ends, dtype=drawn.dtype)
    seen = np.bincount(np.searchsorted(edges, drawn, side="left"), minlength=len(ends) + 1)
    chances = np.diff([0.0, *(below(end) for end in ends), 1.0])
    return float(chisquare(seen, chances * drawn.size).pvalue)


def low_bits_p_value(drawn: Array, bits: int = 4) -> float:
    """Noise far wider than 2**bits has uniform low bits; noise made of rounded floats has not."""
    residues = np.array([int(value) & ((1 << bits) - 1) for value in drawn])
    return float(chisquare(np.bincount(residues, minlength=1 << bits)).pvalue)


def shares_p_value(chosen: Array, chances: Sequence[float]) -> float:
    """Chi-squared fit of choices to probabilities; rare ones are pooled."""
    expected = np.asarray(chances) / np.sum(chances) * chosen.size
    seen = np.bincount(chosen, minlength=expected.size).astype(float)
    common = expected >= EXPECTED
    if expected[~common].sum() < EXPECTED:
        assert seen[~common].sum() < 6 * EXPECTED, "what is nearly impossible came often"
        return float(chisquare(seen[common], expected[common] / expected[common].sum() * seen[common].sum()).pvalue)
    return float(
        chisquare(
            np.append(seen[common], seen[~common].sum()), np.append(expected[common], expected[~common].sum())
        ).pvalue
    )


def same_law_p_value(ours: Array, theirs: Array) -> float:
    """Two samples of one size, in cells cut at the quantiles of both together."""
    both = np.concatenate([ours, theirs])
    edges = np.unique(np.quantile(both.astype(float), np.linspace(0.02, 0.98, 30)))
    table = [
        np.bincount(np.searchsorted(edges, sample.astype(float)), minlength=edges.size + 1) for sample in (ours, theirs)
    ]
    filled = np.array(table)[:, np.sum(table, axis=0) >= EXPECTED]
    return float(chi2_contingency(filled).pvalue)
