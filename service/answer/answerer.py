"""The walk of one query, from request to answer; the only package that knows all the others.

request → Schema → Plan → PricedPlan → engine slot → **reserve, commit** → exact integers → released
values → **settle, commit** → answer. Straight down; each step is a value.
"""

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from service.answer.body import Facts, answer_body, budget_body, paid_amount, receipt
from service.answer.estimate import estimate_body
from service.answer.jobs import Job, Jobs
from service.answer.ladder import Ladder
from service.answer.outer import ScratchRun, replicas_wanted, run_outer
from service.answer.question import Question, put_question
from service.answer.replay import Replayed, kept, lessened, replay
from service.answer.shape import encode
from service.answer.walk import CoreRun, declared_keys
from service.answers.store import Answers, StoredAnswer
from service.catalog.store import Catalog
from service.core.boundary import KeyTable, ReleasedTable
from service.core.errors import AnswerFailed, IdempotencyKeyReused, NotFound, OuterRefused, TooBusy
from service.core.ids import new_id
from service.core.request import Ask, Principal
from service.engine.base import Engine, Slot
from service.engine.scratch import ScratchRefused
from service.ledger.book import AttemptExists, Hold, Ledger
from service.privacy.sampling import NoiseSource

log = logging.getLogger("halftone.answer")

VERSION_TRIES = 3
FAILED = "the query could not be completed; its cost stays spent"


@dataclass(frozen=True, slots=True)
class Means:
    """What the walk works with; the composition root makes them."""

    catalog: Catalog
    ledger: Ledger
    engine: Engine
    scratch: ScratchRun
    answers: Answers
    noise: NoiseSource
    ladder: Ladder
    query_seconds: float
    slot_wait_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Submitted:
    """Where a query stands. `body` holds the stored bytes once it is answered."""

    query_id: str
    status: str
    is_new: bool
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Charged:
    """A question whose cost is reserved: from here on it ends in exactly one settle."""

    question: Question
    query_id: str
    entry: int
    data_version: int
    tables: tuple[ReleasedTable, ...] | None  # None: it failed, and why is in the operator's log


class Answerer:
    """Answers questions, once each."""

    def __init__(self, means: Means, *, threads: int = 32, backlog: int = 64) -> None:
        self._means = means
        self._jobs = Jobs(threads=threads, backlog=backlog, on_bug=_log_bug)

    # --- Asking ---

    def submit(
        self, ask: Ask, principal: Principal, idempotency_key: str | None, request_hash: str, wait_s: float
    ) -> Submitted:
        """Answer from store if that is free, else start the walk and wait for it a while."""
        arrived = time.monotonic()
        attempt = None if idempotency_key is None else (principal.prefix, idempotency_key)
        if attempt is not None and (earlier := self._earlier(attempt, request_hash)) is not None:
            return self._waited(earlier, wait_s) if isinstance(earlier, Job) else earlier
        question, found = self._cheapest(ask, principal)
        if found is not None:
            return self._replayed(question, found, principal)
        job = Job(new_id("q"), principal.prefix, request_hash, arrived)
        started = self._jobs.start(job, lambda job: self._walk(job, question, principal, idempotency_key), attempt)
        if started.request_hash != request_hash:
            raise IdempotencyKeyReused("this Idempotency-Key was used for another request; take a new one")
        return self._waited(started, wait_s)

    def find(self, query_id: str, principal: Principal) -> Submitted:
        """A query by its id, for its owner, for admins, and for viewers of its dataset."""
        job = self._jobs.find(query_id)
        if job is not None and job.principal == principal.prefix:
            return self._waited(job, 0)
        stored = self._means.answers.get(query_id)
        if stored is None or not _may_see(stored, principal):
            raise NotFound("there is no such query, or this key may not see it", {"query_id": query_id})
        return _stored(stored)

    def cancel(self, query_id: str, principal: Principal) -> Submitted:
        """Stop working on a query. Before its charge that is free; after it the charge stays."""
        job = self._jobs.find(query_id)
        if job is None or job.principal != principal.prefix:
            return self.find(query_id, principal)
        job.cancelled = True
        return Submitted(query_id, job.status, False, None)

    def estimate(self, ask: Ask, principal: Principal) -> dict[str, Any]:
        """What a query would cost and how wide its intervals would be. Never touches data."""
        question, found = self._cheapest(ask, principal)
        balance = self._means.ledger.balance(ask.dataset)
        return estimate_body(question, balance, None if found is None else found.replay_of)

    def line_cost(self, ask: Ask, principal: Principal) -> int:
        """What a panel's line pays for one refresh, in the unit it pays in; 0 for a free replay."""
        question, found = self._cheapest(ask, principal)
        if found is not None:
            return 0
        return paid_amount(question) if question.loss.kind in ("epsilon", "rho") else question.priced.share

    def budget(self, dataset: str, principal: Principal, detail: bool) -> dict[str, Any]:
        """Granted, spent and remaining; the caller's own quota and last query."""
        self._means.catalog.schema(dataset, principal)
        ledger = self._means.ledger
        past = ledger.history(principal.prefix, dataset=dataset)
        return budget_body(ledger.balance(dataset), ledger.quota(dataset, principal.prefix), past, detail=detail)

    def history(self, principal: Principal, dataset: str | None, text: str | None) -> list[dict[str, Any]]:
        """The caller's own questions, newest first."""
        return [
            {
                "id": past.query_id,
                "dataset": past.dataset,
                "sql": past.sql,
                "asked_at": past.asked_at,
                "status": past.status,
                "replay_of": past.replay_of,
            }
            for past in self._means.answers.history(principal.prefix, dataset=dataset, text=text)
        ]

    def close(self) -> None:
        """Let running queries finish."""
        self._jobs.close()

    # --- Before the charge: reads no data, failing is free ---

    def _question(self, ask: Ask, principal: Principal) -> Question:
        schema = self._means.catalog.schema(ask.dataset, principal)
        return put_question(ask, schema, self._means.ledger.terms(ask.dataset))

    def _cheapest(self, ask: Ask, principal: Principal) -> tuple[Question, Replayed | None]:
        """The question, and stored releases that answer it for nothing; else at the price of what they lack."""
        question = self._question(ask, principal)
        if ask.fresh:
            return question, None
        found = replay(self._means.answers, question)
        return (question, found) if found is not None else (lessened(self._means.answers, question), None)

    def _earlier(self, attempt: tuple[str, str], request_hash: str) -> Job | Submitted | None:
        """What became of the first request under this key; a died one is the same failure for ever."""
        job = self._jobs.find_attempt(attempt)
        known = self._means.ledger.lookup(*attempt) if job is None else None
        earlier_hash = job.request_hash if job is not None else known.request_hash if known is not None else None
        if earlier_hash is None:
            return None
        if earlier_hash != request_hash:
            raise IdempotencyKeyReused("this Idempotency-Key was used for another request; take a new one")
        if job is not None:
            return job
        assert known is not None
        if known.state == "held":
            return Submitted(known.query_id, "running", False, None)
        stored = self._means.answers.get(known.query_id)
        if stored is None:
            raise AnswerFailed(FAILED, {"query_id": known.query_id})
        return _stored(stored)

    def _replayed(self, question: Question, found: Replayed, principal: Principal) -> Submitted:
        """Another answer from the same release: new bytes, no charge, no delay."""
        query_id, version = new_id("q"), question.schema.data_version
        balance = self._means.ledger.balance(question.query.dataset)
        facts = Facts(query_id, version, None, found.replay_of, balance, found.receipt)
        try:
            result = run_outer(self._means.scratch, question.query, found.tables, self._means.query_seconds)
        except ScratchRefused as refused:
            raise OuterRefused(str(refused), {"query_id": query_id}) from None
        body = encode(answer_body(question, found.tables, result, facts))
        answer = _answer(question, principal, query_id, "answered", body)
        self._means.answers.save(answer)
        return Submitted(query_id, "answered", False, body)

    def _waited(self, job: Job, wait_s: float) -> Submitted:
        if not job.done.wait(wait_s):
            return Submitted(job.query_id, job.status, True, None)
        if job.error is not None:
            job.error.extra.setdefault("query_id", job.query_id)
            raise job.error
        return Submitted(job.query_id, "answered", True, job.body)

    # --- The walk itself, on a thread of its own ---

    def _walk(self, job: Job, question: Question, principal: Principal, key: str | None) -> bytes:
        """Take a slot, charge, touch data, settle. The data version is the one that was planned for."""
        for _ in range(VERSION_TRIES):
            charged = self._charge_and_run(job, question, principal, key)
            if charged is not None:
                try:
                    return self._settle(job, charged, principal)
                finally:
                    self._means.ladder.hold_until_rung(job.arrived)
            question, _ = self._cheapest(question.ask, principal)
        raise TooBusy("the data is being replaced; try again in a moment", {"retry_after_s": 1})

    def _charge_and_run(self, job: Job, question: Question, principal: Principal, key: str | None) -> Charged | None:
        """None: the slot serves another data version than the question was planned for."""
        means, dataset = self._means, question.query.dataset
        with means.engine.slot(dataset, means.slot_wait_s, principal.prefix) as slot:
            if slot.data_version != question.schema.data_version:
                return None
            keys = [declared_keys(plan, slot) if plan.keys_declared else None for plan in question.query.cores]
            if job.cancelled:
                raise NotFound("the query was cancelled before it cost anything", {"query_id": job.query_id})
            entry = self._reserve(job, question, key)
            job.status = "running"
            tables = self._touch(job, question, slot, keys)
        return Charged(question, job.query_id, entry, slot.data_version, tables)

    def _reserve(self, job: Job, question: Question, key: str | None) -> int:
        priced = question.priced
        hold = Hold(
            query_id=job.query_id,
            dataset=question.query.dataset,
            principal=job.principal,
            request_hash=job.request_hash,
            cost=priced.cost,
            share=priced.share,
            key=key,
            receipt=receipt(question),
        )
        try:
            return self._means.ledger.reserve(hold)
        except AttemptExists:
            raise TooBusy(
                "this attempt is already being answered; ask again in a moment", {"retry_after_s": 1}
            ) from None

    def _touch(
        self, job: Job, question: Question, slot: Slot, keys: Sequence[KeyTable | None]
    ) -> tuple[ReleasedTable, ...] | None:
        """Every core, released; or None for any failure whatsoever, which only the operator's log tells apart."""
        means = self._means
        deadline = time.monotonic() + means.query_seconds
        tables = []
        try:
            for core, (priced, public) in enumerate(zip(question.priced.plans, keys, strict=True)):
                run = CoreRun(slot, means.noise, means.engine.dialect, deadline)
                copies = replicas_wanted(question.query) if core == 0 else frozenset()
                base = question.base[core] if question.base else None
                tables.append(run.release(priced, public, replicas=copies, base=base))
        except Exception as cause:
            log.error("query failed after its charge", extra={"query_id": job.query_id, "cause": type(cause).__name__})
            log.debug("cause of %s", job.query_id, exc_info=True)
            return None
        return tuple(tables)

    def _settle(self, job: Job, charged: Charged, principal: Principal) -> bytes:
        """Store the result and close the hold in one commit; only then may anything leave."""
        means, question = self._means, charged.question
        if charged.tables is None:
            body = encode({"code": AnswerFailed.code, "detail": FAILED})
            failed = _answer(question, principal, job.query_id, "failed", body)
            means.ledger.settle(job.query_id, "failed", lambda tx: means.answers.put(tx, failed))
            raise AnswerFailed(FAILED, {"query_id": job.query_id})
        refusal: str | None = None
        try:
            result = run_outer(means.scratch, question.query, charged.tables, means.query_seconds)
            balance = means.ledger.balance(question.query.dataset)
            facts = Facts(job.query_id, charged.data_version, charged.entry, None, balance)
            body = encode(answer_body(question, charged.tables, result, facts))
        except ScratchRefused as refused:
            refusal = str(refused)
            body = encode({"code": OuterRefused.code, "detail": refusal})
        answer = _answer(question, principal, job.query_id, "failed" if refusal else "answered", body)
        releases = tuple(
            kept(question, core, table, query_id=job.query_id, data_version=charged.data_version)
            for core, table in enumerate(charged.tables)
        )
        means.ledger.settle(job.query_id, "answered", lambda tx: means.answers.put(tx, answer, releases))
        if refusal is not None:
            raise OuterRefused(refusal, {"query_id": job.query_id})
        return body


def _answer(question: Question, principal: Principal, query_id: str, status: str, body: bytes) -> StoredAnswer:
    return StoredAnswer(
        query_id=query_id,
        principal=principal.prefix,
        dataset=question.query.dataset,
        data_version=question.schema.data_version,
        sql=question.ask.sql,
        asked_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        status=status,
        body=body,
    )


def _stored(stored: StoredAnswer) -> Submitted:
    """A stored answer as it left, also when it was a failure."""
    if stored.status == "answered":
        return Submitted(stored.query_id, "answered", False, stored.body)
    said = json.loads(stored.body)
    error = OuterRefused if said["code"] == OuterRefused.code else AnswerFailed
    raise error(said["detail"], {"query_id": stored.query_id})


def _may_see(stored: StoredAnswer, principal: Principal) -> bool:
    if principal.role == "admin" or stored.principal == principal.prefix:
        return True
    return principal.role == "viewer" and stored.dataset in principal.datasets


def _log_bug(job: Job, bug: BaseException) -> None:
    log.error("query ended in a bug", extra={"query_id": job.query_id, "cause": type(bug).__name__})
    log.debug("bug in %s", job.query_id, exc_info=bug)
