"""Whatever an engine must say before it computes is said before the charge: a bug there costs nobody anything."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from service.app import Books, Walk
from service.core.boundary import Array, KeyTable
from service.core.errors import AnswerFailed
from service.core.plan import Loss, Need, Plan
from service.core.request import Ask, AskedBounds
from service.engine.base import Computed, Engine, Slot, Work
from tests.fixtures.slots import ZeroEngine, answerer_of
from tests.fixtures.whole import ANALYST, clinic, served

PICO = 10**12


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Books, Walk]]:
    with clinic(tmp_path_factory.mktemp("clinic"), epsilon="1000") as opened:
        yield opened


def books_of(books: Books) -> tuple[object, int]:
    """Everything that a charge, a failure or an entry would change."""
    return books.ledger.balance("clinic"), len(books.ledger.entries(dataset="clinic", after=0, limit=1000))


def counting(**more: Any) -> Ask:
    return Ask("clinic", "SELECT COUNT(*) AS n FROM visits", Loss("epsilon", PICO // 100), **more)


def breaking_at(number: int, error: Exception) -> Callable[[], None]:
    """Nothing happens until it is called for the `number`-th time."""
    calls = iter(range(1, 1000))

    def emitting() -> None:
        if next(calls) >= number:
            raise error

    return emitting


@pytest.mark.parametrize("error", [AssertionError("codes wider than sums can hold"), RuntimeError("unforeseen")])
def test_a_bug_in_emission_is_a_failure_that_costs_nothing(opened: tuple[Books, Walk], error: Exception) -> None:
    books, walk = opened
    version, before = books.catalog.schema("clinic").data_version, books_of(books)
    broken = answerer_of(books, walk, ZeroEngine(version, emitting=breaking_at(1, error)))
    for _ in range(30):  # more than the allowance of failures: none of these is one
        with pytest.raises(AnswerFailed) as failed:
            broken.submit(counting(fresh=True), ANALYST, None, "", 30)
        assert str(error) not in str(failed.value.detail)
        assert not failed.value.budget_spent
    assert books_of(books) == before
    assert walk.answerer.submit(counting(fresh=True), ANALYST, None, "", 30).body is not None


def test_a_bug_in_the_second_core_comes_before_the_charge_too(opened: tuple[Books, Walk]) -> None:
    books, walk = opened
    cores = "WITH a AS (SELECT COUNT(*) AS n FROM visits), b AS (SELECT MIN(cost) AS low FROM visits)"
    both = Ask("clinic", f"{cores} SELECT n, low FROM a JOIN b ON n > low", Loss("epsilon", PICO))
    version, before = books.catalog.schema("clinic").data_version, books_of(books)
    broken = answerer_of(books, walk, ZeroEngine(version, emitting=breaking_at(2, RuntimeError())))
    with pytest.raises(AnswerFailed):
        broken.submit(both, ANALYST, None, "", 30)
    assert books_of(books) == before


def test_over_http_it_is_an_error_of_the_service(tmp_path_factory: pytest.TempPathFactory, monkeypatch: Any) -> None:
    with served(tmp_path_factory.mktemp("served")) as house:
        before = books_of(house.books)

        def emit(*_: object, **__: object) -> None:
            raise RuntimeError("a secret of the emitter")

        monkeypatch.setattr("service.engine.duckdb.engine.emit", emit)
        body = {"dataset": "clinic", "sql": "SELECT COUNT(*) AS n FROM visits", "epsilon": "0.1", "wait": 30}
        answer = house.ask("POST", "/v1/queries", json=body)
        assert (answer.status_code, answer.json()["code"]) == (500, "answer-failed")
        assert answer.json()["budget_spent"] is False
        assert "secret" not in answer.text
        assert books_of(house.books) == before


@dataclass
class Telling:
    """The engine of the clinic, which tells what it is asked for, in order."""

    engine: Engine
    told: list[str] = field(default_factory=list)

    @contextmanager
    def slot(self, dataset: str, wait_s: float, caller: str = "") -> Iterator["TellingSlot"]:
        with self.engine.slot(dataset, wait_s, caller) as slot:
            yield TellingSlot(slot, self.told)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


@dataclass
class TellingSlot:
    slot: Slot
    told: list[str]

    @property
    def data_version(self) -> int:
        return self.slot.data_version

    def version(self, table: str) -> int | None:
        return self.slot.version(table)

    def work(self, plan: Plan, needs: tuple[Need, ...], salt: int) -> Work:
        self.told.append("work")
        return self.slot.work(plan, needs, salt)

    def compute(self, work: Work, keys: KeyTable | None, deadline_s: float) -> Computed:
        self.told.append("compute")
        return self.slot.compute(work, keys, deadline_s)

    def public_values(self, table: str, column: str, limit: int) -> Array:
        return self.slot.public_values(table, column, limit)

    def spoil(self) -> None:
        self.slot.spoil()


BY_TOWN = "SELECT town, COUNT(*) AS n FROM visits GROUP BY town"
FOUND = AskedBounds(columns={"visits.cost": None})


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (Ask("clinic", "SELECT SUM(cost) AS s FROM visits"), ["work", "charge", "compute"]),
        (Ask("clinic", BY_TOWN), ["work", "work", "charge", "compute", "compute"]),
        (
            Ask("clinic", "SELECT SUM(cost) AS s FROM visits", bounds=FOUND),
            ["work", "work", "charge", "compute", "work", "compute"],
        ),
    ],
    ids=["declared keys: once", "selected keys: once for each stage", "found bounds: again once they are known"],
)
def test_emission_comes_before_the_charge_and_no_more_often_than_it_must(
    opened: tuple[Books, Walk], monkeypatch: pytest.MonkeyPatch, ask: Ask, told: list[str]
) -> None:
    books, walk = opened
    telling = Telling(walk.engine)
    reserve = books.ledger.reserve

    def charge(*given: Any) -> int:
        telling.told.append("charge")
        return reserve(*given)

    monkeypatch.setattr(books.ledger, "reserve", charge)
    paid = Ask(ask.dataset, ask.sql, Loss("epsilon", PICO, 10**9), ask.bounds)
    assert answerer_of(books, walk, telling).submit(paid, ANALYST, None, "", 30).body is not None
    assert telling.told == told
