"""How often and how many at once, per person: before anything is read, priced or charged.

All keys of one owner together, as with allowances and turns: a person with ten keys gets no more than one with one.
A key without an owner is a person of its own.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from service.core.errors import RateLimited

CALLERS_KEPT = 10_000  # callers remembered; beyond that the one unseen for longest is forgotten
STRANGER_FAILURES_PER_MINUTE = 60


class Buckets:
    """A token bucket per name: `per_minute` requests, a quarter of them at once."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_minute / 60
        self._size = max(1.0, per_minute / 4)
        self._clock = clock
        self._lock = threading.Lock()
        self._filled: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, count: int = 1) -> None:
        """So many tokens, or RateLimited with the whole seconds until they are there. Of several, those that do not
        fit in beside the first are lent: then the bucket is empty for as long as they take to come."""
        now, wanted = self._clock(), 1 if count == 1 else min(count, self._size - 1)
        with self._lock:
            tokens, since = self._filled.pop(name, (self._size, now))
            tokens = min(self._size, tokens + (now - since) * self._rate)
            granted = tokens >= wanted
            self._filled[name] = (tokens - count if granted else tokens, now)
            while len(self._filled) > CALLERS_KEPT:
                self._filled.popitem(last=False)
        if not granted:
            wait = max(1, int((wanted - tokens) / self._rate) + 1)
            raise RateLimited(f"too many requests; try again in {wait} s", {"retry_after_s": wait})


class Limiter:
    """Everything that slows a caller down."""

    def __init__(self, *, per_minute: int, at_once: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._persons = Buckets(per_minute, clock)
        self._strangers = Buckets(STRANGER_FAILURES_PER_MINUTE * 4, clock)
        self._at_once = at_once
        self._lock = threading.Lock()
        self._running: dict[str, int] = {}

    def stranger(self, address: str) -> None:
        """Count a failed sign-in from an address."""
        self._strangers.take(address)

    @contextmanager
    def admit(self, person: str) -> Iterator[None]:
        """Hold one of the person's places while its request runs."""
        self._persons.take(person)
        with self._places(person, 1):
            yield

    @contextmanager
    def admit_list(self, person: str, size: int) -> Iterator[None]:
        """A list counts as that many requests, of which the admitted one is the first. It is worked on one by one, so
        it needs no more than half of the person's places: any list is admitted once there is room for it."""
        with self._places(person, min(size, max(1, self._at_once // 2)) - 1):
            if size > 1:
                self._persons.take(person, size - 1)
            yield

    @contextmanager
    def _places(self, person: str, count: int) -> Iterator[None]:
        with self._lock:
            running = self._running.get(person, 0)
            if running + count > self._at_once:
                raise RateLimited(
                    f"you have {running} requests running, of {self._at_once} that one person may, a list counted as"
                    " several; try again in 1 s",
                    {"retry_after_s": 1},
                )
            self._running[person] = running + count
        try:
            yield
        finally:
            with self._lock:
                self._running[person] -= count
                if not self._running[person]:
                    del self._running[person]
