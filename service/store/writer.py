"""One writer per process, several works per commit.

Why a thread of its own: SQLite has one write lock and an unfair way to wait for it; on PostgreSQL all
ledger writes queue behind the head of the chain anyway. Works that arrive while a commit is on its
way to the disk share the next one, so 32 clients wait for a few disk flushes instead of 32.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar, cast

import sqlalchemy as sa

T = TypeVar("T")

# More works than this in one transaction would make the first of them wait for the last.
WORKS_PER_COMMIT = 64

Work = Callable[[sa.Connection], Any]


class _Job:
    """One work and where its outcome goes. `done` is a lock, held until the outcome is durable."""

    __slots__ = ("done", "error", "result", "work")

    def __init__(self, work: Work) -> None:
        self.work = work
        self.result: object = None
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()


class Writer:
    """Runs works one after the other on one connection, in the order in which they came.

    Invariant S1: `run` returns after the commit that holds its work is durable, and not before.
    Invariant S2: a work that raises leaves nothing behind, and takes none of its neighbours with it:
    each has a savepoint, unless it is alone and the whole transaction is its own.
    """

    def __init__(self, begin: Callable[[], sa.Connection]) -> None:
        self._begin = begin
        self._jobs: deque[_Job] = deque()
        self._wakeup = threading.Condition(threading.Lock())
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._closed = False

    def run(self, work: Callable[[sa.Connection], T]) -> T:
        job = _Job(work)
        with self._wakeup:
            assert not self._closed, "the store is closed"
            assert self._pid == os.getpid(), "a store can not be used on both sides of a fork"
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="store-writer", daemon=True)
                self._thread.start()
            assert threading.current_thread() is not self._thread, "a work may not write through the store again"
            self._jobs.append(job)
            self._wakeup.notify()
        job.done.acquire()
        if job.error is not None:
            raise job.error
        return cast(T, job.result)

    def close(self) -> None:
        """Finish what is queued, then stop. Safe to call twice."""
        with self._wakeup:
            self._closed = True
            self._wakeup.notify()
        if self._thread is not None and self._pid == os.getpid():
            self._thread.join()

    def _loop(self) -> None:
        while True:
            with self._wakeup:
                while not self._jobs and not self._closed:
                    self._wakeup.wait()
                if not self._jobs:
                    return
                batch = [self._jobs.popleft() for _ in range(min(len(self._jobs), WORKS_PER_COMMIT))]
            self._commit(batch)
            for job in batch:
                job.done.release()

    def _commit(self, batch: list[_Job]) -> None:
        """All works of a batch in one transaction. When that fails as a whole, every work failed."""
        try:
            connection = self._begin()
            try:
                for job in batch:
                    self._attempt(connection, job, alone=len(batch) == 1)
                if any(job.error is None for job in batch):
                    connection.commit()
            finally:
                connection.close()  # rolls back what was not committed
        except BaseException as error:
            for job in batch:
                job.error = job.error or error

    def _attempt(self, connection: sa.Connection, job: _Job, *, alone: bool) -> None:
        if not alone:
            connection.exec_driver_sql("SAVEPOINT work")
        try:
            job.result = job.work(connection)
        except BaseException as error:
            job.error = error
            if not alone:
                connection.exec_driver_sql("ROLLBACK TO SAVEPOINT work")
        if not alone:
            connection.exec_driver_sql("RELEASE SAVEPOINT work")
