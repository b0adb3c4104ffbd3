"""Whatever breaks between the charge and its settling, no hold stays open and nothing shows before its time."""

from collections.abc import Iterator

import pytest

from service.app import Books, Walk
from service.core.errors import AnswerFailed
from service.core.plan import Loss
from service.core.request import Ask
from service.ledger import unsettled
from service.ledger.book import By, Ledger
from service.walk import Answerer, charged
from service.walk.charged import Walker
from service.walk.promised_time import PromisedTime
from service.walk.releasing import ReleaseHere
from tests.fixtures.flaky_store import FlakyWrites, Way, wait_until_settled
from tests.fixtures.slots import WoundClock, ZeroEngine, answerer_of, timed
from tests.fixtures.whole import ANALYST, clinic

PICO = 10**12
STEP_MS, PREDICTED_S, PROMISED_S = 100, 0.08, 0.4
AGAIN = By("test", "again")


def bug(*_: object, **__: object) -> None:
    raise ValueError("a bug")


class Bench:
    """An answerer on a clock of its own, whose engine takes `engine_s`."""

    def __init__(self, opened: tuple[Books, Walk], engine_s: float = 0.0) -> None:
        self.books, self.clock = opened[0], WoundClock()

        def act() -> None:
            self.clock.now += engine_s

        version = self.books.catalog.schema("clinic").data_version
        engine = ZeroEngine(version, act, predicted_s=PREDICTED_S)
        self.answerer: Answerer = answerer_of(*opened, engine, **timed(engine, STEP_MS, self.clock))

    def ask(self, key: str | None = None) -> tuple[str, float]:
        """How it ended, and how many seconds after it was asked that could be seen."""
        began = self.clock.now
        question = Ask("clinic", "SELECT COUNT(*) AS n FROM visits", Loss("epsilon", PICO // 1000), fresh=True)
        try:
            ending = self.answerer.submit(question, ANALYST, key, "hash", 30).status
        except AnswerFailed:
            ending = "failed"
        return ending, round(self.clock.now - began, 6)


@pytest.fixture(scope="module")
def clinics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Books, Walk]]:
    with clinic(tmp_path_factory.mktemp("clinic"), epsilon="1000") as opened:
        yield opened


@pytest.fixture
def opened(clinics: tuple[Books, Walk], monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Books, Walk]]:
    monkeypatch.setattr(unsettled, "FIRST_PAUSE_S", 0.01)
    ledger = clinics[0].ledger
    yield clinics
    monkeypatch.undo()
    assert ledger.allowance("clinic").open_holds == 0
    ledger.resume("clinic", AGAIN)
    ledger.resume("clinic", AGAIN, owner=ANALYST.person)
    ledger.reset_safety("clinic", AGAIN)
    assert ledger.verify().holds


@pytest.mark.parametrize(
    ("where", "what"),
    [
        (PromisedTime, "_kept"),
        (PromisedTime, "_looked"),
        (ReleaseHere, "there_at"),
        (Walker, "_order"),
        (charged, "replicas_wanted"),
    ],
)
def test_a_bug_after_the_charge_is_a_failure_when_its_time_has_come(
    opened: tuple[Books, Walk], monkeypatch: pytest.MonkeyPatch, where: object, what: str
) -> None:
    bench = Bench(opened)
    failures = bench.books.ledger.allowance("clinic").failures
    monkeypatch.setattr(where, what, bug)
    assert bench.ask() == ("failed", PROMISED_S)
    events = bench.books.ledger.allowance("clinic")
    assert (events.open_holds, events.failures) == (0, failures + 1)


@pytest.mark.parametrize("what", ["_released_in_time", "_ending"])
def test_a_bug_that_nobody_thought_of_leaves_no_hold_open_either(
    opened: tuple[Books, Walk], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    bench = Bench(opened)
    monkeypatch.setattr(Walker, what, bug)
    for _ in range(3):
        assert bench.ask()[0] == "failed"
    assert bench.books.ledger.allowance("clinic", ANALYST.person).open_holds == 0


@pytest.mark.parametrize("times", [1, 4])
def test_a_store_that_does_not_take_the_settle_gives_the_place_back_later(
    opened: tuple[Books, Walk], monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    bench = Bench(opened)
    flaky = FlakyWrites(opened[0].store, monkeypatch)
    settle = Ledger.settle

    def breaking(ledger: Ledger, query_id: str, outcome: str, *more: object, **named: object) -> None:
        if outcome == "answered":
            flaky.fail("before", times)
        settle(ledger, query_id, outcome, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Ledger, "settle", breaking)
    assert bench.ask() == ("failed", PROMISED_S)
    wait_until_settled(bench.books.ledger, "clinic")


def test_an_answer_that_was_stored_wins_although_settling_it_raised(
    opened: tuple[Books, Walk], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(opened)
    failures, settle = bench.books.ledger.allowance("clinic").failures, Ledger.settle

    def dying(ledger: Ledger, query_id: str, outcome: str, *more: object, **named: object) -> None:
        settle(ledger, query_id, outcome, *more, **named)  # type: ignore[arg-type]
        if outcome == "answered":
            raise OSError("the connection is gone")

    monkeypatch.setattr(Ledger, "settle", dying)
    assert bench.ask(key="wins") == ("answered", PROMISED_S)
    assert bench.ask(key="wins") == ("answered", 0.0), "and it is the stored one"
    assert bench.books.ledger.allowance("clinic").failures == failures


@pytest.mark.parametrize("way", ["before", "after"])
def test_lateness_that_could_not_be_counted_at_once_changes_nothing_for_the_caller(
    opened: tuple[Books, Walk], monkeypatch: pytest.MonkeyPatch, way: Way
) -> None:
    bench = Bench(opened, engine_s=0.5)
    flaky, late = FlakyWrites(opened[0].store, monkeypatch), Ledger.late
    before = bench.books.ledger.balance("clinic")

    def breaking(ledger: Ledger, query_id: str) -> int:
        flaky.fail(way)
        return late(ledger, query_id)

    monkeypatch.setattr(Ledger, "late", breaking)
    assert bench.ask() == ("answered", 4 * PROMISED_S)
    after = bench.books.ledger.balance("clinic")
    assert (after.late, after.safety) == (before.late + 1, 2 * before.safety)


def test_a_charge_whose_commit_was_lost_on_the_way_is_closed_too(
    opened: tuple[Books, Walk], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(opened)
    flaky, reserve = FlakyWrites(opened[0].store, monkeypatch), Ledger.reserve

    def breaking(ledger: Ledger, asked: object) -> int:
        flaky.fail("after")
        return reserve(ledger, asked)  # type: ignore[arg-type]

    monkeypatch.setattr(Ledger, "reserve", breaking)
    assert bench.ask()[0] == "failed"
    wait_until_settled(bench.books.ledger, "clinic")
