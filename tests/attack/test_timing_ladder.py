"""How long the engine ran must not be told by anything but the rung, whoever looks, and not by failing."""

import json
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from service.app import Books, Walk
from service.core.errors import AnswerFailed, ServiceError
from service.core.plan import Loss
from service.core.request import Ask, Principal
from service.ledger.book import By
from service.released.panels import now_text
from service.settings import Settings
from service.walk import Answerer
from service.walk.history import HistoryPart
from service.walk.ladder import Ladder
from tests.fixtures.slots import WoundClock, ZeroEngine, answerer_of, failing
from tests.fixtures.whole import ANALYST, OTHER, clinic

PICO = 10**12
STEP_MS, DEADLINE_MS = 100, 60_000
ADMIN = Principal("admin00001", "an admin", "admin", frozenset())
AGAIN = By("test", "again")
VIEWER = Principal("viewer0001", "a viewer", "viewer", frozenset({"clinic"}))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Books, Walk]]:
    with clinic(tmp_path_factory.mktemp("clinic"), epsilon="1000") as opened:
        yield opened


class Bench:
    """An answerer on a clock of its own, with an engine that takes `engine_ms` and then succeeds or fails."""

    def __init__(self, opened: tuple[Books, Walk], engine_ms: float, *, fails: bool, mode: str = "doubling") -> None:
        self.books, self.walk = opened
        self.clock = WoundClock()

        def act() -> None:
            self.clock.now += engine_ms / 1000
            if fails:
                failing("died")()

        version = self.books.catalog.schema("clinic").data_version
        ladder = Ladder(STEP_MS, DEADLINE_MS, mode, self.clock, self.clock.sleep)  # type: ignore[arg-type]
        self.answerer = answerer_of(self.books, self.walk, ZeroEngine(version, act), ladder=ladder)

    def outcome(self, ask: Ask, key: str | None = None) -> tuple[str, float]:
        """How it ended, and how many ms after its arrival that could be seen."""
        began = self.clock.now
        try:
            self.answerer.submit(ask, ANALYST, key, "hash", 30)
            ending = "answered"
        except AnswerFailed:
            ending = "failed"
            self.books.ledger.resume("clinic", by=AGAIN, prefix=ANALYST.prefix)
            self.books.ledger.resume("clinic", by=AGAIN)
        return ending, round((self.clock.now - began) * 1000, 6)


def fresh(number: int = 0) -> Ask:
    sql = f"SELECT COUNT(*) AS n FROM visits WHERE cost > {number}"
    return Ask("clinic", sql, Loss("epsilon", PICO // 1000), fresh=True)


@pytest.mark.parametrize("engine_ms", [1, 99, 101, 390, 1000, 30_000])
def test_success_and_failure_leave_on_the_same_rung(opened: tuple[Books, Walk], engine_ms: float) -> None:
    good = Bench(opened, engine_ms, fails=False).outcome(fresh())
    bad = Bench(opened, engine_ms, fails=True).outcome(fresh())
    assert (good[0], bad[0]) == ("answered", "failed")
    assert good[1] == bad[1] == Ladder(STEP_MS, DEADLINE_MS).rung_ms(engine_ms)


def test_in_constant_mode_everything_leaves_at_the_deadline(opened: tuple[Books, Walk]) -> None:
    times = {
        Bench(opened, engine_ms, fails=fails, mode="constant").outcome(fresh())[1]
        for engine_ms in (1, 900)
        for fails in (False, True)
    }
    assert times == {DEADLINE_MS}


def test_without_a_ladder_times_would_differ(opened: tuple[Books, Walk]) -> None:
    """The check can fail: with the ladder off, the engine's time is what is seen."""
    bench = Bench(opened, 37, fails=False)
    quick = answerer_of(*opened, ZeroEngine(opened[0].catalog.schema("clinic").data_version))
    bench.answerer, unladdered = quick, bench.outcome(fresh())
    assert unladdered[1] == STEP_MS
    assert bench.outcome(fresh())[1] == 0


@pytest.mark.parametrize("fails", [False, True])
def test_while_an_outcome_waits_for_its_rung_nobody_can_see_it(opened: tuple[Books, Walk], fails: bool) -> None:
    """Owner, admin, viewer, history, replay of others, a retry at another process, and the allowance."""
    bench = Bench(opened, 150, fails=fails)
    books, walk = opened
    elsewhere = answerer_of(books, walk)  # another process: same store, no jobs of ours
    ask = Ask("clinic", f"SELECT COUNT(*) AS n FROM visits WHERE cost < {60 + fails}", Loss("epsilon", PICO // 1000))
    before = [item["id"] for item in elsewhere.history(ANALYST, HistoryPart("clinic"))]
    failures = books.ledger.balance("clinic").failures
    seen: dict[str, object] = {}

    def look() -> None:
        query_id = next(iter(bench.answerer._jobs._jobs))
        seen["owner"] = bench.answerer.find(query_id, ANALYST).status
        seen["owner elsewhere"] = elsewhere.find(query_id, ANALYST).status
        seen["admin"] = bench.answerer.find(query_id, ADMIN).status
        seen["viewer"] = _code(bench.answerer, query_id, VIEWER)
        seen["stranger"] = _code(bench.answerer, query_id, OTHER)
        listed = {item["id"]: item["status"] for item in elsewhere.history(ANALYST, HistoryPart("clinic"))}
        seen["history"] = (listed.pop(query_id), list(listed))
        seen["replay"] = elsewhere.estimate(ask, OTHER)["replay_of"]
        seen["retry"] = elsewhere.submit(ask, ANALYST, f"rung {fails}", "hash", 0).status
        seen["failures"] = books.ledger.balance("clinic").failures

    bench.clock.on_sleep = look
    ending, after = bench.outcome(ask, key=f"rung {fails}")
    assert (ending, after) == ("failed" if fails else "answered", 200)
    assert seen == {
        "owner": "running",
        "owner elsewhere": "running",
        "admin": "running",
        "viewer": "not-found",
        "stranger": "not-found",
        "history": ("running", before),
        "replay": None,
        "retry": "running",
        "failures": failures,
    }
    if not fails:
        assert elsewhere.estimate(ask, OTHER)["replay_of"] is not None, "after the rung it is there for all"


def _code(answerer: Answerer, query_id: str, principal: Principal) -> str:
    try:
        return answerer.find(query_id, principal).status
    except ServiceError as error:
        return error.code


def test_replays_are_not_delayed(opened: tuple[Books, Walk]) -> None:
    bench = Bench(opened, 150, fails=False)
    ask = Ask("clinic", "SELECT COUNT(*) AS n FROM visits WHERE cost < 77", Loss("epsilon", PICO // 1000))
    assert bench.outcome(ask) == ("answered", 200)
    assert bench.outcome(ask) == ("answered", 0)


def test_history_tells_when_a_question_came_not_when_it_was_done(opened: tuple[Books, Walk]) -> None:
    bench = Bench(opened, 10_000, fails=False)
    stamps: list[str] = []

    def look() -> None:
        stamps.append(now_text())
        time.sleep(0.005)

    bench.clock.on_sleep = look
    bench.outcome(fresh(5))
    (newest, *_) = bench.answerer.history(ANALYST, HistoryPart("clinic", "cost > 5"))
    assert newest["asked_at"] <= stamps[0]


def test_the_ladder_is_on_by_default(tmp_path: Path) -> None:
    assert Settings(data_dir=tmp_path).time_step_ms == 100
    assert Settings(data_dir=tmp_path).time_mode == "doubling"


def test_what_is_left_of_the_budget_does_not_tell_when_the_engine_was_done(opened: tuple[Books, Walk]) -> None:
    """Others may spend a little every millisecond and read off the answer how much of it came before its end."""
    books, walk = opened
    version = books.catalog.schema("clinic").data_version
    others = answerer_of(books, walk, ZeroEngine(version))

    def remaining(act: Callable[[], None]) -> Decimal:
        before = Decimal(others.budget("clinic", OTHER, detail=False)["remaining"]["epsilon"])
        done = answerer_of(books, walk, ZeroEngine(version, act)).submit(fresh(), ANALYST, None, "hash", 30)
        assert done.body is not None
        return before - Decimal(json.loads(done.body)["remaining"]["epsilon"])

    def somebody_asks() -> None:
        others.submit(fresh(1), OTHER, None, "hash", 30)

    assert remaining(somebody_asks) == remaining(lambda: None) > 0
