"""Answers questions, once each: from store where that is free, else by the walk (service/walk/charged.py).

request → Schema → Plan → PricedPlan → engine slot → emitted → **reserve, commit** → exact integers →
released values → **settle, commit** → answer. Straight down; each step is a value.
"""

import json
import logging
import time
from collections.abc import Hashable, Sequence
from typing import Any

from service.core.errors import (
    AnswerFailed,
    IdempotencyKeyReused,
    NotFound,
    OuterRefused,
    ReplayRefused,
    TooBusy,
    placed,
)
from service.core.ids import new_id
from service.core.request import IMPORT, Ask, Principal
from service.core.versions import common_version, versions_of, versions_to_text
from service.engine.base import ScratchRefused
from service.ledger.book import Attempt, AttemptExists
from service.released.store import StoredAnswer
from service.walk.answer_body import Facts, answer_body, budget_body, line_amount
from service.walk.answer_json import encode
from service.walk.charged import Walker, WalkTools
from service.walk.estimate import batch_body, estimate_body
from service.walk.history import HistoryPart, history_lines
from service.walk.jobs import Job, Jobs
from service.walk.outer_sql import run_outer
from service.walk.planner import Planner, PlannerHere
from service.walk.pricing import Pricing
from service.walk.question import Question
from service.walk.rehearsal import Rehearsal
from service.walk.reuse import Replayed
from service.walk.sameness import all_tables
from service.walk.submission import FAILED, Submission, Submitted, to_store

log = logging.getLogger("halftone.answer")

VERSION_TRIES = 3
ATTEMPT_POLL_S = 0.05
BOUGHT_A_PROFILE = "this charge bought the profile of a table, and no answer; the page of its dataset shows it"


class Answerer:
    """What routes and panels ask. Everything here that reads data does so on a job's thread."""

    def __init__(
        self, tools: WalkTools, *, planner: Planner | None = None, threads: int = 32, backlog: int = 64
    ) -> None:
        self._tools = tools
        books = (tools.catalog, tools.ledger, tools.answers)
        self._pricing = Pricing(*books, Rehearsal(tools.scratch), planner or PlannerHere(), tools.time)
        self._walker = Walker(tools)
        self._jobs = Jobs(threads=threads, backlog=backlog, on_bug=_log_bug)

    # --- Asking ---

    def submit(
        self, ask: Ask, principal: Principal, idempotency_key: str | None, request_hash: str, wait_s: float
    ) -> Submitted:
        """Answer from store if that is free, else start the walk and wait for it a while."""
        return self.run(Submission(ask, principal, request_hash, idempotency_key), wait_s)

    def run(self, submission: Submission, wait_s: float) -> Submitted:
        earlier = self._earlier(submission)
        if earlier is not None:
            return self._waited(earlier, wait_s) if isinstance(earlier, Job) else earlier
        question, found = self._pricing.cheapest(submission.ask, submission.principal)
        if found is not None:
            return self._replayed(question, found, submission, new_id("q"))
        job = Job(new_id("q"), submission.principal.prefix, submission.request_hash)
        started = self._jobs.start(job, lambda job: self._work(job, question, submission), submission.attempt)
        _same_request(started.request_hash, submission)
        return self._waited(started, wait_s)

    def find(self, query_id: str, principal: Principal) -> Submitted:
        """A query by its id, for its owner, for admins, and for viewers of its dataset."""
        job = self._jobs.find(query_id)
        if job is not None and job.principal == principal.prefix:
            return self._waited(job, 0)
        stored = self._tools.answers.get(query_id)
        if stored is not None and _may_see(stored, principal):
            return _as_stored(stored)
        charged = None if stored is not None else self._tools.ledger.find(query_id)
        if charged is None or (charged[0] != principal.prefix and principal.role != "admin"):
            raise NotFound("there is no such query, or this key may not see it", {"query_id": query_id})
        if charged[0] == IMPORT:
            raise NotFound(BOUGHT_A_PROFILE, {"query_id": query_id})
        return _unanswered(query_id, charged[1].state)

    def cancel(self, query_id: str, principal: Principal) -> Submitted:
        """Stop a query that has cost nothing yet. A charged one is finished and stored all the same: whether it
        was done at some moment would tell how long it ran (docs/decisions/0021)."""
        job = self._jobs.find(query_id)
        if job is None or job.principal != principal.prefix:
            return self.find(query_id, principal)
        return Submitted(query_id, "cancelled" if job.cancel() else job.status, False, None)

    def estimate(self, ask: Ask, principal: Principal) -> dict[str, Any]:
        """What a query would cost and how wide its intervals would be. Never touches data."""
        question, found = self._pricing.cheapest(ask, principal)
        balance = self._tools.ledger.balance(ask.dataset)
        return estimate_body(question, balance, None if found is None else found.replay_of)

    def estimate_all(self, asks: Sequence[Ask], principal: Principal) -> dict[str, Any]:
        """Several questions priced together: each by itself, and what they cost in all."""
        priced = []
        for at, ask in enumerate(asks):
            with placed(f"body.queries.{at}"):
                priced.append(self._pricing.cheapest(ask, principal))
        balances = {ask.dataset: self._tools.ledger.balance(ask.dataset) for ask in asks}
        estimates = [
            estimate_body(question, balances[question.query.dataset], None if found is None else found.replay_of)
            for question, found in priced
        ]
        return batch_body([question for question, _ in priced], estimates, balances)

    def shows_now(self, ask: Ask, principal: Principal, shown: StoredAnswer) -> bool:
        """Would asking again give this answer for nothing? Not if a public table that only its outer SQL reads has a
        new version: then the same release gives another answer, and still for nothing."""
        question, found = self._pricing.cheapest(ask, principal)
        if found is None or found.replay_of != (shown.replay_of or shown.query_id):
            return False
        versions = versions_of(question.schema, all_tables(question.query))
        if shown.versions is None:
            return common_version(versions) == shown.data_version
        return versions_to_text(versions) == shown.versions

    def line_cost(self, ask: Ask, principal: Principal) -> tuple[str, int]:
        """The unit in which a panel's line pays for this question, and what one refresh on new data costs."""
        return line_amount(self._pricing.question(ask, principal))

    def budget(self, dataset: str, principal: Principal, detail: bool) -> dict[str, Any]:
        """Granted, spent and remaining; the caller's own quota and last query."""
        self._tools.catalog.schema(dataset, principal)
        ledger = self._tools.ledger
        past = ledger.history(principal.prefix, dataset=dataset)
        balance, quota = ledger.balance(dataset), ledger.quota(dataset, principal.prefix)
        paused = balance.paused or ledger.allowance(dataset, principal.person).paused
        return budget_body(balance, quota, past, paused=paused, detail=detail)

    def history(self, principal: Principal, wanted: HistoryPart) -> list[dict[str, Any]]:
        """The caller's own questions, newest first."""
        return history_lines(self._tools.answers, self._tools.ledger, principal.prefix, wanted)

    def close(self) -> None:
        """Let running queries finish."""
        self._jobs.close()

    # --- Answers that cost nothing ---

    def _earlier(self, submission: Submission) -> Job | Submitted | None:
        """What became of the first request under this key; a died one is the same failure for ever."""
        if submission.attempt is None:
            return None
        job = self._jobs.find_attempt(submission.attempt)
        if job is not None:
            _same_request(job.request_hash, submission)
            return job
        charged = self._tools.ledger.lookup(*submission.attempt)
        free = self._tools.answers.attempt(*submission.attempt) if charged is None else None
        known = charged or free
        if known is None:
            return None
        _same_request(known.request_hash, submission)
        stored = self._tools.answers.get(known.query_id)
        return _as_stored(stored) if stored else _unanswered(known.query_id, charged.state if charged else "failed")

    def _replayed(self, question: Question, found: Replayed, submission: Submission, query_id: str) -> Submitted:
        """Another answer from the same release: new bytes, no charge, no delay; the same under the same key."""
        balance = self._tools.ledger.balance(question.query.dataset)
        facts = Facts(query_id, question.schema.data_version, None, found.replay_of, balance, found.receipt)
        try:
            caller = submission.principal.person
            result = run_outer(self._tools.scratch, question.query, found.tables, self._tools.query_seconds, caller)
        except ScratchRefused as refused:
            raise ReplayRefused(str(refused), {"query_id": query_id}) from None
        body = encode(answer_body(question, found.tables, result, facts))
        answer = to_store(submission, question, query_id, body, replay_of=found.replay_of)
        first = self._tools.answers.save(answer, submission.key, submission.request_hash)
        if first is None:
            return Submitted(query_id, "answered", False, body)
        _same_request(first.request_hash, submission)
        return self.find(first.query_id, submission.principal)

    def _waited(self, job: Job, wait_s: float) -> Submitted:
        if not job.done.wait(wait_s):
            return Submitted(job.query_id, job.status, True, None)
        if job.error is not None:
            job.error.extra.setdefault("query_id", job.query_id)
            raise job.error
        return Submitted(job.stands_for or job.query_id, "answered", job.pays, job.body)

    # --- On a job's thread ---

    def _work(self, job: Job, question: Question, submission: Submission) -> bytes:
        try:
            return self._answered(job, question, submission)
        except AttemptExists as first:
            return self._first_of_its_key(job, first.attempt)

    def _first_of_its_key(self, job: Job, attempt: Attempt) -> bytes:
        """The same attempt was charged a moment ago, or at another process: its outcome is this one's."""
        until = time.monotonic() + 2 * self._tools.query_seconds
        while attempt.state == "held" and time.monotonic() < until:
            time.sleep(ATTEMPT_POLL_S)
            found = self._tools.ledger.find(attempt.query_id)
            assert found is not None, "a hold is never removed"
            attempt = found[1]
        stored = self._tools.answers.get(attempt.query_id)
        body = None if stored is None else _as_stored(stored).body
        if body is None:
            raise AnswerFailed(FAILED, {"query_id": attempt.query_id})
        job.pays, job.stands_for = False, attempt.query_id
        return body

    def _answered(self, job: Job, question: Question, submission: Submission) -> bytes:
        """One job at a time asks a question: those that ask the same meanwhile wait, and find it stored."""
        found: Replayed | None = None
        for _ in range(VERSION_TRIES):
            name = _name(question)
            if not submission.ask.fresh:
                question, found = self._in_turn(job, name, question, submission)
            try:
                if found is not None:
                    return self._for_nothing(job, question, found, submission)
                body = self._walker.walk(job, question, submission)
            finally:
                self._jobs.asked(name, job)
            if body is not None:
                return body
            question, found = self._pricing.cheapest(submission.ask, submission.principal)
        raise TooBusy("the data is being replaced; try again in a moment", {"retry_after_s": 1})

    def _in_turn(
        self, job: Job, name: Hashable, question: Question, submission: Submission
    ) -> tuple[Question, Replayed | None]:
        """Wait while another job asks the same; what it left behind may be the answer."""
        found: Replayed | None = None
        while found is None and (other := self._jobs.asking(name, job)) is not None:
            other.done.wait()
            question, found = self._pricing.cheapest(submission.ask, submission.principal)
        return question, found

    def _for_nothing(self, job: Job, question: Question, found: Replayed, submission: Submission) -> bytes:
        job.refuse_if_cancelled()
        job.pays = False
        body = self._replayed(question, found, submission, job.query_id).body
        assert body is not None
        return body


def _name(question: Question) -> Hashable:
    """What two requests share that would be charged for the same thing twice."""
    plans = tuple((plan.digest, repr(plan.bounds)) for plan in question.query.cores)
    versions = versions_to_text(versions_of(question.schema, all_tables(question.query)))
    return question.query.dataset, versions, plans, repr(question.loss)


def _same_request(known_hash: str, submission: Submission) -> None:
    if known_hash != submission.request_hash:
        raise IdempotencyKeyReused("this Idempotency-Key was used for another request; take a new one")


def _as_stored(stored: StoredAnswer) -> Submitted:
    """A stored answer as it left, also when it was a failure."""
    if stored.status == "answered":
        return Submitted(stored.query_id, "answered", False, stored.body)
    said = json.loads(stored.body)
    error = OuterRefused if said["code"] == OuterRefused.code else AnswerFailed
    raise error(said["detail"], {"query_id": stored.query_id})


def _unanswered(query_id: str, state: str) -> Submitted:
    """A charged query without a stored result: another process works on it, or its process died."""
    if state == "held":
        return Submitted(query_id, "running", False, None)
    raise AnswerFailed(FAILED, {"query_id": query_id})


def _may_see(stored: StoredAnswer, principal: Principal) -> bool:
    if principal.role == "admin" or stored.principal == principal.prefix:
        return True
    return principal.role == "viewer" and stored.dataset in principal.datasets


def _log_bug(job: Job, bug: BaseException) -> None:
    log.error("query ended in a bug", extra={"query_id": job.query_id, "cause": type(bug).__name__})
    log.debug("bug in %s", job.query_id, exc_info=bug)
