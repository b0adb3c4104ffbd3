"""Planning in processes: the same questions and refusals as here, a budget, and turns."""

import hashlib
import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from service.core.errors import ConstructRefused, ServiceError, SyntaxRefused, TooBusy
from service.core.plan import Loss
from service.core.request import Ask
from service.privacy.accounting.costs import open_terms
from service.walk import planner_pool, planner_process, process_wire
from service.walk.planner import PlannerHere, PlanningJob
from service.walk.planner_pool import PlannerPool
from service.walk.planner_process import REPLY_BYTES_MAX
from service.walk.process_wire import packed_message, unpacked_message
from service.walk.question import Question
from tests.fixtures.sql.corpus import accepted
from tests.fixtures.sql.shop import SCHEMA

TERMS = open_terms(100 * 10**12, 10**12, keys_declared=False)
COUNTED = "SELECT country, COUNT(*) AS n FROM customers GROUP BY country"


@pytest.fixture(scope="module")
def pool() -> Iterator[PlannerPool]:
    opened = PlannerPool(2)
    yield opened
    opened.close()


def ask_of(sql: str) -> Ask:
    return Ask("shop", sql, Loss("epsilon", 10**11, delta=10**9))


def job_of(sql: str) -> PlanningJob:
    return PlanningJob(ask_of(sql), SCHEMA, TERMS)


def outcome(planner: PlannerHere | PlannerPool, sql: str) -> Question | tuple[object, ...]:
    try:
        return planner.plan(PlanningJob(ask_of(sql), SCHEMA, TERMS), "analyst")
    except ServiceError as refused:
        return type(refused), refused.detail, refused.extra


def test_every_question_comes_back_as_it_is_planned_here(pool: PlannerPool) -> None:
    found = 0
    for sql in accepted():
        here, there = outcome(PlannerHere(), sql), outcome(pool, sql)
        assert there == here, sql
        if isinstance(here, Question) and isinstance(there, Question):
            found += 1
            assert [plan.digest for plan in there.query.cores] == [plan.digest for plan in here.query.cores]
            assert hash(there.query.outer.select) == hash(here.query.outer.select), "no hash of another process is kept"
    assert found > 100


@pytest.mark.parametrize("sql", ["SELEC 1", "SELECT * FROM customers", "SELECT COUNT(*) FROM nowhere", "(" * 100])
def test_refusals_come_back_with_all_that_they_say(pool: PlannerPool, sql: str) -> None:
    here = outcome(PlannerHere(), sql)
    assert not isinstance(here, Question)
    assert here[0] in (SyntaxRefused, ConstructRefused)
    assert outcome(pool, sql) == here


def test_the_same_question_is_planned_once_and_is_the_same_again(pool: PlannerPool) -> None:
    first = outcome(pool, COUNTED)
    pool._turns.take("a", 0)
    pool._turns.take("b", 0)
    try:
        assert outcome(pool, COUNTED) == first, "no turn was needed"
    finally:
        pool._turns.give("a")
        pool._turns.give("b")


def listed(values: int, sums: int) -> str:
    """A short text whose list is written out for every sum."""
    inner = f"SELECT CASE WHEN age IN ({','.join(map(str, range(values)))}) THEN 1 ELSE 0 END AS f FROM customers"
    return f"WITH c AS ({inner}) SELECT {','.join(f'SUM(f+{at})' for at in range(sums))} FROM c"


def test_a_short_text_that_stands_for_a_large_plan_is_refused_with_a_remedy(pool: PlannerPool) -> None:
    large = listed(950, 45)
    assert len(large) < 5_000
    assert len(process_wire.packed_deep(PlannerHere().plan(job_of(large), "analyst").query)) > 5 * REPLY_BYTES_MAX
    with pytest.raises(ConstructRefused, match="written out") as refused:
        pool.plan(job_of(large), "analyst")
    assert "public table" in str(refused.value.extra["remedy"])
    assert all(process.alive for process in pool._idle), "nothing was stopped in the middle"
    assert isinstance(outcome(pool, listed(950, 4)), Question)


def test_large_plans_are_not_remembered_and_are_read_within_a_turn(
    pool: PlannerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, large = pool._known_bytes, job_of(listed(950, 3))
    running: list[int] = []

    def reading(message: bytes) -> object:
        running.append(pool._turns._running["analyst"])
        return unpacked_message(message)

    monkeypatch.setattr(planner_pool, "unpacked_message", reading)
    for _ in range(2):
        pool.plan(large, "analyst")
    assert running == [1, 1]
    assert pool._known_bytes == known


def test_what_is_remembered_is_bounded_in_bytes(pool: PlannerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_pool, "REMEMBERED_BYTES", 50_000)
    for number in range(20):
        pool.plan(job_of(f"{COUNTED} LIMIT {number + 1}"), "analyst")
        assert pool._known_bytes == sum(map(len, pool._known.values())) <= 50_000
    assert len(pool._known) > 1
    last = hashlib.sha256(packed_message(job_of(f"{COUNTED} LIMIT 20"))).digest()
    assert last in pool._known, "the newest stays"


def test_a_process_that_died_is_replaced_and_nobody_notices(pool: PlannerPool) -> None:
    for process in pool._idle:
        process._process.kill()
        process._process.wait()
    assert isinstance(outcome(pool, COUNTED + " ORDER BY n"), Question)


def test_what_takes_too_long_is_refused_for_what_it_is_and_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: the budget of processor time, with a plan that never ends in place of one that takes long."""

    def endless(*_: object) -> Question:
        while True:
            pass

    monkeypatch.setattr(planner_process, "CPU_SECONDS", 0.2)
    monkeypatch.setattr(planner_process, "put_question", endless)
    before = signal.signal(signal.SIGPROF, planner_process._stop)
    try:
        reply, last = planner_process.planned(packed_message(PlanningJob(ask_of(COUNTED), SCHEMA, TERMS)))
    finally:
        signal.signal(signal.SIGPROF, before)
    kind, (error, detail, extra) = unpacked_message(reply)
    assert (kind, error, last) == (planner_process.REFUSED, ConstructRefused, True)
    assert "takes more time or memory" in detail
    assert "ask for less in one query" in extra["remedy"]


def test_a_bug_in_there_is_a_bug_here_and_says_where(pool: PlannerPool, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(AssertionError, match="planning ended in a bug"):
        pool.plan(PlanningJob(ask_of(COUNTED), None, TERMS), "analyst")  # type: ignore[arg-type]
    (record,) = [record for record in caplog.records if record.message == "planning ended in a bug"]
    assert record.kind == "AttributeError"  # type: ignore[attr-defined]
    assert any("question.py" in place for place in record.places)  # type: ignore[attr-defined]


def test_at_the_deadline_the_process_is_killed_and_the_question_may_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = PlannerPool(1)
    try:
        assert isinstance(outcome(opened, COUNTED), Question)
        stuck = opened._idle[0]
        monkeypatch.setattr(planner_pool, "SECONDS", 0.2)
        os.kill(stuck._process.pid, signal.SIGSTOP)
        with pytest.raises(TooBusy, match="could not be planned in time"):
            opened.plan(PlanningJob(ask_of(COUNTED + " ORDER BY n"), SCHEMA, TERMS), "analyst")
        assert not stuck.alive
        monkeypatch.undo()
        assert isinstance(outcome(opened, COUNTED + " ORDER BY n"), Question)
    finally:
        opened.close()


def test_one_caller_leaves_a_process_to_the_next_and_may_not_queue_without_end(
    pool: PlannerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool._turns.take("greedy", 0)
    ended: list[object] = []
    waiting = threading.Thread(
        target=lambda: ended.append(pool.plan(PlanningJob(ask_of(COUNTED + " LIMIT 7"), SCHEMA, TERMS), "greedy"))
    )
    waiting.start()
    while not pool._turns._queues:
        time.sleep(0.001)
    assert isinstance(pool.plan(PlanningJob(ask_of(COUNTED + " LIMIT 8"), SCHEMA, TERMS), "modest"), Question)
    assert ended == [], "the greedy one has all that one may hold"
    monkeypatch.setattr(planner_pool, "WAIT_SECONDS", 0.0)
    with pytest.raises(TooBusy) as busy:
        pool.plan(PlanningJob(ask_of(COUNTED + " LIMIT 9"), SCHEMA, TERMS), "greedy")
    assert busy.value.extra["retry_after_s"] == 2
    pool._turns.give("greedy")
    waiting.join()
    assert len(ended) == 1
