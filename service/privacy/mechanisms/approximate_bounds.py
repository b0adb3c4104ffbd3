"""Bounds of a measure, found privately from a logarithmic histogram."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from service.core.boundary import Array
from service.core.events import Event
from service.core.plan import ONE
from service.privacy.noise.laws import Law
from service.privacy.noise.sampling import NoiseSource
from service.privacy.noise.scaled import Noise, noise_for
from service.privacy.noise.sensitivity import Sensitivity

MOVED = Sensitivity.within(ONE)  # a unit weighs ONE in all


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
    law: Law
    amount: Fraction  # epsilon, or rho
    success: Fraction = Fraction(99, 100)

    @property
    def noise(self) -> Noise:
        return noise_for(self.law, MOVED, self.amount)

    @property
    def event(self) -> Event:
        return self.noise.event(MOVED)

    @property
    def threshold(self) -> float:
        """What a count must reach, in units of weight (ONE is one person)."""
        # 1 - success^(1/(2m-1)), without the cancellation
        passes = -math.expm1(math.log(self.success) / (2 * self.bins - 1)) if self.bins else 1.0
        return self.law.passed_with(self.noise.scale, passes)

    def release(self, weights: Array, source: NoiseSource) -> tuple[int, int]:
        """Codes (low, high) with low <= high, from the exact counts of all 2·bins bins."""
        assert weights.size == 2 * self.bins > 0
        noisy = weights + self.noise.draw(source, weights.size)
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
