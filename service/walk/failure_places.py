"""Queries that may still turn out to have failed: so few at once that the allowance of failures holds.

A failure is counted when it is settled, which waits for its rung (docs/decisions/0020); a hundred queries could
be charged, run and have failed until the first of them counts. So a query starts only when the allowance would
still hold if everything failed that runs or has failed unseen; the others wait, before they cost anything.
Invariant W2: in one process, a dataset's failures never exceed its allowance, nor an analyst's theirs.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from service.core.errors import TooBusy
from service.ledger.book import Ledger


class Allowance:
    """Places per dataset and per (dataset, analyst): as many as there are failures left."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._taken: Counter[tuple[str, ...]] = Counter()
        self._changed = threading.Condition()

    @contextmanager
    def place(self, dataset: str, principal: str, wait_s: float) -> Iterator["Place"]:
        """Hold a place until the outcome counts, or until it is known to be no failure (`Place.safe`)."""
        place = Place(self, ((dataset,), (dataset, principal)))
        self._take(place, time.monotonic() + wait_s)
        try:
            yield place
        finally:
            place.safe()

    def _take(self, place: "Place", until: float) -> None:
        with self._changed:
            while not self._has_room(place):
                left = until - time.monotonic()
                if left <= 0:
                    raise TooBusy(
                        "as many queries run as may still fail before an admin has to look; ask again",
                        {"retry_after_s": 2},
                    )
                self._changed.wait(left)
            self._taken.update(place.names)

    def _has_room(self, place: "Place") -> bool:
        """One alone needs no look: the charge itself is refused when nothing is left."""
        whole, own = (self._taken[name] for name in place.names)
        if not whole:
            return True
        dataset, principal = place.names[1]
        balance, quota = self._ledger.balance(dataset), self._ledger.quota(dataset, principal)
        if balance.paused or quota.paused:
            return True  # the charge will say so
        return whole < balance.failures_allowed - balance.failures and own < quota.failures_allowed - quota.failures

    def give(self, names: tuple[tuple[str, ...], ...]) -> None:
        with self._changed:
            self._taken.subtract(names)
            self._taken += Counter()  # names that nobody holds are forgotten
            self._changed.notify_all()


@dataclass(slots=True)
class Place:
    """One query's place; given back once."""

    allowance: Allowance
    names: tuple[tuple[str, ...], ...]
    held: bool = True

    def safe(self) -> None:
        """From here on it can not count as a failure that nobody has seen."""
        if self.held:
            self.held = False
            self.allowance.give(self.names)
