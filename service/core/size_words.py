"""A profile in words: about how many units and rows there are, and what half of the units have at most.

All of it is computed from released counts, so it may be shown to whoever may read the dataset.
"""

import math
from dataclasses import replace

from service.core.sizes import STANDS_OUT, Profile


def profile_in_words(profile: Profile, *, unit: str, most: int | None) -> str:
    """ "about 60,000 customers, about 380,000 rows, half of the customers have at most 4". Bins within the noise are
    left out: their noise would drown the rest."""
    reach = 2 ** (len(profile.counts) - 1) if most is None else most
    noise = STANDS_OUT * profile.deviation
    seen = replace(profile, counts=tuple(units if units > noise else 0 for units in profile.counts))
    bins = [each for each in seen.bins(reach) if each[2]]
    units, many = sum(each[2] for each in bins), _plural(unit)
    if not bins:
        return f"too few {many} to tell: below about {_round(noise)} with any number of rows"
    rows = sum(units * math.sqrt(low * high) for low, high, units in bins)  # bins grow by doubling
    said = f"about {_round(units)} {many}, about {_round(rows)} rows"
    return f"{said}, half of the {many} have at most {_half(bins, units)}"


def _plural(unit: str) -> str:
    if unit.endswith("s"):
        return unit
    return f"{unit[:-1]}ies" if unit.endswith("y") else f"{unit}s"


def _half(bins: list[tuple[int, int, int]], units: int) -> int:
    """The upper edge of the bin in which the unit in the middle lies."""
    counted = 0
    for _, high, count in bins:
        counted += count
        if 2 * counted >= units:
            return high
    return bins[-1][1]


def _round(amount: float) -> str:
    """Two digits that count, with commas: more would be noise."""
    whole = max(1, round(amount))
    digits = max(0, len(str(whole)) - 2)
    return f"{round(whole, -digits):,}"
