"""95% intervals of the noise, from released values and the known law of the noise alone.

They cover what the noise did; they do not cover what clipping, clamping to bounds or the selection of
groups did, and the receipt says so. Nothing here sees private data.

A released moment is a linear combination of independent noisy coordinates. Its law is normal under
Gaussian noise and a sum of up to three Laplace variables under Laplace noise.
"""

import math
import os
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from service.core.boundary import Floats

CONFIDENCE = 0.95
REPLICAS = 200
BLOCK = 2048
REPLICA_CELLS = 8_000_000  # bounds memory: fewer replicas for very many groups

# Two-sided 95% quantiles of a standardised sum of Laplace variables by its excess kurtosis: none
# (normal), 1.5 (two of one size), 3 (a single one). In between, a parabola is within half a percent.
NORMAL_95, TWO_95, SINGLE_95 = 1.959964, 2.056594, 2.118300


@lru_cache(maxsize=256)
def normal_half_width(confidence: float) -> float:
    return NormalDist().inv_cdf((1 + confidence) / 2)


@lru_cache(maxsize=1024)
def laplace_half_width(scales: tuple[float, ...], confidence: float) -> float:
    """h with P(|Σ X_i| <= h) = confidence for independent Laplace X_i of these scales.

    The characteristic function is Π 1/(1 + b_i²s²); partial fractions make the tail
    P(|Σ| > h) = Σ A_i·exp(-h/b_i), A_i = Π_{j≠i} b_i²/(b_i² - b_j²). Scales that are equal are spread by
    a thousandth around their value, which moves the quantile by less than a millionth part.
    """
    kept = sorted(abs(scale) for scale in scales if abs(scale) > 1e-9 * max(map(abs, scales)))
    if not kept:
        return 0.0
    spread = [scale * (1 + 1e-3 * (i - (len(kept) - 1) / 2)) for i, scale in enumerate(kept)]
    squares = [scale * scale for scale in spread]
    factors = [math.prod(s / (s - other) for other in squares if other is not s) for s in squares]
    low, high = 0.0, 60.0 * sum(spread)
    for _ in range(60):
        middle = (low + high) / 2
        tail = sum(factor * math.exp(-middle / scale) for factor, scale in zip(factors, spread, strict=True))
        low, high = (middle, high) if tail > 1 - confidence else (low, middle)
    return high


@lru_cache(maxsize=1024)
def discrete_laplace_half_width(scale: float, confidence: float) -> int:
    """The smallest whole h with P(|Z| <= h) >= confidence: P(|Z| > h) = 2·t^(h+1)/(1+t), t = exp(-1/scale)."""
    tail = (1 - confidence) * (1 + math.exp(-1 / scale)) / 2
    return max(0, math.ceil(-math.log(tail) * scale - 1 - 1e-9))


@lru_cache(maxsize=1024)
def discrete_gaussian_half_width(variance: float, confidence: float) -> int:
    """The smallest whole h with P(|Z| <= h) >= confidence, by adding up the law."""
    sigma = math.sqrt(variance)
    if sigma > 1000:
        return math.ceil(normal_half_width(confidence) * sigma)
    tail = range(1, math.ceil(12 * sigma) + 3)
    law = [1.0, *(2 * math.exp(-k * k / (2 * variance)) for k in tail)]
    wanted, seen = confidence * sum(law), 0.0
    for k, probability in enumerate(law):
        seen += probability
        if seen >= wanted - 1e-12:
            return k
    raise AssertionError("the law adds up to one")


def quantile_factor(kurtosis: Floats) -> Floats:
    """Half-width of the 95% interval in standard deviations, by the excess kurtosis of the noise."""
    x = np.clip(kurtosis, 0.0, 3.0) / 3.0
    bend = 2 * (NORMAL_95 + SINGLE_95 - 2 * TWO_95)
    slope = SINGLE_95 - NORMAL_95 - bend
    result: Floats = NORMAL_95 + slope * x + bend * x * x
    return result


def fieller(*, n: Floats, t1: Floats, covariance: Floats, factor: Floats) -> tuple[Floats, Floats]:
    """The ratios r for which t1 - r·n is within `factor` deviations of zero (Fieller 1954).

    Where n itself is not clearly above zero the set is unbounded: (-inf, inf), which the caller clamps
    to the bounds of the measure. `covariance` is of (n, t1).
    """
    squared = factor * factor
    a = n * n - squared * covariance[0, 0]
    b = n * t1 - squared * covariance[0, 1]
    c = t1 * t1 - squared * covariance[1, 1]
    root = np.sqrt(np.maximum(b * b - a * c, 0.0))
    bounded = (a > 0) & (n > 0)
    safe = np.where(bounded, a, 1.0)
    low = np.where(bounded, (b - root) / safe, -np.inf)
    high = np.where(bounded, (b + root) / safe, np.inf)
    return low, high


def replica_count(groups: int) -> int:
    return max(20, min(REPLICAS, REPLICA_CELLS // max(1, groups)))


def uniforms(shape: tuple[int, ...]) -> Floats:
    """Uniform on (0, 1), from the operating system. For replicas of released values only, never for noise
    that protects anything."""
    size = math.prod(shape)
    words = np.frombuffer(os.urandom(8 * size), dtype=np.uint64) >> np.uint64(11)
    result: Floats = ((words.astype(np.float64) + 0.5) * 2.0**-53).reshape(shape)
    return result


def standard_normal(shape: tuple[int, ...]) -> Floats:
    """Normal draws of variance 1 (Box and Muller 1958)."""
    first = uniforms(shape)
    result: Floats = np.sqrt(-2.0 * np.log(first)) * np.cos(2.0 * math.pi * uniforms(shape))
    return result


def standard_laplace(shape: tuple[int, ...]) -> Floats:
    """Continuous Laplace draws of variance 1."""
    centred = uniforms(shape) - 0.5
    result: Floats = -np.sign(centred) * np.log1p(-2.0 * np.abs(centred)) / math.sqrt(2.0)
    return result


def replica_noise(
    variances: tuple[float, ...], shape: tuple[int, int], standard: Callable[[tuple[int, ...]], Floats]
) -> Floats:
    """(coordinates, replicas, groups) of continuous noise with these variances, from draws of variance 1.

    Beyond BLOCK groups the draws repeat: each group has its own interval, and needs no noise of its own.
    """
    replicas, groups = shape
    if groups > BLOCK:
        block = replica_noise(variances, (replicas, BLOCK), standard)
        return np.take(block, np.arange(groups) % BLOCK, axis=2)
    result: Floats = standard((len(variances), *shape)) * np.sqrt(np.array(variances))[:, None, None]
    return result


def replicas_between(values: Floats, low: Floats, high: Floats, replicas: int) -> Floats:
    """(replicas, groups) around values of which only the interval is known: half a normal law to either side,
    with its 2.5% and 97.5% points at the ends."""
    (standard,) = replica_noise((1.0,), (replicas, values.size), standard_normal)
    sides = np.where(standard < 0, values - low, high - values)
    result: Floats = values + standard * sides / NORMAL_95
    return np.clip(result, low, high)
