"""Noise at a scale: a law of noise and how much of it, which is what a mechanism adds to a vector."""

from dataclasses import dataclass
from fractions import Fraction

from service.core.boundary import Array
from service.core.events import Event
from service.privacy.noise.laws import Law
from service.privacy.noise.sampling import NoiseSource
from service.privacy.noise.sensitivity import Sensitivity


@dataclass(frozen=True, slots=True)
class Noise:
    """A law at a scale: what is drawn on every coordinate of a vector."""

    law: Law
    scale: Fraction

    @property
    def variance(self) -> float:
        return self.law.variance(self.scale)

    @property
    def words(self) -> str:
        return f"discrete {self.law.label}"

    def draw(self, source: NoiseSource, size: int) -> Array:
        return self.law.draw(source, self.scale, size)

    def reach(self, q: Fraction) -> int:
        return self.law.reach(self.scale, q)

    def event(self, moved: Sensitivity) -> Event:
        return self.law.event(moved, self.scale)


def noise_for(law: Law, moved: Sensitivity, amount: Fraction) -> Noise:
    """The noise that this epsilon or rho buys for what one unit moves so much."""
    return Noise(law, law.scale(moved, amount))
