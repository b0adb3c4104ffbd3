"""What a release was, as data: enough to price it, to audit it, and to show it on a receipt.

Events never change meaning; new ones may be added. Every number is exact (Fraction or int).
"""

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class LaplaceEvent:
    """Discrete Laplace noise of `scale` on an integer vector that one unit moves by L1 <= `l1`."""

    l1: Fraction
    scale: Fraction


@dataclass(frozen=True, slots=True)
class LaplaceUnitsEvent:
    """Discrete Laplace noise of `scale`; one unit moves at most `coordinates` of them, each by at most 1."""

    coordinates: int
    scale: Fraction


@dataclass(frozen=True, slots=True)
class GaussianEvent:
    """Discrete Gaussian noise of variance `sigma_squared`; one unit moves the vector by L2² <= `l2_squared`."""

    l2_squared: Fraction
    sigma_squared: Fraction


@dataclass(frozen=True, slots=True)
class PureEvent:
    """Any epsilon-DP mechanism whose Rényi curve is not known better (randomised response bounds it)."""

    epsilon: Fraction


@dataclass(frozen=True, slots=True)
class ExponentialEvent:
    """The exponential mechanism at `epsilon` (bounded range: its Rényi cost is at most a·epsilon²/8)."""

    epsilon: Fraction


@dataclass(frozen=True, slots=True)
class SelectionEvent:
    """A selection of private keys: `groups` independent (epsilon, delta)-DP choices that one unit may touch."""

    groups: int
    epsilon: Fraction
    delta: Fraction


@dataclass(frozen=True, slots=True)
class GaussianSelectionEvent:
    """Gaussian counts with a threshold that a lone unit passes with probability at most `delta`."""

    l2_squared: Fraction
    sigma_squared: Fraction
    delta: Fraction


@dataclass(frozen=True, slots=True)
class LaplaceSelectionEvent:
    """Discrete Laplace counts with a threshold that a lone unit passes with probability at most `delta`;
    one unit moves at most `coordinates` of them, each by at most `each`."""

    coordinates: int
    each: Fraction
    scale: Fraction
    delta: Fraction


Event = (
    LaplaceEvent
    | LaplaceUnitsEvent
    | GaussianEvent
    | PureEvent
    | ExponentialEvent
    | SelectionEvent
    | GaussianSelectionEvent
    | LaplaceSelectionEvent
)
