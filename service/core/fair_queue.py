"""Whose turn it is: a bounded queue that is fair between those who wait in it."""

import threading
import time
from collections import Counter, OrderedDict, deque

from service.core.errors import TooBusy


class FairQueue:
    """A queue of callers (analysts): `places` may run at once, `waiting` may wait. The next place goes to the caller
    with the fewest running, then to the one served longest ago. One caller may fill half of the queue, and hold
    `each` of the places at once (all of them, unless said): what one caller does can then run to its deadline, and
    the next caller still finds a place.

    TooBusy says nothing about data: it depends on how many ask, and comes before any charge.
    """

    def __init__(self, places: int, waiting: int, *, each: int | None = None) -> None:
        assert places >= 1
        self._lock = threading.Lock()
        self._free = places
        self._waiting = waiting
        self._each = each or places
        self._running: Counter[str] = Counter()
        self._queues: OrderedDict[str, deque[threading.Event]] = OrderedDict()

    def take(self, caller: str, wait_s: float) -> None:
        with self._lock:
            if self._free and self._running[caller] < self._each:  # whoever waits meanwhile has all that one may hold
                self._free -= 1
                self._running[caller] += 1
                return
            queued = sum(len(queue) for queue in self._queues.values())
            own = len(self._queues.get(caller, ()))
            if wait_s <= 0 or queued >= self._waiting or own >= max(1, self._waiting // 2):
                raise _busy()
            granted = threading.Event()
            self._queues.setdefault(caller, deque()).append(granted)
        if granted.wait(wait_s):
            return
        with self._lock:
            if granted.is_set():
                return  # the place came in the last moment
            queue = self._queues[caller]
            queue.remove(granted)
            if not queue:
                del self._queues[caller]
        raise _busy()

    def give(self, caller: str) -> None:
        with self._lock:
            self._running[caller] -= 1
            if not self._running[caller]:
                del self._running[caller]
            allowed = [name for name in self._queues if self._running[name] < self._each]
            if not allowed:
                self._free += 1
                return
            following = min(allowed, key=lambda name: self._running[name])  # first of equals: longest ago
            queue = self._queues[following]
            self._running[following] += 1
            queue.popleft().set()
            if queue:
                self._queues.move_to_end(following)
            else:
                del self._queues[following]


def _busy() -> TooBusy:
    return TooBusy("all places are taken and the queue is full or slow; ask again", {"retry_after_s": 2})


def remaining(since: float, total_s: float) -> float:
    """What is left of `total_s` that began at time.monotonic() `since`."""
    return total_s - (time.monotonic() - since)
