"""How long the engine ran must not be told by anything, whoever looks, and not by failing either."""

import json
import math
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
from tests.fixtures.slots import WoundClock, ZeroEngine, answerer_of, failing, timed
from tests.fixtures.whole import ANALYST, OTHER, clinic

PICO = 10**12
STEP_MS, DEADLINE_S = 100, 60.0
PREDICTED_S, PROMISED_MS = 0.08, 400  # with ORDER_S, times the first safety factor of 4: 0.36; the next rung is 0.4
ADMIN = Principal("admin00001", "an admin", "admin", frozenset())
AGAIN = By("test", "again")
VIEWER = Principal("viewer0001", "a viewer", "viewer", frozenset({"clinic"}))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Books, Walk]]:
    with clinic(tmp_path_factory.mktemp("clinic"), epsilon="1000") as opened:
        yield opened


class Bench:
    """An answerer on a clock of its own, with an engine that takes `engine_ms` and then succeeds or fails."""

    def __init__(
        self,
        opened: tuple[Books, Walk],
        engine_ms: float,
        *,
        fails: bool = False,
        predicted_s: float | None = PREDICTED_S,
    ) -> None:
        self.books, self.walk = opened
        self.clock = WoundClock()

        def act() -> None:
            self.clock.now += engine_ms / 1000
            if fails:
                failing("died")()

        version = self.books.catalog.schema("clinic").data_version
        engine = ZeroEngine(version, act, predicted_s=predicted_s)
        self.answerer = answerer_of(self.books, self.walk, engine, **timed(engine, STEP_MS, self.clock, DEADLINE_S))

    def outcome(self, ask: Ask, key: str | None = None) -> tuple[str, float]:
        """How it ended, and how many ms after its arrival that could be seen."""
        began = self.clock.now
        try:
            self.answerer.submit(ask, ANALYST, key, "hash", 30)
            ending = "answered"
        except AnswerFailed:
            ending = "failed"
            self.books.ledger.resume("clinic", by=AGAIN, owner=ANALYST.prefix)
            self.books.ledger.resume("clinic", by=AGAIN)
        return ending, round((self.clock.now - began) * 1000, 6)


def fresh(number: int = 0) -> Ask:
    sql = f"SELECT COUNT(*) AS n FROM visits WHERE cost > {number}"
    return Ask("clinic", sql, Loss("epsilon", PICO // 1000), fresh=True)


@pytest.mark.parametrize("engine_ms", [0, 1, 99, 101, 390])
def test_success_and_failure_leave_when_it_was_promised(opened: tuple[Books, Walk], engine_ms: float) -> None:
    assert Bench(opened, engine_ms).outcome(fresh()) == ("answered", PROMISED_MS)
    assert Bench(opened, engine_ms, fails=True).outcome(fresh()) == ("failed", PROMISED_MS)


def test_with_the_promise_off_times_would_differ(opened: tuple[Books, Walk]) -> None:
    """The check can fail: without a promise, the engine's time is what is seen."""
    seen = set()
    for engine_ms in (37, 250):
        bench = Bench(opened, engine_ms)
        engine = bench.answerer._tools.engine
        bench.answerer = answerer_of(*opened, engine, **timed(engine, 0, bench.clock))  # type: ignore[arg-type]
        seen.add(bench.outcome(fresh()))
    assert seen == {("answered", 37.0), ("answered", 250.0)}


def test_where_a_size_is_not_known_everything_leaves_at_the_deadline(opened: tuple[Books, Walk]) -> None:
    seen = {Bench(opened, engine_ms, predicted_s=None).outcome(fresh()) for engine_ms in (1, 900)}
    assert seen == {("answered", DEADLINE_S * 1000)}
    bench = Bench(opened, DEADLINE_S * 1000 + 1, predicted_s=None)
    late = bench.books.ledger.balance("clinic").late
    assert bench.outcome(fresh()) == ("failed", DEADLINE_S * 1000 + 1), "the clock of this test stands past it already"
    assert bench.books.ledger.balance("clinic").late == late, "at the deadline nothing is late: it has failed"


@pytest.mark.parametrize(
    ("engine_ms", "fails", "ending"),
    [(401, False, "answered"), (1600, False, "answered"), (1600.5, False, "failed"), (500, True, "failed")],
)
def test_a_late_question_is_looked_at_once_more_and_counted(
    opened: tuple[Books, Walk], engine_ms: float, fails: bool, ending: str
) -> None:
    """It leaves at four times its time, done or not, and the dataset promises twice as much from then on."""
    books, _ = opened
    books.ledger.reset_safety("clinic", AGAIN)
    before = books.ledger.balance("clinic")
    outcome, after_ms = Bench(opened, engine_ms, fails=fails).outcome(fresh())
    assert (outcome, math.floor(after_ms)) == (ending, 4 * PROMISED_MS)
    after = books.ledger.balance("clinic")
    assert (after.late, after.safety) == (before.late + 1, 2 * before.safety)
    assert Bench(opened, 10).outcome(fresh()) == ("answered", 2 * PROMISED_MS)
    books.ledger.reset_safety("clinic", AGAIN)


@pytest.mark.parametrize("fails", [False, True])
def test_until_the_promised_time_nobody_can_see_an_outcome(opened: tuple[Books, Walk], fails: bool) -> None:
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
        seen["retry"] = elsewhere.submit(ask, ANALYST, f"promise {fails}", "hash", 0).status
        seen["failures"] = books.ledger.balance("clinic").failures

    bench.clock.on_sleep = look
    ending, after = bench.outcome(ask, key=f"promise {fails}")
    assert (ending, after) == ("failed" if fails else "answered", PROMISED_MS)
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
        assert elsewhere.estimate(ask, OTHER)["replay_of"] is not None, "from then on it is there for all"


def _code(answerer: Answerer, query_id: str, principal: Principal) -> str:
    try:
        return answerer.find(query_id, principal).status
    except ServiceError as error:
        return error.code


def test_replays_are_not_delayed(opened: tuple[Books, Walk]) -> None:
    bench = Bench(opened, 150)
    ask = Ask("clinic", "SELECT COUNT(*) AS n FROM visits WHERE cost < 77", Loss("epsilon", PICO // 1000))
    assert bench.outcome(ask) == ("answered", PROMISED_MS)
    assert bench.outcome(ask) == ("answered", 0)


def test_history_tells_when_a_question_came_not_when_it_was_done(opened: tuple[Books, Walk]) -> None:
    bench = Bench(opened, 100)
    stamps: list[str] = []

    def look() -> None:
        stamps.append(now_text())
        time.sleep(0.005)

    bench.clock.on_sleep = look
    bench.outcome(fresh(5))
    (newest, *_) = bench.answerer.history(ANALYST, HistoryPart("clinic", "cost > 5"))
    assert newest["asked_at"] <= stamps[0]


def test_promises_are_kept_by_default(tmp_path: Path) -> None:
    assert Settings(data_dir=tmp_path).time_step_ms == 100


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
