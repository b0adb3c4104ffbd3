"""Many queries at once can not fail more often than the allowance lets them: each failure is a bit without noise."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from service.app import Books, Walk
from service.core.amounts import Cost
from service.core.errors import Conflict, ServiceError
from service.core.plan import Loss
from service.core.request import Ask, Principal
from service.ledger import allowances
from service.ledger.book import Hold, Ledger
from service.store.rendered import RenderedStatement
from service.walk import Answerer
from tests.fixtures.ledgers import open_ledger
from tests.fixtures.slots import ZeroEngine, answerer_of, failing, timed
from tests.fixtures.whole import ANALYST, clinic

PICO = 10**12
ASKED = 24
STEP_MS = 300  # a failure is counted long after the next query could run

Opened = tuple[Books, Walk]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    with clinic(tmp_path) as opened:
        yield opened


def answerer(opened: Opened, *, fails: bool, step_ms: int = STEP_MS, **changed: object) -> Answerer:
    version = opened[0].catalog.schema("clinic").data_version
    engine = ZeroEngine(version, failing("died")) if fails else ZeroEngine(version)
    return answerer_of(*opened, engine, **{**timed(engine, step_ms), **changed})


def burst(asked: Sequence[Answerer], *analysts: Principal) -> Counter[str]:
    """How often each ending came, when the analysts in turn send queries at the same moment to all services in turn."""

    def ask(number: int) -> str:
        sql = f"SELECT COUNT(*) AS n FROM visits WHERE cost > {number}"
        question = Ask("clinic", sql, Loss("epsilon", PICO // 1000))
        try:
            asked[number % len(asked)].submit(question, analysts[number % len(analysts)], None, "", 30)
        except ServiceError as error:
            return error.code
        return "answered"

    with ThreadPoolExecutor(ASKED) as pool:
        return Counter(pool.map(ask, range(ASKED)))


@contextmanager
def two_services(opened: Opened) -> Iterator[list[Answerer]]:
    """Two services that fail whatever they are asked; they share nothing but the store."""
    with open_ledger(str(opened[0].store.url)) as (_, other):
        yield [answerer(opened, fails=True), answerer(opened, fails=True, ledger=other)]


def test_one_analyst_can_not_fail_more_often_than_the_allowance(opened: Opened) -> None:
    endings = burst([answerer(opened, fails=True)], ANALYST)
    allowed = opened[0].ledger.allowance("clinic", ANALYST.person).failures_allowed
    assert endings == {"answer-failed": allowed, "dataset-paused": ASKED - allowed}


def test_many_keys_of_one_owner_fail_no_more_often_than_one(opened: Opened) -> None:
    keys = [replace(ANALYST, prefix=f"analyst{i:03}", owner="ann") for i in range(8)]
    endings = burst([answerer(opened, fails=True)], *keys)
    allowed = opened[0].ledger.allowance("clinic", "ann").failures_allowed
    assert endings == {"answer-failed": allowed, "dataset-paused": ASKED - allowed}


def test_many_analysts_together_can_not_fail_more_often_than_the_dataset_allows(opened: Opened) -> None:
    many = [replace(ANALYST, prefix=f"analyst{i:03}") for i in range(8)]
    endings = burst([answerer(opened, fails=True)], *many)
    balance = opened[0].ledger.balance("clinic")
    assert endings["answer-failed"] == balance.failures == balance.failures_allowed < ASKED
    assert set(endings) == {"answer-failed", "dataset-paused"}


def test_two_services_over_one_store_fail_no_more_often_than_one(opened: Opened) -> None:
    with two_services(opened) as both:
        endings = burst(both, ANALYST)
    allowed = opened[0].ledger.allowance("clinic", ANALYST.person).failures_allowed
    assert endings == {"answer-failed": allowed, "dataset-paused": ASKED - allowed}


def test_without_counting_what_runs_in_the_store_they_would(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: failures alone are looked at, and they are counted long after the next query has run."""
    opened[0].store.write(lambda tx: tx.exec_driver_sql("DROP TRIGGER allowance_update_guard") and None)
    blind = "UPDATE allowance SET open_holds = open_holds + 1 WHERE id IN (:dataset_id, :person_id)"
    blind += " AND paused = 0 AND failures < failures_allowed"
    monkeypatch.setattr(allowances, "TAKE_PLACES", RenderedStatement(sa.text(blind)))
    monkeypatch.setattr(Ledger, "seems_to_have_room", lambda *_: True)
    with two_services(opened) as both:
        endings = burst(both, ANALYST)
    assert endings["answer-failed"] > opened[0].ledger.allowance("clinic", ANALYST.person).failures_allowed


def test_queries_that_succeed_wait_for_room_and_are_all_answered(opened: Opened) -> None:
    assert burst([answerer(opened, fails=False)], ANALYST) == {"answered": ASKED}
    assert opened[0].ledger.balance("clinic").failures == 0


def test_one_that_waits_for_room_can_still_be_cancelled_and_costs_nothing(opened: Opened) -> None:
    ledger, running = opened[0].ledger, [f"q_running_{number}" for number in range(3)]
    terms = ledger.terms("clinic")
    for name in running:
        cost = Cost((1,) * (len(terms.orders) + 1))
        ledger.reserve(Hold(name, "clinic", ANALYST.prefix, "hash", cost, 1))
    spent = ledger.balance("clinic").spent
    asked = answerer(opened, fails=False)
    question = Ask("clinic", "SELECT COUNT(*) AS n FROM visits", Loss("epsilon", PICO // 1000))
    waiting = asked.submit(question, ANALYST, "a key", "", 0.1)
    assert waiting.status == "queued"
    assert asked.cancel(waiting.query_id, ANALYST).status == "cancelled"
    for name in running:
        ledger.settle(name, "answered")
    with pytest.raises(Conflict):
        _ended(asked, waiting.query_id)
    assert ledger.balance("clinic").spent == spent


def _ended(asked: Answerer, query_id: str) -> None:
    while asked.find(query_id, ANALYST):
        time.sleep(0.01)
