"""A question that must be paid for, on a thread of its own: slot, **reserve**, exact, released, **settle**.

Everything that somebody could see of the outcome (answer, failure, stored release, history, allowance)
comes into being in the settle commit, and settling waits for the rung. So no other request, key or
process can learn earlier than the caller how long the engine ran (docs/decisions/0020).
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from service.catalog.store import Catalog
from service.core.boundary import KeyTable, ReleasedTable
from service.core.errors import AnswerFailed, OuterRefused, ServiceError, TooBusy
from service.engine.base import Engine, EngineFailed, Slot
from service.engine.duckdb.scratch import ScratchRefused
from service.ledger.book import Balance, Hold, Ledger
from service.ledger.holds import Outcome
from service.privacy.noise.sampling import NoiseSource
from service.released.store import Answers, Result, StoredAnswer, packed
from service.walk.answer_body import Facts, answer_body, receipt
from service.walk.answer_json import encode
from service.walk.core_run import CoreRun, declared_keys
from service.walk.failure_places import Allowance
from service.walk.jobs import Job
from service.walk.ladder import Ladder
from service.walk.outer_sql import ScratchRun, replicas_wanted, run_outer
from service.walk.question import Question
from service.walk.reuse import kept
from service.walk.submission import FAILED, Errand, to_store

log = logging.getLogger("halftone.answer")

SHAPELESS = "the released values could not be put into this form now; ask again, which is free"


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
class Charged:
    """A question whose cost is reserved: from here on it ends in exactly one settle.

    `balance` is of the moment of the charge: a later one would show which charges of others came while the
    engine ran, and so how long it ran.
    """

    question: Question
    errand: Errand
    query_id: str
    entry: int
    balance: Balance
    tables: tuple[ReleasedTable, ...] | None  # None: it failed, and why is in the operator's log


@dataclass(frozen=True, slots=True)
class Ending:
    """What settling will write and the caller will see: `error`, or the answer's bytes."""

    outcome: Outcome
    result: Result
    error: ServiceError | None = None


class Walker:
    """Takes a priced question through the boundary, once."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._allowance = Allowance(means.ledger)

    def walk(self, job: Job, question: Question, errand: Errand) -> bytes | None:
        """The answer's bytes; None when the data was replaced since the question was priced: nothing happened."""
        means = self._means
        with self._allowance.place(question.query.dataset, errand.principal.prefix, means.slot_wait_s) as place:
            charged = self._charge_and_run(job, question, errand)
            if charged is None:
                return None
            if charged.tables is not None:
                place.safe()
            ending = self._ending(charged)
            means.ladder.hold_until_rung(job.arrived)
            means.ledger.settle(job.query_id, ending.outcome, lambda tx: means.answers.put(tx, ending.result))
        if ending.error is not None:
            raise ending.error
        return ending.result.answer.body

    def _charge_and_run(self, job: Job, question: Question, errand: Errand) -> Charged | None:
        """Invariant W1: the slot serves the data version whose declarations the price was made from."""
        means, dataset = self._means, question.query.dataset
        with means.engine.slot(dataset, means.slot_wait_s, errand.principal.prefix) as slot:
            if slot.data_version != question.schema.data_version:
                return None
            keys = _public_keys(question, slot)
            balance = means.ledger.balance(dataset).after(question.priced.cost)
            job.refuse_if_cancelled()
            entry = self._reserve(job, question, errand)
            job.status = "running"
            tables = self._touch(job, question, slot, keys)
        return Charged(question, errand, job.query_id, entry, balance, tables)

    def _reserve(self, job: Job, question: Question, errand: Errand) -> int:
        priced = question.priced
        hold = Hold(
            query_id=job.query_id,
            dataset=question.query.dataset,
            principal=errand.principal.prefix,
            request_hash=errand.request_hash,
            cost=priced.cost,
            share=priced.share,
            key=errand.key,
            receipt=receipt(question),
        )
        if errand.line is not None:
            errand.line.take(question)
        try:
            return self._means.ledger.reserve(hold)
        except BaseException:
            if errand.line is not None:
                errand.line.give_back()
            raise

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
            _log("query failed after its charge", job.query_id, cause)
            return None
        return tuple(tables)

    def _ending(self, charged: Charged) -> Ending:
        """Whatever happened, one ending. Once the cores are released, nothing that follows is private."""
        try:
            if charged.tables is not None:
                return self._released(charged, charged.tables)
        except Exception as cause:
            _log("a released query could not be stored", charged.query_id, cause)
        error = AnswerFailed(FAILED, {"query_id": charged.query_id})
        return Ending("failed", packed(_refusal(charged, error)), error)

    def _released(self, charged: Charged, tables: tuple[ReleasedTable, ...]) -> Ending:
        """The answer; or, if the free outer SQL has none, its refusal. The cores are kept either way."""
        question, query_id = charged.question, charged.query_id
        releases = tuple(
            kept(question, core, table, query_id=query_id, data_version=question.schema.data_version)
            for core, table in enumerate(tables)
        )
        try:
            body = self._body(charged, tables)
        except ScratchRefused as refused:
            error = OuterRefused(str(refused), {"query_id": query_id})
            return Ending("answered", packed(_refusal(charged, error), releases), error)
        except Exception as cause:
            _log("released values could not be shaped", query_id, cause)
            error = OuterRefused(SHAPELESS, {"query_id": query_id})
            return Ending("answered", packed(_refusal(charged, error), releases), error)
        return Ending("answered", packed(to_store(charged.errand, question, query_id, body), releases))

    def _body(self, charged: Charged, tables: tuple[ReleasedTable, ...]) -> bytes:
        means, question = self._means, charged.question
        result = run_outer(means.scratch, question.query, tables, means.query_seconds)
        facts = Facts(charged.query_id, question.schema.data_version, charged.entry, None, charged.balance)
        return encode(answer_body(question, tables, result, facts))


def _public_keys(question: Question, slot: Slot) -> list[KeyTable | None]:
    """Keys that are declared or come from public tables: read before the charge, so failing is free."""
    try:
        return [declared_keys(plan, slot) if plan.keys_declared else None for plan in question.query.cores]
    except EngineFailed:
        raise TooBusy("the public keys could not be read now; ask again", {"retry_after_s": 1}) from None


def _refusal(charged: Charged, error: ServiceError) -> StoredAnswer:
    body = encode({"code": error.code, "detail": error.detail})
    return to_store(charged.errand, charged.question, charged.query_id, body, failed=True)


def _log(event: str, query_id: str, cause: BaseException) -> None:
    log.error(event, extra={"query_id": query_id, "cause": type(cause).__name__})
    log.debug("cause of %s", query_id, exc_info=cause)
