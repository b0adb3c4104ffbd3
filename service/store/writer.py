"""One write transaction at a time per process, several works in each.

Why in turn: SQLite has one write lock and an unfair way to wait for it; on PostgreSQL all ledger writes
queue behind the head of the chain anyway. Works that arrive while a commit is on its way to the disk
share the next one, so 32 clients wait for a few disk flushes instead of 32.

There is no thread of its own: the caller whose turn it is runs the batch and hands the turn on. A
lone client then pays for no change of threads (docs/decisions/0012).
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar, cast

import sqlalchemy as sa

from service.store.transaction import Transaction

T = TypeVar("T")

# More works than this in one transaction would make the first of them wait for the last.
WORKS_PER_COMMIT = 64

# The name of PostgreSQL's lock for "it is my turn to write".
TURN = 4_840_202_611_160_002

WriteWork = Callable[[Transaction], Any]


class _Job:
    """One work and where its outcome goes. `wait` is a lock, held until the job is done or leads."""

    __slots__ = ("error", "leads", "result", "wait", "work")

    def __init__(self, work: WriteWork) -> None:
        self.work = work
        self.leads = False
        self.result: object = None
        self.error: BaseException | None = None
        self.wait = threading.Lock()
        self.wait.acquire()


class Writer:
    """Runs works one after the other on one connection, in the order in which they came.

    Invariant K1: `run` returns after the commit that holds its work is durable, and not before.
    Invariant K2: a work that raises leaves nothing behind, and takes none of its neighbours with it:
    each has a savepoint, unless it is alone and the whole transaction is its own.
    """

    def __init__(self, connect: Callable[[], sa.Connection], *, is_sqlite: bool) -> None:
        """`connect` opens a connection in autocommit mode; transactions are spelled out here."""
        self._connect = connect
        # One transaction at a time over all processes, taken first: writers can wait, but never for each other.
        self._begin = "BEGIN IMMEDIATE" if is_sqlite else f"BEGIN; SELECT pg_advisory_xact_lock({TURN})"
        # PostgreSQL takes both in one trip, SQLite one statement at a time.
        renew = ("RELEASE SAVEPOINT work", "SAVEPOINT work")
        self._next: tuple[str, ...] = renew if is_sqlite else ("; ".join(renew),)
        self._connection: sa.Connection | None = None
        self._mutex = threading.Lock()
        self._idle = threading.Condition(self._mutex)
        self._jobs: deque[_Job] = deque()
        self._leader: int | None = None  # the thread whose turn it is
        self._pid = os.getpid()
        self._closed = False

    def run(self, work: Callable[[Transaction], T]) -> T:
        job = _Job(work)
        with self._mutex:
            assert not self._closed, "the store is closed"
            assert self._pid == os.getpid(), "a store can not be used on both sides of a fork"
            assert self._leader != threading.get_ident(), "a work may not write through the store again"
            self._jobs.append(job)
            if self._leader is None:
                self._leader, job.leads = threading.get_ident(), True
        if not job.leads:
            job.wait.acquire()
        if job.leads:
            self._lead(job)
        if job.error is not None:
            raise job.error
        return cast(T, job.result)

    def close(self) -> None:
        """Refuse further works, let those under way finish, end the connection. Safe to call twice."""
        with self._mutex:
            self._closed = True
            while self._leader is not None:
                self._idle.wait()
            self._drop()

    def _lead(self, mine: _Job) -> None:
        """Commit a batch, mine first; then whoever came first since then has the turn."""
        with self._mutex:
            self._leader = threading.get_ident()
            batch = [self._jobs.popleft() for _ in range(min(len(self._jobs), WORKS_PER_COMMIT))]
        assert batch[0] is mine
        self._commit(batch)
        with self._mutex:
            self._leader = None
            if self._jobs:
                self._jobs[0].leads = True
                self._leader = -1  # taken, by a thread that is about to wake up
                self._jobs[0].wait.release()
            else:
                self._idle.notify_all()
        for job in batch[1:]:
            job.wait.release()

    def _commit(self, batch: list[_Job]) -> None:
        """All works of a batch in one transaction. When that fails as a whole, every work failed."""
        try:
            connection = self._connection = self._connection or self._connect()
            raw: Any = connection.connection.driver_connection
            raw.execute(self._begin)
            if len(batch) > 1:
                raw.execute("SAVEPOINT work")
            for job in batch:
                if job is not batch[0]:
                    for statement in self._next:
                        raw.execute(statement)
                _attempt(connection, raw, job, alone=len(batch) == 1)
            raw.execute("COMMIT" if any(job.error is None for job in batch) else "ROLLBACK")
        except BaseException as error:
            for job in batch:
                job.error = job.error or error
            self._drop()  # with it goes whatever was not committed

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()


def _attempt(connection: sa.Connection, raw: Any, job: _Job, *, alone: bool) -> None:
    try:
        job.result = job.work(Transaction(connection))
    except BaseException as error:
        job.error = error
        if not alone:
            raw.execute("ROLLBACK TO SAVEPOINT work")
