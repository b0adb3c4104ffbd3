"""A question that must be paid for, on a thread of its own: slot, emitted, **reserve**, exact, released, **settle**.

What can fail without looking at private rows has failed before the reserve: public keys are read and every core is
emitted (service/walk/core_run.py). A bug in there is an error like any other bug, and costs nothing.

From the order that follows the charge to the moment at which the slot is given back exactly the promised time passes
(service/walk/promised_time.py); up to that order nothing has read a row.
What takes a time that depends on private rows happens within it and elsewhere, in engine children and release
processes. Outer SQL, encoding and settling begin when it is over: their time depends on released values alone. And
everything that somebody could see of the outcome (answer, failure, stored release, history, allowance) comes into
being in the settle commit. So nobody, with whatever key, can learn how long the engine ran (docs/decisions/0035).
"""

import logging
import time
from dataclasses import dataclass

from service.catalog.kept_bounds import DefaultsMoved
from service.catalog.store import Catalog
from service.core.boundary import ReleasedTable
from service.core.errors import AnswerFailed, FailedForNothing, OuterRefused, ServiceError, TooBusy
from service.core.versions import versions_of
from service.engine.base import Engine, EngineFailed, Scratch, ScratchRefused, Slot
from service.ledger.book import AttemptExists, Balance, Hold, Ledger, NoRoomYet
from service.ledger.holds import Outcome
from service.privacy.noise.sampling import NoiseSource
from service.released.store import Answers, PackedResult, StoredAnswer, packed
from service.walk.answer_body import Facts, answer_body, receipt
from service.walk.answer_json import encode
from service.walk.core_run import CoreRun, declared_keys, fresh_salt
from service.walk.jobs import Job
from service.walk.outer_sql import replicas_wanted, run_outer
from service.walk.promised_time import PromisedTime
from service.walk.question import Question
from service.walk.releasing import Finished, Release, ReleaseHere, ReleaseOrder, Releasers
from service.walk.reuse import kept
from service.walk.room import Room
from service.walk.sameness import all_tables
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
    time: PromisedTime
    releasers: Releasers
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

    def walk(self, job: Job, question: Question, submission: Submission) -> bytes | None:
        """The answer's bytes; None when data or defaults were replaced since it was priced: nothing happened."""
        tools = self._tools
        room = Room(tools.ledger, question.query.dataset, submission.principal.person, tools.slot_wait_s)
        try:
            charged = room.when_there_is_some(lambda: self._charge_and_run(job, question, submission))
        except BaseException as cause:
            if not job.is_charged:
                raise
            self._give_up(job.query_id, cause)
            raise AnswerFailed(FAILED, {"query_id": job.query_id}) from None
        if charged is None:
            return None
        ending = self._settled(charged)
        if ending.error is not None:
            raise ending.error
        return ending.result.answer.body

    def _settled(self, charged: Charged) -> Ending:
        """The question's ending, which is in the store by now; AnswerFailed where that could not be. A settle that
        raised may have been committed all the same: then it counts, for the caller as for the store."""
        tools, query_id = self._tools, charged.query_id
        try:
            ending = self._ending(charged)
            tools.ledger.settle(query_id, ending.outcome, lambda tx: tools.answers.put(tx, ending.result))
        except BaseException as cause:
            if self._give_up(query_id, cause):
                return ending
            raise AnswerFailed(FAILED, {"query_id": query_id}) from None
        return ending

    def _give_up(self, query_id: str, cause: BaseException) -> bool:
        """Close the hold of a question that can't be brought to its end: an open one would take a place for ever."""
        _log("a charged query could not be brought to its end", query_id, type(cause).__name__)
        return self._tools.ledger.give_up(query_id)

    def _charge_and_run(self, job: Job, question: Question, submission: Submission) -> Charged | None:
        """Invariant W1: the slot serves the versions of the tables whose declarations the price was made from."""
        tools, dataset = self._tools, question.query.dataset
        with tools.engine.slot(dataset, tools.slot_wait_s, submission.principal.person) as slot:
            read = versions_of(question.schema, all_tables(question.query))
            if any(slot.version(table) != version for table, version in read.items()):
                return None
            runs = _emitted(question, slot, job.query_id)
            balance = tools.ledger.balance(dataset).after(question.priced.cost)
            job.refuse_if_cancelled()
            try:
                entry = self._reserve(job, question, submission)
            except DefaultsMoved:
                job.waits_again()
                return None
            except NoRoomYet:
                job.waits_again()
                raise
            job.status = "running"
            tables = self._released_in_time(job.query_id, question, runs, slot)
        return Charged(question, submission, job.query_id, entry, balance, tables)

    def _reserve(self, job: Job, question: Question, submission: Submission) -> int:
        """Defaults that this question is the first to use are stored in the commit of its charge."""
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
            owner=submission.principal.person,
        )
        used = {each.basis: each.bounds for each in question.chosen if each is not None}
        keeping = self._tools.catalog.kept_bounds.keeping(hold.dataset, used)
        if submission.line is not None:
            submission.line.take(question)
        try:
            return self._tools.ledger.reserve(hold, keeping)
        except (ServiceError, AttemptExists):  # refused; whatever else is raised may have been charged
            if submission.line is not None:
                submission.line.give_back()
            raise

    def _released_in_time(
        self, query_id: str, question: Question, runs: tuple[CoreRun, ...], slot: Slot
    ) -> tuple[ReleasedTable, ...] | None:
        """Every core, released, when the promised time is over; or None for any failure whatsoever, which only the
        operator's log tells apart. The time begins when the order is handed over: up to then no row was read, and a
        release process that had to be started first takes nothing from it."""
        tools = self._tools
        release = self._started(query_id, question, runs, slot)
        try:
            message = tools.time.keep(question.promise, release, lambda: self._late(query_id))
        except BaseException:
            slot.spoil()  # its child may still answer somebody who no longer listens
            raise
        finally:
            release.stop()
        if isinstance(message, Finished):
            return message.tables
        slot.spoil()
        _log("query failed after its charge", query_id, message.kind)
        return None

    def _started(self, query_id: str, question: Question, runs: tuple[CoreRun, ...], slot: Slot) -> Release:
        """An order under way; one that could not be given fails like any other, when its time has come."""
        try:
            return self._tools.releasers.start(self._order(query_id, question, runs), slot)
        except Exception as cause:
            return ReleaseHere.failed(type(cause).__name__, self._tools.time.clock())

    def _late(self, query_id: str) -> None:
        """A store that does not take it changes nothing for the question: it is counted when that is settled."""
        try:
            self._tools.ledger.late(query_id)
        except Exception as cause:
            _log("a late query is not counted yet", query_id, type(cause).__name__)
        log.warning("query is late", extra={"query_id": query_id})

    def _order(self, query_id: str, question: Question, runs: tuple[CoreRun, ...]) -> ReleaseOrder:
        copies = replicas_wanted(question.query)
        return ReleaseOrder(
            query_id=query_id,
            runs=tuple(run.to_travel() for run in runs),
            replicas=tuple(copies if core == 0 else frozenset() for core in range(len(runs))),
            bases=question.base or (None,) * len(runs),
            noise=self._tools.noise,
            deadline=time.monotonic() + self._tools.query_seconds,
        )

    def _ending(self, charged: Charged) -> Ending:
        """Whatever happened, one ending. Once the cores are released, nothing that follows is private."""
        try:
            if charged.tables is not None:
                return self._released(charged, charged.tables)
        except Exception as cause:
            _log("a released query could not be stored", charged.query_id, type(cause).__name__)
        error = AnswerFailed(FAILED, {"query_id": charged.query_id})
        return Ending("failed", packed(_refusal(charged, error)), error)

    def _released(self, charged: Charged, tables: tuple[ReleasedTable, ...]) -> Ending:
        """The answer; or, if the free outer SQL has none, its refusal. The cores are kept either way."""
        question, query_id = charged.question, charged.query_id
        releases = tuple(kept(question, core, table, query_id=query_id) for core, table in enumerate(tables))
        try:
            body = self._body(charged, tables)
        except ScratchRefused as refused:
            error = OuterRefused(str(refused), {"query_id": query_id})
            return Ending("answered", packed(_refusal(charged, error), releases), error)
        except Exception as cause:
            _log("released values could not be shaped", query_id, type(cause).__name__)
            error = OuterRefused(SHAPELESS, {"query_id": query_id})
            return Ending("answered", packed(_refusal(charged, error), releases), error)
        return Ending("answered", packed(to_store(charged.submission, question, query_id, body), releases))

    def _body(self, charged: Charged, tables: tuple[ReleasedTable, ...]) -> bytes:
        tools, question = self._tools, charged.question
        caller = charged.submission.principal.person
        result = run_outer(tools.scratch, question.query, tables, tools.query_seconds, caller)
        facts = Facts(charged.query_id, question.schema.data_version, charged.entry, None, charged.balance)
        return encode(answer_body(question, tables, result, facts))


def _emitted(question: Question, slot: Slot, query_id: str) -> tuple[CoreRun, ...]:
    """Every core, ready to run: with its keys, where they are declared or come from public tables, and emitted."""
    plans = question.priced.plans
    try:
        keys = [declared_keys(priced.plan, slot) if priced.plan.keys_declared else None for priced in plans]
        emitted = (CoreRun.emitted(slot, *core, fresh_salt()) for core in zip(plans, keys, strict=True))
        return tuple(emitted)
    except EngineFailed:
        raise TooBusy("the engine could not prepare this now; ask again", {"retry_after_s": 1}) from None
    except ServiceError:
        raise
    except Exception as bug:
        _log("query failed before its charge", query_id, type(bug).__name__)
        log.debug("cause of %s", query_id, exc_info=bug)
        raise FailedForNothing(NOT_CHARGED, {"query_id": query_id}) from None


def _refusal(charged: Charged, error: ServiceError) -> StoredAnswer:
    body = encode({"code": error.code, "detail": error.detail})
    return to_store(charged.submission, charged.question, charged.query_id, body, failed=True)


def _log(event: str, query_id: str, kind: str) -> None:
    log.error(event, extra={"query_id": query_id, "cause": kind})
