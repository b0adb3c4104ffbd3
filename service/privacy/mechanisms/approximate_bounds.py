"""Bounds of a measure, found privately from a logarithmic histogram."""

import math
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Literal

import numpy as np

from service.core.boundary import Array
from service.core.events import GaussianEvent, LaplaceEvent
from service.core.plan import ONE
from service.privacy.noise.sampling import NoiseSource


@dataclass(frozen=True, slots=True)
class ApproximateBounds:
    """Lower and upper bounds that most units' values respect, once per query.

    Neighbours   all rows of one privacy unit are added or removed.
    Needs        2·`bins` weighted counts: bin i < bins holds codes in (scale·2^(i-1), scale·2^i], bin 0
                 codes in [0, scale]; bin `bins` + i the negative codes of the same size. A unit with c
                 rows weighs ONE // c on each, so ONE in all at most, whatever its values.
    Sensitivity  L1 and L2 of the counts: ONE.
    Guarantee    discrete Laplace noise of scale ONE/epsilon: epsilon-DP. Discrete Gaussian noise of variance
                 ONE²/(2·rho): a·rho at order a. Everything after the noise reads noisy counts only.
    Threshold    an empty bin passes with probability 1 - success^(1/(2·bins - 1)), so with probability
                 `success` no empty bin passes. It decides quality, not privacy: floats are fine.
                 When no bin passes, the largest noisy count gives both bounds: no error, no second draw.
    Checked by   tests/statistical/test_approximate_bounds.py.
    """

    scale: int
    bins: int
    law: Literal["laplace", "gaussian"]
    amount: Fraction  # epsilon, or rho
    success: Fraction = Fraction(99, 100)

    @property
    def event(self) -> LaplaceEvent | GaussianEvent:
        if self.law == "laplace":
            return LaplaceEvent(Fraction(ONE), self.noise_scale)
        return GaussianEvent(Fraction(ONE**2), self.sigma_squared)

    @property
    def noise_scale(self) -> Fraction:
        return ONE / self.amount

    @property
    def sigma_squared(self) -> Fraction:
        return ONE**2 / (2 * self.amount)

    @property
    def threshold(self) -> float:
        """What a count must reach, in units of weight (ONE is one person)."""
        # 1 - success^(1/(2m-1)), without the cancellation
        passes = -math.expm1(math.log(self.success) / (2 * self.bins - 1)) if self.bins else 1.0
        if self.law == "gaussian":
            return math.sqrt(self.sigma_squared) * -NormalDist().inv_cdf(passes) + 1
        return -float(self.noise_scale) * math.log((1 + math.exp(-1 / self.noise_scale)) * passes)

    def release(self, weights: Array, noise: NoiseSource) -> tuple[int, int]:
        """Codes (low, high) with low <= high, from the exact counts of all 2·bins bins."""
        assert weights.size == 2 * self.bins > 0
        if self.law == "laplace":
            noisy = weights + noise.discrete_laplace(self.noise_scale, weights.size)
        else:
            noisy = weights + noise.discrete_gaussian(self.sigma_squared, weights.size)
        passed = np.flatnonzero(noisy >= self.threshold).tolist() or [int(np.argmax(noisy))]
        edges = [self.edges(i) for i in passed]
        return min(low for low, _ in edges), max(high for _, high in edges)

    def edges(self, i: int) -> tuple[int, int]:
        """The codes between which bin i lies."""
        size = i % self.bins
        inner, outer = (self.scale << (size - 1) if size else 0), self.scale << size
        return (inner, outer) if i < self.bins else (-outer, -inner)


def bins_needed(low: int, high: int, scale: int = 1) -> int:
    """The least `bins` whose edges reach every code in low … high."""
    reach = max(abs(low), abs(high), scale)
    return (-(-reach // scale) - 1).bit_length() + 1
