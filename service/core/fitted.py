"""Default bounds that fit a dataset, chosen from its public sizes.

What is minimised over B (docs/decisions/0038): (lost rows / groups)² + 2·(PEAK·B/epsilon)², the squared error of one
group's sum in units of its usual value: what the bound leaves out by the profile, and the variance of Laplace noise at
a reference price that is public and not the request's own, so that a question keeps its bounds whatever is offered for
it. One bound serves counts and sums of a frame alike, since they are released and derived together.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from service.core.amounts import PICO
from service.core.reach import Reach, spread_of
from service.core.schema import GROUPS_PER_UNIT, Defaults
from service.core.sizes import PrivateSize, Size

REFERENCE_EPSILON = PICO // 10  # where the dataset has no default
GROUPS_ASSUMED = 10  # of keys that are declared nowhere
ROWS_MAX = 1 << 31
GROUPS_EXACT = 16  # more groups count as the next power of two: lists of keys make any number of them
PEAK = 4  # how many times the usual value of a sum its largest one is taken to be: noise is made for the largest


@dataclass(frozen=True, slots=True)
class Basis:
    """What a fitted default is chosen for: rows of this reach, in so many groups (1 without keys, None: not declared).

    Conditions are no part of it: no public fact says what they leave.
    """

    reach: Reach
    groups: int | None

    @property
    def digest(self) -> str:
        return hashlib.sha256(basis_to_text(self).encode()).hexdigest()

    @property
    def rounded(self) -> "Basis":
        """What new defaults are chosen and stored for: a few sizes of many groups instead of each. Never fewer groups
        than there are."""
        if self.groups is None or self.groups <= GROUPS_EXACT:
            return self
        return replace(self, groups=1 << (self.groups - 1).bit_length())


@dataclass(frozen=True, slots=True)
class FittedBounds:
    """Bounds that fit, and the charges of the profiles that they were chosen from."""

    rows_per_unit: int
    groups_per_unit: int
    profiles: tuple[str, ...]


def fit_bounds(basis: Basis, sizes: Mapping[str, Size], defaults: Defaults) -> FittedBounds | None:
    """The bounds for this basis; None: no profile tells enough, and the fixed defaults stay."""
    profiles = _profiles(basis.reach, sizes)
    spread = spread_of(basis.reach, sizes, typical=True)
    if not profiles or spread is None or not any(spread.visible()):
        return None
    epsilon = (defaults.epsilon or REFERENCE_EPSILON) / PICO
    groups = basis.groups or defaults.expected_groups or GROUPS_ASSUMED
    most = min(ROWS_MAX, spread.most)

    def squared_error(bound: int) -> float:
        return (spread.expected_lost(bound) / groups) ** 2 + 2 * (PEAK * bound / epsilon) ** 2

    powers = (2**at for at in range(most.bit_length()))
    rows = min((most, *powers), key=lambda bound: (squared_error(bound), bound))
    return FittedBounds(rows, min(GROUPS_PER_UNIT, most, basis.groups or GROUPS_PER_UNIT), profiles)


def _profiles(reach: Reach, sizes: Mapping[str, Size]) -> tuple[str, ...]:
    """The charges of the profile of the table and of those that it is joined with, where they have one."""
    if reach.table is None:
        return ()
    found = [sizes.get(name) for name in (reach.table, *reach.others)]
    first = found[0]
    if not isinstance(first, PrivateSize) or first.profile is None:
        return ()
    return tuple(
        dict.fromkeys(each.profile.query_id for each in found if isinstance(each, PrivateSize) and each.profile)
    )


def groups_of(domains: list[int | None]) -> int | None:
    """How many groups keys have together, by how many values each has; None: not declared."""
    return None if None in domains else math.prod(size for size in domains if size is not None)


def basis_to_text(basis: Basis) -> str:
    """One line of JSON, as the catalog keeps it."""
    return json.dumps(asdict(basis), sort_keys=True)


def basis_from_text(text: str) -> Basis:
    stored = json.loads(text)
    reach = stored["reach"]
    made = Reach(reach["table"], reach["times"], tuple(reach["others"]), reach["constant"])
    return Basis(made, stored["groups"])
