"""Children kept warm: some bound to a version of a dataset, some blank for whatever comes next.

Starting an interpreter with a database in it takes most of a second; binding a blank child to a
version takes milliseconds. So a thread keeps blanks ready and no question waits for a start.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from service.engine.duckdb.processes.child import Child, ChildLost

BIND_SECONDS = 30.0
PING_LOOK_S = 0.05
MODULE = "service.engine.duckdb.processes.worker"


@dataclass(frozen=True, slots=True)
class Binding:
    """What a child is bound to: attached files (alias to path) and views (name to SELECT)."""

    dataset: str
    version: int
    files: Mapping[str, str]
    views: Mapping[str, str]

    @property
    def key(self) -> tuple[str, int]:
        return (self.dataset, self.version)


class BindFailed(Exception):
    """The files of this version could not be attached: perhaps a newer version has replaced them."""


class Pool:
    """At most `workers` bound children, busy and idle together, since each may fill its part of the memory;
    and always a blank or two. A dataset that nobody asked for longest gives way."""

    def __init__(self, *, workers: int, memory_bytes: int, threads: int, niceness: int = 0) -> None:
        self._workers = workers
        self._memory_bytes = memory_bytes
        self._threads = threads
        self._niceness = niceness
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._idle: list[tuple[tuple[str, int], Child]] = []  # longest unused first
        self._blank: list[Child] = []
        self._busy = 0
        self._closed = False
        self._keeper = threading.Thread(target=self._keep, name="engine-keeper", daemon=True)
        self._keeper.start()

    def lease(self, binding: Binding) -> Child:
        """A child bound to this version. The caller gives it back with `give`, dead or alive."""
        stale: list[Child] = []
        try:
            with self._lock:
                assert not self._closed, "the pool is closed"
                self._busy += 1
                child, stale = self._pick(binding.key)
                self._work.notify()
            return child or self._bind_blank(binding)
        except BaseException:
            with self._lock:
                self._busy -= 1
            raise
        finally:
            for old in stale:
                old.kill()

    def give(self, binding: Binding, child: Child) -> None:
        surplus: Child | None = child
        with self._lock:
            self._busy -= 1
            if child.alive and not self._closed:
                self._idle.append((binding.key, child))
                full = self._busy + len(self._idle) > self._workers
                surplus = self._idle.pop(0)[1] if full else None
            self._work.notify()
        if surplus is not None:
            surplus.kill()

    def ping(self, deadline_s: float) -> None:
        """A blank child answers: one is always kept or on its way, however many are busy. Raises ChildLost."""
        until = time.monotonic() + deadline_s
        while (child := self._take_blank()) is None:
            if time.monotonic() >= until:
                raise ChildLost(late=True)
            time.sleep(PING_LOOK_S)
        try:
            child.call({"do": "ping"}, b"", max(0.0, until - time.monotonic()))
        finally:
            if not (child.alive and self._keep_blank(child)):
                child.kill()
            with self._lock:
                self._work.notify()

    def _take_blank(self) -> Child | None:
        with self._lock:
            return self._blank.pop(0) if self._blank else None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            held = [child for _, child in self._idle] + self._blank
            self._idle, self._blank = [], []
            self._work.notify()
        for child in held:
            child.kill()
        self._keeper.join()

    def _pick(self, key: tuple[str, int]) -> tuple[Child | None, list[Child]]:
        """The idle child of this version used last; and those to be retired: of older versions, or dead."""
        stale = [
            child
            for held, child in self._idle
            if (held[0] == key[0] and held[1] < key[1]) or child.process.poll() is not None
        ]
        self._idle = [(held, child) for held, child in self._idle if child not in stale]
        for place in range(len(self._idle) - 1, -1, -1):
            if self._idle[place][0] == key:
                return self._idle.pop(place)[1], stale
        while self._idle and self._busy + len(self._idle) > self._workers:
            stale.append(self._idle.pop(0)[1])
        return None, stale

    def _bind_blank(self, binding: Binding) -> Child:
        child = self._take_blank()
        with self._lock:
            self._work.notify()
        request = {"do": "bind", "files": dict(binding.files), "views": dict(binding.views)}
        try:
            child = child or self._start()
            child.wait_ready()
            answer, _ = child.call(request, b"", BIND_SECONDS)
        except (ChildLost, OSError):
            raise BindFailed from None
        if "error" in answer:
            child.kill()
            raise BindFailed
        return child

    def _start(self) -> Child:
        return Child(MODULE, memory_bytes=self._memory_bytes, threads=self._threads, niceness=self._niceness)

    def _keep(self) -> None:
        while True:
            with self._lock:
                while not self._closed and self._missing() <= 0:
                    self._work.wait()
                if self._closed:
                    return
            try:
                child = self._start()
                child.wait_ready()
            except (ChildLost, OSError):
                # A machine that can not start children now: try again, without spinning.
                with self._lock:
                    self._work.wait(1.0)
                continue
            if not self._keep_blank(child):
                child.kill()

    def _keep_blank(self, child: Child) -> bool:
        with self._lock:
            if not self._closed:
                self._blank.append(child)
            return not self._closed

    def _missing(self) -> int:
        bound = self._busy + len(self._idle)
        return max(1, self._workers - bound) - len(self._blank)
