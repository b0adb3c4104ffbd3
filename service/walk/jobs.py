"""Queries in flight: started, waited for, found again by id.

A job lives in memory until its outcome is stored or, if it was refused before reserve, for a while:
a restart forgets only what cost nothing.
"""

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from service.core.errors import AnswerFailed, Conflict, ServiceError, TooBusy

FORGET_AFTER_S = 600.0


@dataclass(slots=True, eq=False)
class Job:
    """One query on its way. `body` or `error` is set before `done`.

    `pays` False: it turned out to be answered by what another one paid for. `stands_for`: the query that
    was there first under the same Idempotency-Key, at another process or a moment ago.
    """

    query_id: str
    principal: str
    request_hash: str
    status: str = "queued"
    body: bytes | None = None
    error: ServiceError | None = None
    pays: bool = True
    stands_for: str | None = None
    finished: float | None = None
    done: threading.Event = field(default_factory=threading.Event)
    _fate: threading.Lock = field(default_factory=threading.Lock)  # whoever takes it first decides

    def refuse_if_cancelled(self) -> None:
        """About to be charged: from here on it can not be cancelled."""
        if not self._fate.acquire(blocking=False):
            raise Conflict("the query was cancelled before it cost anything", {"query_id": self.query_id})

    @property
    def is_charged(self) -> bool:
        """It has a hold that is not settled yet, as far as this process knows."""
        return self.status == "running"

    def waits_again(self) -> None:
        """Not charged after all: it can be cancelled as before."""
        self._fate.release()

    def cancel(self) -> bool:
        """Stop before the charge; False when it is too late for that."""
        return self._fate.acquire(blocking=False)


class Jobs:
    """A bounded number of queries at once; one more is refused before it costs anything."""

    def __init__(self, *, threads: int, backlog: int, on_bug: Callable[[Job, BaseException], None]) -> None:
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="query")
        self._backlog = backlog
        self._on_bug = on_bug
        self._jobs: dict[str, Job] = {}
        self._by_attempt: dict[tuple[str, str], Job] = {}
        self._by_question: dict[Hashable, Job] = {}
        self._open = 0
        self._lock = threading.Lock()

    def start(self, job: Job, work: Callable[[Job], bytes], attempt: tuple[str, str] | None) -> Job:
        """Run `work` on a thread; the same attempt twice is one job."""
        with self._lock:
            self._forget()
            if attempt is not None and attempt in self._by_attempt:
                return self._by_attempt[attempt]
            if self._open >= self._backlog:
                raise TooBusy("too many queries are waiting; try again in a moment", {"retry_after_s": 1})
            self._open += 1
            self._jobs[job.query_id] = job
            if attempt is not None:
                self._by_attempt[attempt] = job
        self._pool.submit(self._run, job, work, attempt)
        return job

    def asking(self, question: Hashable, job: Job) -> Job | None:
        """The job that asks the same question right now; None: from now on it is this one."""
        with self._lock:
            other = self._by_question.setdefault(question, job)
            return None if other is job else other

    def asked(self, question: Hashable, job: Job) -> None:
        """This job no longer asks that question."""
        with self._lock:
            if self._by_question.get(question) is job:
                del self._by_question[question]

    def find(self, query_id: str) -> Job | None:
        with self._lock:
            return self._jobs.get(query_id)

    def find_attempt(self, attempt: tuple[str, str]) -> Job | None:
        with self._lock:
            return self._by_attempt.get(attempt)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, job: Job, work: Callable[[Job], bytes], attempt: tuple[str, str] | None) -> None:
        try:
            job.body = work(job)
            job.status = "answered"
        except ServiceError as error:
            job.error, job.status = error, "failed"
        except BaseException as bug:
            self._on_bug(job, bug)
            job.error, job.status = AnswerFailed("the query could not be completed; treat its cost as spent"), "failed"
        finally:
            job.finished = time.monotonic()
            with self._lock:
                self._open -= 1
                if attempt is not None:
                    self._by_attempt.pop(attempt, None)
                if job.error is None and job.stands_for is None:
                    del self._jobs[job.query_id]  # the store has it; whoever waits holds the job itself
            job.done.set()

    def _forget(self) -> None:
        horizon = time.monotonic() - FORGET_AFTER_S
        for query_id in [i for i, job in self._jobs.items() if job.finished is not None and job.finished < horizon]:
            del self._jobs[query_id]
