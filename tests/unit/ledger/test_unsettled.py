"""A store that is away for a while leaves no hold open: what could not be settled is settled when it is back."""

import time

import pytest

from service.ledger import unsettled
from service.ledger.book import Ledger
from service.ledger.unsettled import Unsettled
from service.store.database import Store
from tests.fixtures.flaky_store import PATIENCE_S, FlakyWrites, Way, wait_until_settled
from tests.fixtures.ledgers import ask, open_ledger

StoreError = Exception


@pytest.fixture
def flaky(store: Store, monkeypatch: pytest.MonkeyPatch) -> FlakyWrites:
    monkeypatch.setattr(unsettled, "FIRST_PAUSE_S", 0.01)
    return FlakyWrites(store, monkeypatch)


def endings(ledger: Ledger) -> list[str]:
    return [made.kind for made in ledger.entries() if made.kind in ("late", "settle")]


def wait_until_empty(ledger: Ledger) -> None:
    until = time.monotonic() + PATIENCE_S
    while ledger._unsettled._left and time.monotonic() < until:
        time.sleep(0.01)
    assert ledger._unsettled._left == {}


@pytest.mark.parametrize("times", [0, 1, 5])
def test_what_is_given_up_is_settled_as_soon_as_the_store_takes_it(
    ledger: Ledger, flaky: FlakyWrites, times: int
) -> None:
    asked = ask()
    ledger.reserve(asked)
    flaky.fail("before", times)
    assert not ledger.give_up(asked.query_id)
    wait_until_settled(ledger, "shop")
    assert ledger.allowance("shop", "hk_ann").failures == 1
    assert not ledger.give_up(asked.query_id), "and nothing more happens"
    assert endings(ledger) == ["settle"]
    wait_until_empty(ledger)


def test_places_that_were_left_open_come_back_without_a_restart(ledger: Ledger, flaky: FlakyWrites) -> None:
    """Three of them closed a dataset for a person, until the process ended."""
    running = [ask(), ask()]
    for asked in running:
        ledger.reserve(asked)
    flaky.fail("before", 4)
    for asked in running:
        ledger.give_up(asked.query_id)
    wait_until_settled(ledger, "shop")
    ledger.reserve(ask())


def test_a_settle_that_was_committed_although_it_raised_counts(ledger: Ledger, flaky: FlakyWrites) -> None:
    asked = ask(key="k")
    ledger.reserve(asked)
    flaky.fail("after")
    with pytest.raises(StoreError):
        ledger.settle(asked.query_id, "answered")
    assert ledger.give_up(asked.query_id)
    attempt = ledger.lookup("hk_ann", "k")
    assert attempt is not None
    assert attempt.state == "answered"
    assert ledger.allowance("shop").failures == 0
    assert endings(ledger) == ["settle"]


def test_one_that_is_answered_meanwhile_stays_answered(ledger: Ledger, flaky: FlakyWrites) -> None:
    """The store is away when it is given up, and what was settled before turns up when it is back."""
    asked = ask()
    ledger.reserve(asked)
    flaky.fail("after")
    with pytest.raises(StoreError):
        ledger.settle(asked.query_id, "answered")
    flaky.fail("before", 3)
    assert not ledger.give_up(asked.query_id), "nobody knows yet"
    wait_until_empty(ledger)
    assert ledger.allowance("shop").failures == 0


@pytest.mark.parametrize(("way", "failures"), [("before", 0), ("after", 1)])
def test_a_charge_that_raised_leaves_no_open_hold_whether_it_was_committed_or_not(
    ledger: Ledger, flaky: FlakyWrites, way: Way, failures: int
) -> None:
    asked = ask((10, 20, 30))
    flaky.fail(way)
    with pytest.raises(StoreError):
        ledger.reserve(asked)
    wait_until_settled(ledger, "shop")
    wait_until_empty(ledger)
    assert ledger.allowance("shop").failures == failures
    assert ledger.balance("shop").spent == ((10, 20, 30) if failures else (0, 0, 0)), "what was charged stays"


@pytest.mark.parametrize("way", ["before", "after"])
def test_a_late_answer_that_could_not_be_counted_is_counted_once_when_it_is_settled(
    ledger: Ledger, flaky: FlakyWrites, way: Way
) -> None:
    asked = ask()
    ledger.reserve(asked)
    flaky.fail(way)
    with pytest.raises(StoreError):
        ledger.late(asked.query_id)
    ledger.settle(asked.query_id, "answered")
    balance = ledger.balance("shop")
    assert (balance.late, balance.safety, ledger.allowance("shop", "hk_ann").late) == (1, 8, 1)
    assert endings(ledger) == ["late", "settle"]
    assert ledger._late == set()


def test_what_a_process_leaves_when_it_ends_is_recovered_by_the_next(
    url: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ask()
    with open_ledger(url) as (store, ending):
        ending.reserve(asked)
        FlakyWrites(store, monkeypatch).fail("before", 10**6)
        assert not ending.give_up(asked.query_id)
        thread = ending._unsettled._thread
        ending.close()
        assert thread is not None
        assert not thread.is_alive()
    assert ledger.recover() == [asked.query_id]


def test_one_that_can_not_be_settled_does_not_keep_the_others_waiting() -> None:
    settled: list[str] = []

    def settle(query_id: str) -> None:
        assert query_id != "broken"
        settled.append(query_id)

    left = Unsettled(settle)
    for query_id in ("broken", "q_1", "q_2"):
        left._left[query_id] = None
    left._try_all()
    assert (settled, list(left._left)) == (["q_1", "q_2"], ["broken"])
