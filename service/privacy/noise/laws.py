"""The two laws of noise, Laplace and Gaussian, as objects: whatever differs between them, they are asked for.

Laplace noise is bought with epsilon and protects what moves by a known L1, Gaussian noise with rho and a known L2.
What is called the scale of a law here is the parameter of its sampler: Laplace's scale, the Gaussian's variance. It
is always exact; deviations, widths and replicas are floats, because they only describe what was drawn.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from fractions import Fraction
from statistics import NormalDist
from typing import ClassVar, Literal

import numpy as np

from service.core.amounts import PICO
from service.core.boundary import Array, Floats
from service.core.events import (
    Event,
    GaussianEvent,
    GaussianSelectionEvent,
    LaplaceEvent,
    LaplaceSelectionEvent,
    LaplaceUnitsEvent,
)
from service.privacy.noise.intervals import (
    NORMAL_95,
    discrete_gaussian_half_width,
    discrete_laplace_half_width,
    laplace_half_width,
    normal_half_width,
    quantile_factor,
    replica_noise,
    standard_laplace,
    standard_normal,
)
from service.privacy.noise.sampling import NoiseSource
from service.privacy.noise.sensitivity import Sensitivity
from service.privacy.noise.tails import gaussian_reach, laplace_reach


class Law(ABC):
    """A law of noise on integers. There are two, LAPLACE and GAUSSIAN, without a state of their own."""

    __slots__ = ()

    name: ClassVar[str]  # as stored releases spell it
    label: ClassVar[str]  # as receipts spell it
    paid_in: ClassVar[Literal["epsilon", "rho"]]
    pure: ClassVar[bool]  # bought with pure epsilon, whose cost depends on the shape of what is drawn
    power: ClassVar[int]  # scales grow as sensitivity to this power; deviations fall as amount to the power of 1/power
    wide: ClassVar[int]  # about how many scales (deviations) a 95% interval reaches to either side

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.label

    def __reduce__(self) -> tuple[Callable[[str], "Law"], tuple[str]]:
        """In another process too there is one of each."""
        return law_named, (self.name,)

    @abstractmethod
    def scale(self, moved: Sensitivity, amount: Fraction) -> Fraction:
        """The scale at which a vector that one unit moves so much costs this epsilon or rho."""

    @abstractmethod
    def event(self, moved: Sensitivity, scale: Fraction) -> Event:
        """What the account is told of a vector with this noise."""

    @abstractmethod
    def selection_event(self, moved: Sensitivity, scale: Fraction, delta: Fraction) -> Event:
        """The same of counts with a threshold that a lone unit passes with probability at most `delta`."""

    @abstractmethod
    def draw(self, source: NoiseSource, scale: Fraction, size: int) -> Array: ...

    @abstractmethod
    def reach(self, scale: Fraction, q: Fraction) -> int:
        """What the noise reaches with probability at most q: proved (invariant A3), for thresholds that protect."""

    @abstractmethod
    def draw_epsilon(self, amount: Fraction) -> Fraction:
        """The epsilon of an exponential draw that costs this amount."""

    @abstractmethod
    def noise_epsilon(self, amount: Fraction) -> Fraction:
        """The epsilon whose Laplace noise has the deviation that this amount buys."""

    @abstractmethod
    def cost_at(self, order: Fraction) -> Fraction:
        """What one unit of the amount costs at a Rényi order, at most."""

    @abstractmethod
    def variance(self, scale: Fraction) -> float:
        """Of the continuous law, which the discrete one never exceeds."""

    def deviation(self, sizes: Iterable[float], scales: Iterable[Fraction]) -> float:
        """Of Σ size·noise over independent coordinates."""
        pairs = zip(sizes, scales, strict=True)
        return float(sum(size * size * self.variance(scale) for size, scale in pairs) ** 0.5)

    @abstractmethod
    def half_width(self, sizes: tuple[float, ...], scales: tuple[Fraction, ...], confidence: float) -> float:
        """Half the width of an interval around Σ size·noise, by the continuous law."""

    @abstractmethod
    def whole_half_width(self, scale: Fraction, confidence: float) -> int:
        """The same for one coordinate of whole numbers with small noise, where the discrete law counts."""

    @abstractmethod
    def passed_with(self, scale: Fraction, q: float) -> float:
        """What the noise reaches with probability q, in floats: for thresholds that decide quality only."""

    @abstractmethod
    def factor(self, parts: Floats) -> Floats | float:
        """Half of a 95% interval in deviations, where the coordinates add `parts` to the variance of each group."""

    def spread(self, rows: Floats, variances: Floats) -> tuple[Floats, Floats]:
        """Deviation and 95% half-width of Σ rows[i]·noise_i per group; `rows` is (coordinates, groups)."""
        parts = rows * rows * variances[:, None]
        std = np.sqrt(parts.sum(axis=0))
        return std, self.factor(parts) * std

    @abstractmethod
    def standard(self, shape: tuple[int, ...]) -> Floats:
        """Draws of the continuous law with variance 1; never for noise that protects anything."""

    def replica_noise(self, variances: tuple[float, ...], shape: tuple[int, int]) -> Floats:
        """(coordinates, replicas, groups) of continuous noise with these variances."""
        return replica_noise(variances, shape, self.standard)

    @abstractmethod
    def words(self, scale: Fraction, unit: float) -> str:
        """The noise as receipts tell it; `unit` is what a whole number is worth in what is shown."""


class Laplace(Law):
    """Discrete Laplace noise: P[Z = z] proportional to exp(-|z|/scale), epsilon-DP at scale L1/epsilon."""

    __slots__ = ()

    name = "laplace"
    label = "Laplace"
    paid_in = "epsilon"
    pure = True
    power = 1
    wide = 3

    def scale(self, moved: Sensitivity, amount: Fraction) -> Fraction:
        return moved.l1 / amount

    def event(self, moved: Sensitivity, scale: Fraction) -> Event:
        return LaplaceEvent(moved.l1, scale) if moved.units is None else LaplaceUnitsEvent(moved.units, scale)

    def selection_event(self, moved: Sensitivity, scale: Fraction, delta: Fraction) -> Event:
        coordinates = moved.units or 1
        return LaplaceSelectionEvent(coordinates, moved.l1 / coordinates, scale, delta)

    def draw(self, source: NoiseSource, scale: Fraction, size: int) -> Array:
        return source.discrete_laplace(scale, size)

    def reach(self, scale: Fraction, q: Fraction) -> int:
        return laplace_reach(scale, q)

    def draw_epsilon(self, amount: Fraction) -> Fraction:
        return amount

    def noise_epsilon(self, amount: Fraction) -> Fraction:
        return amount

    def cost_at(self, order: Fraction) -> Fraction:
        return Fraction(1)

    def variance(self, scale: Fraction) -> float:
        return 2.0 * float(scale) ** 2

    def half_width(self, sizes: tuple[float, ...], scales: tuple[Fraction, ...], confidence: float) -> float:
        found = tuple(size * float(scale) for size, scale in zip(sizes, scales, strict=True))
        largest = max(found)
        if largest == 0:
            return 0.0
        return largest * laplace_half_width(tuple(scale / largest for scale in found), confidence)

    def whole_half_width(self, scale: Fraction, confidence: float) -> int:
        return discrete_laplace_half_width(float(scale), confidence)

    def passed_with(self, scale: Fraction, q: float) -> float:
        return -float(scale) * math.log((1 + math.exp(-1 / scale)) * q)

    def factor(self, parts: Floats) -> Floats:
        """By the excess kurtosis, 3·Σ v_i² / (Σ v_i)²."""
        total = parts.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            kurtosis = 3.0 * (parts * parts).sum(axis=0) / (total * total)
        return quantile_factor(np.nan_to_num(kurtosis))

    def standard(self, shape: tuple[int, ...]) -> Floats:
        return standard_laplace(shape)

    def words(self, scale: Fraction, unit: float) -> str:
        return f"discrete Laplace noise, scale {float(scale) * unit:.4g}"


class Gaussian(Law):
    """Discrete Gaussian noise: P[Z = z] proportional to exp(-z²/(2·variance)), a·rho at order a for L2²/(2·rho)."""

    __slots__ = ()

    name = "gaussian"
    label = "Gaussian"
    paid_in = "rho"
    pure = False
    power = 2
    wide = 2

    def scale(self, moved: Sensitivity, amount: Fraction) -> Fraction:
        return moved.l2_squared / (2 * amount)

    def event(self, moved: Sensitivity, scale: Fraction) -> Event:
        return GaussianEvent(moved.l2_squared, scale)

    def selection_event(self, moved: Sensitivity, scale: Fraction, delta: Fraction) -> Event:
        return GaussianSelectionEvent(moved.l2_squared, scale, delta)

    def draw(self, source: NoiseSource, scale: Fraction, size: int) -> Array:
        return source.discrete_gaussian(scale, size)

    def reach(self, scale: Fraction, q: Fraction) -> int:
        return gaussian_reach(scale, q)

    def draw_epsilon(self, amount: Fraction) -> Fraction:
        """epsilon²/8 <= rho, because the privacy loss of such a draw has range epsilon."""
        return Fraction(math.isqrt(int(8 * amount * PICO * PICO)), PICO)

    def noise_epsilon(self, amount: Fraction) -> Fraction:
        """C·sqrt(2)/epsilon = C/sqrt(2·rho)."""
        return Fraction(2 * math.isqrt(int(amount * PICO * PICO)), PICO)

    def cost_at(self, order: Fraction) -> Fraction:
        return order

    def variance(self, scale: Fraction) -> float:
        return float(scale)

    def half_width(self, sizes: tuple[float, ...], scales: tuple[Fraction, ...], confidence: float) -> float:
        return normal_half_width(confidence) * self.deviation(sizes, scales)

    def whole_half_width(self, scale: Fraction, confidence: float) -> int:
        return discrete_gaussian_half_width(float(scale), confidence)

    def passed_with(self, scale: Fraction, q: float) -> float:
        """One more than the continuous law: the discrete one may lie a whole number higher."""
        return math.sqrt(scale) * -NormalDist().inv_cdf(q) + 1

    def factor(self, parts: Floats) -> float:
        return NORMAL_95

    def standard(self, shape: tuple[int, ...]) -> Floats:
        return standard_normal(shape)

    def words(self, scale: Fraction, unit: float) -> str:
        return f"discrete Gaussian noise, standard deviation {math.sqrt(float(scale)) * unit:.4g}"


LAPLACE, GAUSSIAN = Laplace(), Gaussian()
LAWS = (LAPLACE, GAUSSIAN)


def law_named(name: str) -> Law:
    return next(law for law in LAWS if law.name == name)
