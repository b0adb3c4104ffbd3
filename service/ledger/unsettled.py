"""Queries that ended while the store would not take it: settled as failed as soon as it does.

Until its hold is settled a query takes a place in two allowances (service/ledger/allowances.py), and three such places
close a dataset for a person. Recovery settles what dead processes left; what a living process left is here, in its
memory, and a thread tries again and again. If the process dies first, recovery has it.
"""

import logging
import threading
from collections.abc import Callable

log = logging.getLogger("halftone")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 30.0


class Unsettled:
    """What is left to settle, and the thread that does."""

    def __init__(self, bury: Callable[[str], object]) -> None:
        """`bury` closes a hold as failed, if it is there and open; it raises where the store does not take that."""
        self._bury = bury
        self._left: dict[str, None] = {}
        self._lock = threading.Lock()
        self._more = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, query_id: str) -> None:
        with self._lock:
            self._left[query_id] = None
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._follow, name="unsettled", daemon=True)
                self._thread.start()
        self._more.set()

    def close(self) -> None:
        """What is still left is settled by recovery: this process is about to be gone."""
        self._stop.set()
        self._more.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _follow(self) -> None:
        while not self._stop.is_set():
            self._more.wait()
            self._more.clear()
            pause_s = FIRST_PAUSE_S
            while self._left and not self._stop.wait(pause_s):
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                self._try_all()

    def _try_all(self) -> None:
        """One that fails does not keep the others waiting: it may be the only one that does."""
        for query_id in list(self._left):
            try:
                self._bury(query_id)
            except Exception as cause:
                log.error("a query is still unsettled", extra={"query_id": query_id, "cause": type(cause).__name__})
            else:
                del self._left[query_id]
