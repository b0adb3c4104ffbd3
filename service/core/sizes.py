"""How large tables are, as far as that is public: what promises, defaults and warnings may be computed from.

A public table's size is exact. A private table's is declared, or released once as a profile: a noisy histogram of
units by how many rows they have, paid for like any answer. Nothing here is an exact fact about private rows.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

SLACK = 4  # deviations of noise that a bound on a private size allows for
STANDS_OUT = 6  # deviations above which a bin is taken to hold somebody: 25 empty bins do that once in 400 profiles
BINS = 25  # of a profile: 1, 2, 3 to 4, … up to 2^24 rows; units with more are in the last one too
# What a unit keeps where a profile shows nobody: then units are few, and a promise for them should be short. More than
# three times the rows of one unit that an answer counts unless told otherwise (Defaults.rows_per_unit).
MOST_UNSEEN = 64


@dataclass(frozen=True, slots=True)
class Profile:
    """Released counts of units with 1, 2, 3 to 4, 5 to 8, … rows; the last bin begins above 2^(len - 2) and holds
    everybody beyond.

    `counts` are as released, so they may be negative; `deviation` is that of the noise on each of them. `query_id`
    names the charge in the ledger.
    """

    counts: tuple[int, ...]
    deviation: float
    query_id: str

    def bins_apart(self, most: int) -> Iterator[tuple[int, int, int]]:
        """(fewest rows, most rows, released units) of every released count by itself, each with its own noise. Units
        with more than `most` rows keep `most`: their bins are the one that `most` lies in, which ends there. So does
        the last bin, whatever its number: it holds everybody beyond."""
        fewest = 1
        for at, units in enumerate(self.counts):
            low, high = (1 if at == 0 else 2 ** (at - 1) + 1), 2**at
            fewest = low if low <= most else fewest
            yield fewest, most if at == len(self.counts) - 1 else min(high, most), units

    def bins(self, most: int) -> Iterator[tuple[int, int, int]]:
        """The same with those that are one bin added up."""
        for fewest, group in groupby(self.bins_apart(most), key=lambda each: each[0]):
            same = list(group)
            yield fewest, same[-1][1], sum(units for _, _, units in same)

    @property
    def kept(self) -> int:
        """How many rows of a unit a table with this profile keeps, where no admin says: twice the upper edge of the
        largest bin that stands out of the noise, or MOST_UNSEEN where none does. Never beyond what
        the bins can tell apart."""
        seen = [at for at, units in enumerate(self.counts) if units > STANDS_OUT * self.deviation]
        return min(2 * 2 ** seen[-1], 2 ** (len(self.counts) - 1)) if seen else MOST_UNSEEN


@dataclass(frozen=True, slots=True)
class ReleasedProfile:
    """A profile with what its receipt says. Of `epsilon` and `rho` the one that paid, as a decimal string."""

    profile: Profile
    noise: str
    epsilon: str | None
    rho: str | None
    share: str


@dataclass(frozen=True, slots=True)
class PrivateSize:
    """A private table: at most `rows` rows of at most `units` units, none of which has more than `most` in the prepared
    copy. `profile` None: the numbers were declared."""

    rows: int
    units: int
    most: int
    profile: Profile | None = None

    @property
    def squares(self) -> int:
        """At most the sum over units of the square of their rows: what a join of the table with itself can yield."""
        plain = min(self.rows * self.most, self.units * self.most**2)
        if self.profile is None:
            return plain
        return min(plain, _at_most(self.profile, self.most, 2))


@dataclass(frozen=True, slots=True)
class PublicSize:
    """A public table, exactly: its rows, per column how often the most frequent value occurs, and how many bytes the
    longest text has."""

    rows: int
    most_of_one_value: Mapping[str, int] = field(default_factory=dict)
    text_bytes: Mapping[str, int] = field(default_factory=dict)


Size = PrivateSize | PublicSize


def size_of_profile(profile: Profile, most: int) -> PrivateSize:
    """What a profile says of a table of which no unit keeps more than `most` rows."""
    return PrivateSize(max(1, _at_most(profile, most, 1)), max(1, _at_most(profile, most, 0)), most, profile)


def private_size(released: ReleasedProfile | None, most: int | None, expected_rows: int | None) -> PrivateSize | None:
    """What is public of a private table that keeps `most` rows of a unit: by its profile, else as it was declared.
    None: not known."""
    if most is None:
        return None
    if released is not None:
        return size_of_profile(released.profile, most)
    return None if expected_rows is None else PrivateSize(expected_rows, expected_rows, most)


def _at_most(profile: Profile, most: int, power: int) -> int:
    """Σ units·rows^power over the bins, with SLACK deviations of that sum's noise on top; never below 0."""
    bins = list(profile.bins_apart(most))
    total: int = sum(units * high**power for _, high, units in bins)
    squares: int = sum(high ** (2 * power) for _, high, _ in bins)
    return max(0, math.ceil(total + SLACK * profile.deviation * math.sqrt(float(squares))))


def size_to_text(size: Size) -> str:
    """One line of JSON, as the catalog keeps it."""
    if isinstance(size, PublicSize):
        public = {"rows": size.rows, "most_of_one_value": dict(size.most_of_one_value)}
        return json.dumps({"public": public | {"text_bytes": dict(size.text_bytes)}})
    profile = size.profile
    released = profile and {
        "counts": list(profile.counts),
        "deviation": profile.deviation,
        "query_id": profile.query_id,
    }
    private = {"rows": size.rows, "units": size.units, "most": size.most, "profile": released}
    return json.dumps({"private": private})


def size_from_text(text: str) -> Size:
    stored: dict[str, Any] = json.loads(text)
    if "public" in stored:
        return PublicSize(**stored["public"])
    private = stored["private"]
    released = private["profile"]
    profile = released and Profile(tuple(released["counts"]), released["deviation"], released["query_id"])
    return PrivateSize(private["rows"], private["units"], private["most"], profile)
