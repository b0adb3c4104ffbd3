"""Retries, failures and cancels: one charge, one answer, one opaque failure, and nothing learned by trying again."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.app import Books, Walk
from service.core.amounts import Cost
from service.core.errors import (
    AnswerFailed,
    Conflict,
    DatasetPaused,
    IdempotencyKeyReused,
    NotFound,
    OuterRefused,
    TooBusy,
)
from service.core.plan import Loss
from service.core.request import Ask, Principal
from service.engine.base import ScratchRefused
from service.ledger.book import By, Hold, Ledger
from service.store.database import Store
from service.walk import Answerer
from service.walk.history import HistoryPart
from tests.fixtures.slots import ZeroEngine, answerer_of, failing
from tests.fixtures.whole import ANALYST, OTHER, clinic

PICO = 10**12
AGAIN = By("test", "again")
ADMIN = Principal("admin00001", "an admin", "admin", frozenset())


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Books, Walk]]:
    with clinic(tmp_path_factory.mktemp("clinic"), epsilon="1000") as opened:
        yield opened


@pytest.fixture(autouse=True)
def allowance(opened: tuple[Books, Walk]) -> None:
    """Every test starts with a fresh allowance of failures."""
    ledger = opened[0].ledger
    ledger.resume("clinic", AGAIN)
    for principal in (ANALYST, OTHER):
        if ledger.allowance("clinic", principal.prefix).failures:
            ledger.resume("clinic", AGAIN, owner=principal.prefix)


def counting(number: int, **more: Any) -> Ask:
    return Ask(
        "clinic", f"SELECT COUNT(*) AS n FROM visits WHERE cost > {number}", Loss("epsilon", PICO // 100), **more
    )


def sorted_counting(number: int) -> Ask:
    """With something for the outer engine to do."""
    plain = counting(number)
    return replace(plain, sql=f"{plain.sql} ORDER BY n")


def spent(books: Books) -> int:
    return books.ledger.balance("clinic").spent[-1]


def zero(opened: tuple[Books, Walk], **engine: Any) -> Answerer:
    return answerer_of(*opened, ZeroEngine(opened[0].catalog.schema("clinic").data_version, **engine))


def test_a_retry_gets_the_same_bytes_and_pays_once(opened: tuple[Books, Walk]) -> None:
    books, walk = opened
    before = spent(books)
    first = walk.answerer.submit(counting(1), ANALYST, "key-1", "hash", 30)
    again = walk.answerer.submit(counting(1), ANALYST, "key-1", "hash", 30)
    elsewhere = answerer_of(books, walk).submit(counting(1), ANALYST, "key-1", "hash", 30)
    assert (first.is_new, again.is_new) == (True, False)
    assert first.body == again.body == elsewhere.body
    assert spent(books) == before + PICO // 100
    with pytest.raises(IdempotencyKeyReused):
        walk.answerer.submit(counting(2), ANALYST, "key-1", "other hash", 30)


def test_a_free_answer_under_a_key_is_the_same_on_a_retry_too(opened: tuple[Books, Walk]) -> None:
    books, walk = opened
    walk.answerer.submit(counting(3), ANALYST, None, "", 30)
    before = spent(books)
    first = walk.answerer.submit(counting(3), OTHER, "key-2", "hash", 30)
    again = answerer_of(books, walk).submit(counting(3), OTHER, "key-2", "hash", 30)
    assert (first.query_id, first.body) == (again.query_id, again.body)
    with pytest.raises(IdempotencyKeyReused):
        walk.answerer.submit(counting(4), OTHER, "key-2", "other hash", 30)
    mine = walk.answerer.submit(counting(3), ANALYST, "key-2", "a third hash", 30)
    assert mine.query_id != first.query_id, "keys of others are other keys"
    assert spent(books) == before


def test_the_same_attempt_at_the_same_time_is_one_charge(opened: tuple[Books, Walk]) -> None:
    books, _ = opened
    answerer, before, bodies = zero(opened, act=lambda: time.sleep(0.2)), spent(books), []

    def go() -> None:
        bodies.append(answerer.submit(counting(5, fresh=True), ANALYST, "key-3", "hash", 30).body)

    threads = [threading.Thread(target=go) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(bodies)) == 1 and len(bodies) == 6
    assert spent(books) == before + PICO // 100


def test_the_same_attempt_at_two_processes_is_one_charge(opened: tuple[Books, Walk]) -> None:
    """The second process knows of the first only through the ledger, and tells its outcome as its own."""
    books, _ = opened
    began, found = threading.Event(), []

    def act() -> None:
        began.set()
        time.sleep(0.2)

    here, there, before = zero(opened, act=act), zero(opened), spent(books)
    first = threading.Thread(
        target=lambda: found.append(here.submit(counting(51, fresh=True), ANALYST, "key-6", "hash", 30))
    )
    there._earlier = lambda submission: began.wait(10) and None  # type: ignore[method-assign, func-returns-value, assignment]
    first.start()
    found.append(there.submit(counting(51, fresh=True), ANALYST, "key-6", "hash", 30))
    first.join()
    assert found[0].body == found[1].body
    assert {one.query_id for one in found} == {found[0].query_id}
    assert spent(books) == before + PICO // 100


def test_the_same_question_at_the_same_time_is_paid_once(opened: tuple[Books, Walk]) -> None:
    """A wall of dashboards that asks at nine o'clock: the first pays, the others wait and read its release."""
    books, _ = opened
    answerer, before, found = zero(opened, act=lambda: time.sleep(0.2)), spent(books), []

    def go(principal: Principal) -> None:
        found.append(answerer.submit(counting(6), principal, None, "", 30))

    threads = [threading.Thread(target=go, args=(who,)) for who in (ANALYST, OTHER) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert spent(books) == before + PICO // 100
    assert len({json.dumps(json.loads(one.body or b"")["rows"]) for one in found}) == 1
    assert sum(one.is_new for one in found) == 1


@pytest.mark.parametrize("reason", ["died", "deadline", "memory", "types"])
def test_every_failure_after_the_charge_looks_the_same_and_costs_once(opened: tuple[Books, Walk], reason: str) -> None:
    books, _ = opened
    before = spent(books)
    failed = zero(opened, act=failing(reason))
    with pytest.raises(AnswerFailed) as first:
        failed.submit(counting(7, fresh=True), ANALYST, f"key-4 {reason}", "hash", 30)
    with pytest.raises(AnswerFailed) as again:
        zero(opened).submit(counting(7, fresh=True), ANALYST, f"key-4 {reason}", "hash", 30)
    query_id = first.value.extra["query_id"]
    assert first.value.detail == again.value.detail == "the query could not be completed; its cost stays spent"
    assert first.value.extra == again.value.extra == {"query_id": query_id}
    assert first.value.budget_spent
    assert spent(books) == before + PICO // 100, "charged once, and never run again"
    with pytest.raises(AnswerFailed) as seen:
        failed.find(str(query_id), ANALYST)
    assert seen.value.detail == first.value.detail
    listed = {item["id"]: item["status"] for item in failed.history(ANALYST, HistoryPart("clinic"))}
    assert listed[str(query_id)] == "failed"


def test_a_killed_engine_process_costs_its_query_and_nothing_else(tmp_path: Path) -> None:
    before_children = set(children())
    with clinic(tmp_path, epsilon="10") as (books, walk):
        walk.answerer.submit(counting(1), ANALYST, None, "", 30)
        engines = [pid for pid in children() if pid not in before_children]
        for pid in engines:
            os.kill(pid, signal.SIGSTOP)
        before = spent(books)
        waiting = walk.answerer.submit(counting(2), ANALYST, "killed", "hash", 0)
        deadline = time.monotonic() + 20
        while spent(books) == before:
            assert time.monotonic() < deadline, "the charge never came"
            time.sleep(0.02)
        for pid in engines:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(AnswerFailed) as failed:
            walk.answerer.submit(counting(2), ANALYST, "killed", "hash", 30)
        assert failed.value.extra == {"query_id": waiting.query_id}
        assert spent(books) == before + PICO // 100
        assert books.ledger.balance("clinic").failures == 1
        assert answered_in_the_end(walk, counting(3)), "the next ones are answered"
        assert books.ledger.verify().holds


def answered_in_the_end(walk: Walk, ask: Ask) -> bool:
    """A spare process that was killed as well is a refusal before any charge: ask again."""
    for _ in range(10):
        try:
            return walk.answerer.submit(ask, ANALYST, None, "", 30).body is not None
        except TooBusy:
            time.sleep(0.2)
    return False


def children() -> list[int]:
    return [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]


def test_three_failures_pause_the_analyst_and_ten_the_dataset(opened: tuple[Books, Walk]) -> None:
    books, _ = opened
    failed = zero(opened, act=failing("died"))
    for _ in range(3):
        with pytest.raises(AnswerFailed):
            failed.submit(counting(8, fresh=True), ANALYST, None, "", 30)
    before = spent(books)
    with pytest.raises(DatasetPaused):
        failed.submit(counting(8, fresh=True), ANALYST, None, "", 30)
    assert spent(books) == before, "a paused query costs nothing"
    assert zero(opened).submit(counting(8, fresh=True), OTHER, None, "", 30).body is not None
    for turn in range(7):
        crowd = replace(OTHER, prefix=f"crowd{turn:05}")
        with pytest.raises(AnswerFailed):
            failed.submit(counting(8, fresh=True), crowd, None, "", 30)
    with pytest.raises(DatasetPaused):
        zero(opened).submit(counting(8, fresh=True), OTHER, None, "", 30)
    assert zero(opened).submit(counting(1), OTHER, None, "", 30).body is not None, "stored answers are still read"


def test_a_charge_whose_process_died_is_found_as_failed(opened: tuple[Books, Walk]) -> None:
    books, walk = opened
    store = Store(walk_url(books))
    gone = Ledger(store)
    cost = Cost((1,) * len(books.ledger.balance("clinic").limits))
    gone.reserve(Hold("q_died", "clinic", ANALYST.prefix, "hash", cost, 1, key="key-5"))
    assert walk.answerer.find("q_died", ANALYST).status == "running"
    gone.close()
    store.close()
    assert "q_died" in books.ledger.recover()
    for act in (
        lambda: walk.answerer.find("q_died", ANALYST),
        lambda: walk.answerer.find("q_died", ADMIN),
        lambda: walk.answerer.submit(counting(9), ANALYST, "key-5", "hash", 30),
    ):
        with pytest.raises(AnswerFailed, match="its cost stays spent"):
            act()
    with pytest.raises(NotFound):
        walk.answerer.find("q_died", OTHER)


def walk_url(books: Books) -> str:
    return books.store.url


class BusyScratch:
    """The outer engine is out of turns, or breaks in a way that nobody foresaw, once released values are there."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def run(self, *_: object, **__: object) -> object:
        raise self.error

    def rehearse(self, *_: object, **__: object) -> tuple[str, ...]:
        return ("BIGINT",)


@pytest.mark.parametrize("error", [TooBusy("busy"), Conflict("removed"), RuntimeError("unforeseen")])
def test_when_the_outer_engine_breaks_the_release_is_kept_and_reading_it_is_free(
    opened: tuple[Books, Walk], error: Exception
) -> None:
    books, walk = opened
    ask = sorted_counting(20 + len(str(error)))
    broken = answerer_of(books, walk, scratch=BusyScratch(error))
    failures = books.ledger.balance("clinic").failures
    with pytest.raises(OuterRefused) as refused:
        broken.submit(ask, ANALYST, None, "", 30)
    assert refused.value.budget_spent
    assert "ask again, which is free" in refused.value.detail
    before = spent(books)
    again = walk.answerer.submit(ask, ANALYST, None, "", 30)
    assert json.loads(again.body or b"")["cost"]["epsilon"] == "0"
    assert (spent(books), books.ledger.balance("clinic").failures) == (before, failures)


def test_a_free_answer_that_can_not_be_shaped_says_that_nothing_was_spent(opened: tuple[Books, Walk]) -> None:
    _, walk = opened
    walk.answerer.submit(sorted_counting(31), ANALYST, None, "", 30)
    broken = answerer_of(*opened, scratch=BusyScratch(ScratchRefused("Conversion Error")))
    with pytest.raises(OuterRefused, match="Conversion Error") as refused:
        broken.submit(sorted_counting(31), ANALYST, None, "", 30)
    assert not refused.value.budget_spent


def test_cancelled_before_the_charge_it_is_free(opened: tuple[Books, Walk]) -> None:
    books, _ = opened
    go = threading.Event()
    engine = ZeroEngine(opened[0].catalog.schema("clinic").data_version)
    answerer = answerer_of(*opened, WaitingEngine(engine, go))
    before = spent(books)
    waiting = answerer.submit(counting(40), ANALYST, None, "", 0)
    assert waiting.status == "queued"
    assert answerer.cancel(waiting.query_id, ANALYST).status == "cancelled"
    go.set()
    with pytest.raises(Conflict, match="before it cost anything"):
        wait_for(answerer, waiting.query_id)
    assert spent(books) == before


def test_cancelled_after_the_charge_it_is_paid_finished_and_no_failure(opened: tuple[Books, Walk]) -> None:
    """Had it stopped, whether it was done by then would tell how long it ran."""
    books, _ = opened
    go, charged = threading.Event(), threading.Event()

    def act() -> None:
        charged.set()
        go.wait(10)

    answerer, before = zero(opened, act=act), spent(books)
    failures = books.ledger.allowance("clinic", ANALYST.prefix).failures
    waiting = answerer.submit(counting(41), ANALYST, None, "", 0)
    assert charged.wait(10)
    assert answerer.cancel(waiting.query_id, ANALYST).status == "running"
    with pytest.raises(NotFound):
        answerer.cancel(waiting.query_id, OTHER)
    go.set()
    assert wait_for(answerer, waiting.query_id) == "answered"
    assert spent(books) == before + PICO // 100
    assert books.ledger.allowance("clinic", ANALYST.prefix).failures == failures


class WaitingEngine(ZeroEngine):
    """Its slot is taken until `go`."""

    def __init__(self, engine: ZeroEngine, go: threading.Event) -> None:
        super().__init__(engine.data_version)
        self.go = go

    def slot(self, dataset: str, wait_s: float, caller: str = "") -> Any:
        self.go.wait(10)
        return super().slot(dataset, wait_s, caller)


def wait_for(answerer: Answerer, query_id: str) -> str:
    deadline = time.monotonic() + 10
    while (status := answerer.find(query_id, ANALYST).status) not in ("answered", "failed"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return status


def test_a_slow_query_is_on_its_way_and_then_there(opened: tuple[Books, Walk]) -> None:
    answerer = zero(opened, act=lambda: time.sleep(0.2))
    first = answerer.submit(counting(50), ANALYST, None, "", 0)
    assert (first.body, first.status in ("queued", "running")) == (None, True)
    assert wait_for(answerer, first.query_id) == "answered"
    again = answerer.find(first.query_id, ANALYST)
    assert json.loads(again.body or b"")["id"] == first.query_id
    with pytest.raises(NotFound):
        answerer.find(first.query_id, OTHER)
