"""Events, re-derived from the journal with plain Python integers: what failed, what came late, what runs."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from service.ledger.allowances import (
    DATASET_FAILURES_ALLOWED,
    FIRST_SAFETY,
    GREATEST_SAFETY,
    PERSON_FAILURES_ALLOWED,
    dataset_allowance,
    person_allowance,
)
from service.ledger.tables import EVENTS, allowance


class ReplayBroken(Exception):
    """An entry that could not have been written by the ledger."""


@dataclass(slots=True)
class DerivedEvents:
    """One allowance as the journal explains it."""

    failures_allowed: int
    failures: int = 0
    open_holds: int = 0
    late: int = 0
    safety: int = FIRST_SAFETY
    paused: int = 0

    def take(self, counts_open: bool) -> None:
        """One more open hold. Charges of before open holds counted were refused for failures alone."""
        if self.paused or self.failures + (self.open_holds if counts_open else 0) >= self.failures_allowed:
            raise ReplayBroken("a charge while queries were paused, or more at once than may still fail")
        self.open_holds += 1

    def give(self, failed: bool) -> None:
        self.open_holds -= 1
        self.failures += failed


class EventReplay:
    """The allowances of all datasets and persons."""

    def __init__(self) -> None:
        self._all: dict[str, DerivedEvents] = {}

    def open(self, dataset: str) -> None:
        self._all[dataset_allowance(dataset)] = DerivedEvents(DATASET_FAILURES_ALLOWED)

    def of(self, dataset: str, owner: str | None) -> DerivedEvents:
        if owner is None:
            return self._all[dataset_allowance(dataset)]
        return self._all.setdefault(person_allowance(dataset, owner), DerivedEvents(PERSON_FAILURES_ALLOWED))

    def both(self, dataset: str, owner: str) -> tuple[DerivedEvents, DerivedEvents]:
        return self.of(dataset, None), self.of(dataset, owner)

    def late(self, dataset: str, owner: str, body: Any) -> None:
        whole, own = self.both(dataset, owner)
        whole.late, own.late = whole.late + 1, own.late + 1
        whole.safety = min(2 * whole.safety, GREATEST_SAFETY)
        if int(body["safety"]) != whole.safety:
            raise ReplayBroken("a late answer doubles the safety factor")

    def forgotten(self, dataset: str, missing: Any) -> None:
        """What a restored ledger did not know of; the first such entries had failures of the dataset alone."""
        whole = self.of(dataset, None)
        whole.failures += int(missing["failures"])
        whole.late += int(missing.get("late", 0))
        whole.safety = max(whole.safety, int(missing.get("safety", 0)))
        for owner, counts in missing.get("persons", {}).items():
            own = self.of(dataset, owner)
            own.failures, own.late = own.failures + int(counts["failures"]), own.late + int(counts["late"])

    def difference(self, tx: sa.Connection) -> str | None:
        """What the stored allowances say otherwise; None when they agree."""
        stored = {row["id"]: row for row in tx.execute(sa.select(allowance)).mappings()}
        for name in sorted(stored.keys() | self._all.keys()):
            is_person = not name.startswith("dataset:")
            if not is_person and (name not in stored or name not in self._all):
                return f"allowance {name} is {'missing' if name not in stored else 'in no entry'}"
            fresh = DerivedEvents(PERSON_FAILURES_ALLOWED)  # to whom nothing has happened needs neither row nor entry
            derived = self._all.get(name, fresh)
            row = stored.get(name) or {field: getattr(fresh, field) for field in EVENTS}
            if wrong := [field for field in EVENTS if row[field] != getattr(derived, field)]:
                return f"allowance {name}: {', '.join(wrong)} differ from what its entries say"
        return None
