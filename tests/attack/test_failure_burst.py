"""Many queries at once can not fail more often than the allowance lets them: each failure is a bit without noise."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from service.app import Books, Walk
from service.core.errors import ServiceError
from service.core.plan import Loss
from service.core.request import Ask, Principal
from service.walk import Answerer
from service.walk.ladder import Ladder
from tests.fixtures.slots import ZeroEngine, answerer_of, failing
from tests.fixtures.whole import ANALYST, clinic

PICO = 10**12
ASKED = 24
SLOW = Ladder(step_ms=300, deadline_ms=60_000)  # a failure is counted long after the next query could run

Opened = tuple[Books, Walk]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    with clinic(tmp_path) as opened:
        yield opened


def answerer(opened: Opened, *, fails: bool) -> Answerer:
    version = opened[0].catalog.schema("clinic").data_version
    engine = ZeroEngine(version, failing("died")) if fails else ZeroEngine(version)
    return answerer_of(*opened, engine, ladder=SLOW)


def burst(asked: Answerer, *analysts: Principal) -> Counter[str]:
    """How often each ending came, when the analysts in turn send queries at the same moment."""

    def ask(number: int) -> str:
        sql = f"SELECT COUNT(*) AS n FROM visits WHERE cost > {number}"
        try:
            asked.submit(
                Ask("clinic", sql, Loss("epsilon", PICO // 1000)), analysts[number % len(analysts)], None, "", 30
            )
        except ServiceError as error:
            return error.code
        return "answered"

    with ThreadPoolExecutor(ASKED) as pool:
        return Counter(pool.map(ask, range(ASKED)))


def test_one_analyst_can_not_fail_more_often_than_the_allowance(opened: Opened) -> None:
    endings = burst(answerer(opened, fails=True), ANALYST)
    allowed = opened[0].ledger.quota("clinic", ANALYST.prefix).failures_allowed
    assert endings == {"answer-failed": allowed, "dataset-paused": ASKED - allowed}


def test_many_analysts_together_can_not_fail_more_often_than_the_dataset_allows(opened: Opened) -> None:
    many = [replace(ANALYST, prefix=f"analyst{i:03}") for i in range(8)]
    endings = burst(answerer(opened, fails=True), *many)
    balance = opened[0].ledger.balance("clinic")
    assert endings["answer-failed"] == balance.failures == balance.failures_allowed < ASKED
    assert set(endings) == {"answer-failed", "dataset-paused"}


def test_queries_that_succeed_do_not_wait_for_each_other_s_rungs(opened: Opened) -> None:
    books, _ = opened
    assert burst(answerer(opened, fails=False), ANALYST) == {"answered": ASKED}
    assert books.ledger.balance("clinic").failures == 0
