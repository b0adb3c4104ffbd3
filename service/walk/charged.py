"""A question that must be paid for, on a thread of its own: slot, emitted, **reserve**, exact, released, **settle**.

What can fail without looking at private rows has failed before the reserve: public keys are read and every core is
emitted (service/walk/core_run.py). A bug in there is an error like any other bug, and costs nothing.

Everything that somebody could see of the outcome (answer, failure, stored release, history, allowance)
comes into being in the settle commit, and settling waits for the rung. So no other request, key or
process can learn earlier than the caller how long the engine ran (docs/decisions/0020).
"""

import logging
import time
from dataclasses import dataclass

from service.catalog.store import Catalog
from service.core.boundary import ReleasedTable
from service.core.errors import AnswerFailed, FailedForNothing, OuterRefused, ServiceError, TooBusy
from service.engine.base import Engine, EngineFailed, Scratch, ScratchRefused, Slot
from service.ledger.book import Balance, Hold, Ledger
from service.ledger.holds import Outcome
from service.privacy.noise.sampling import NoiseSource
from service.released.store import Answers, PackedResult, StoredAnswer, packed
from service.walk.answer_body import Facts, answer_body, receipt
from service.walk.answer_json import encode
from service.walk.core_run import CoreRun, declared_keys, fresh_salt
from service.walk.failure_places import Allowance
from service.walk.jobs import Job
from service.walk.ladder import Ladder
from service.walk.outer_sql import replicas_wanted, run_outer
from service.walk.question import Question
from service.walk.reuse import kept
from service.walk.submission import FAILED, Submission, to_store

log = logging.getLogger("halftone.answer")

NOT_CHARGED = "the query could not be prepared; it cost nothing, and the operator's log says why"
SHAPELESS = "the released values could not be put into this form now; ask again, which is free"


@dataclass(frozen=True, slots=True)
class WalkTools:
    """What the walk works with; the composition root makes them."""

    catalog: Catalog
    ledger: Ledger
    engine: Engine
    scratch: Scratch
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
    submission: Submission
    query_id: str
    entry: int
    balance: Balance
    tables: tuple[ReleasedTable, ...] | None  # None: it failed, and why is in the operator's log


@dataclass(frozen=True, slots=True)
class Ending:
    """What settling will write and the caller will see: `error`, or the answer's bytes."""

    outcome: Outcome
    result: PackedResult
    error: ServiceError | None = None


class Walker:
    """Takes a priced question through the boundary, once."""

    def __init__(self, tools: WalkTools) -> None:
        self._tools = tools
        self._allowance = Allowance(tools.ledger)

    def walk(self, job: Job, question: Question, submission: Submission) -> bytes | None:
        """The answer's bytes; None when the data was replaced since the question was priced: nothing happened."""
        tools = self._tools
        with self._allowance.place(question.query.dataset, submission.principal.prefix, tools.slot_wait_s) as place:
            charged = self._charge_and_run(job, question, submission)
            if charged is None:
                return None
            if charged.tables is not None:
                place.safe()
            ending = self._ending(charged)
            tools.ladder.hold_until_rung(job.arrived)
            tools.ledger.settle(job.query_id, ending.outcome, lambda tx: tools.answers.put(tx, ending.result))
        if ending.error is not None:
            raise ending.error
        return ending.result.answer.body

    def _charge_and_run(self, job: Job, question: Question, submission: Submission) -> Charged | None:
        """Invariant W1: the slot serves the data version whose declarations the price was made from."""
        tools, dataset = self._tools, question.query.dataset
        with tools.engine.slot(dataset, tools.slot_wait_s, submission.principal.prefix) as slot:
            if slot.data_version != question.schema.data_version:
                return None
            runs = _emitted(question, slot, job.query_id)
            balance = tools.ledger.balance(dataset).after(question.priced.cost)
            job.refuse_if_cancelled()
            entry = self._reserve(job, question, submission)
            job.status = "running"
            tables = self._touch(job, question, runs)
        return Charged(question, submission, job.query_id, entry, balance, tables)

    def _reserve(self, job: Job, question: Question, submission: Submission) -> int:
        priced = question.priced
        hold = Hold(
            query_id=job.query_id,
            dataset=question.query.dataset,
            principal=submission.principal.prefix,
            request_hash=submission.request_hash,
            cost=priced.cost,
            share=priced.share,
            key=submission.key,
            receipt=receipt(question),
        )
        if submission.line is not None:
            submission.line.take(question)
        try:
            return self._tools.ledger.reserve(hold)
        except BaseException:
            if submission.line is not None:
                submission.line.give_back()
            raise

    def _touch(self, job: Job, question: Question, runs: list[CoreRun]) -> tuple[ReleasedTable, ...] | None:
        """Every core, released; or None for any failure whatsoever, which only the operator's log tells apart."""
        tools = self._tools
        deadline = time.monotonic() + tools.query_seconds
        tables = []
        try:
            for core, run in enumerate(runs):
                copies = replicas_wanted(question.query) if core == 0 else frozenset()
                base = question.base[core] if question.base else None
                tables.append(run.release(tools.noise, deadline, replicas=copies, base=base))
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
        return Ending("answered", packed(to_store(charged.submission, question, query_id, body), releases))

    def _body(self, charged: Charged, tables: tuple[ReleasedTable, ...]) -> bytes:
        tools, question = self._tools, charged.question
        result = run_outer(tools.scratch, question.query, tables, tools.query_seconds)
        facts = Facts(charged.query_id, question.schema.data_version, charged.entry, None, charged.balance)
        return encode(answer_body(question, tables, result, facts))


def _emitted(question: Question, slot: Slot, query_id: str) -> list[CoreRun]:
    """Every core, ready to run: with its keys, where they are declared or come from public tables, and emitted."""
    plans = question.priced.plans
    try:
        keys = [declared_keys(priced.plan, slot) if priced.plan.keys_declared else None for priced in plans]
        return [CoreRun(slot, priced, public, fresh_salt()) for priced, public in zip(plans, keys, strict=True)]
    except EngineFailed:
        raise TooBusy("the engine could not prepare this now; ask again", {"retry_after_s": 1}) from None
    except ServiceError:
        raise
    except Exception as bug:
        _log("query failed before its charge", query_id, bug)
        raise FailedForNothing(NOT_CHARGED, {"query_id": query_id}) from None


def _refusal(charged: Charged, error: ServiceError) -> StoredAnswer:
    body = encode({"code": error.code, "detail": error.detail})
    return to_store(charged.submission, charged.question, charged.query_id, body, failed=True)


def _log(event: str, query_id: str, cause: BaseException) -> None:
    log.error(event, extra={"query_id": query_id, "cause": type(cause).__name__})
    log.debug("cause of %s", query_id, exc_info=cause)
