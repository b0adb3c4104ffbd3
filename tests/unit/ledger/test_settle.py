"""Settling: the result and its entry are one commit, and nothing comes back."""

import pytest
import sqlalchemy as sa

from service.core.errors import AnswerFailed, DatasetPaused
from service.ledger.book import Ledger
from service.store.database import Store
from tests.fixtures.ledgers import ADMIN, ask


def fail(ledger: Ledger, principal: str) -> None:
    asked = ask(principal=principal)
    ledger.reserve(asked)
    ledger.settle(asked.query_id, "failed")


def test_the_result_is_stored_in_the_commit_that_settles(ledger: Ledger, store: Store) -> None:
    store.write(lambda tx: tx.exec_driver_sql("CREATE TABLE result (query_id TEXT)") and None)
    asked = ask(key="k")
    ledger.reserve(asked)
    ledger.settle(
        asked.query_id, "answered", lambda tx: tx.execute(sa.text("INSERT INTO result VALUES ('stored')")) and None
    )
    with store.read() as tx:
        assert tx.execute(sa.text("SELECT query_id FROM result")).scalars().all() == ["stored"]
    attempt = ledger.lookup("hk_ann", "k")
    assert attempt is not None
    assert attempt.state == "answered"


def test_a_result_that_can_not_be_stored_leaves_the_hold_open(ledger: Ledger) -> None:
    asked = ask(key="k")
    ledger.reserve(asked)

    def refuse(_tx: sa.Connection) -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        ledger.settle(asked.query_id, "answered", refuse)
    attempt = ledger.lookup("hk_ann", "k")
    assert attempt is not None
    assert attempt.state == "held"
    ledger.settle(asked.query_id, "failed")


@pytest.mark.parametrize("outcome", ["answered", "failed"])
def test_nothing_is_given_back(ledger: Ledger, outcome: str) -> None:
    asked = ask((1, 2, 3), delta=4, share=5)
    ledger.reserve(asked)
    ledger.settle(asked.query_id, outcome)  # type: ignore[arg-type]
    balance = ledger.balance("shop")
    assert (balance.spent, balance.delta_spent) == ((1, 2, 3), 4)
    assert ledger.quota("shop", "hk_ann").spent == 5


def test_a_hold_is_settled_once(ledger: Ledger) -> None:
    asked = ask()
    ledger.reserve(asked)
    ledger.settle(asked.query_id, "answered")
    for outcome in ("answered", "failed"):
        with pytest.raises(AnswerFailed):
            ledger.settle(asked.query_id, outcome)  # type: ignore[arg-type]
    with pytest.raises(AnswerFailed):
        ledger.settle("q_never_reserved", "answered")
    assert ledger.balance("shop").failures == 0


def test_an_analyst_pauses_after_three_failures_and_others_do_not(ledger: Ledger) -> None:
    for _ in range(3):
        fail(ledger, "hk_ann")
    with pytest.raises(DatasetPaused):
        ledger.reserve(ask())
    ledger.reserve(ask(principal="hk_bob"))
    ledger.resume("shop", ADMIN, owner="hk_ann")
    for _ in range(3):
        fail(ledger, "hk_ann")
    with pytest.raises(DatasetPaused):
        ledger.reserve(ask())


def test_a_dataset_pauses_after_ten_failures_until_an_admin_looks(ledger: Ledger) -> None:
    for number in range(10):
        fail(ledger, f"hk_{number}")
    assert ledger.balance("shop").paused
    with pytest.raises(DatasetPaused):
        ledger.reserve(ask(principal="hk_new"))
    ledger.resume("shop", ADMIN)
    ledger.reserve(ask(principal="hk_new"))


def test_answered_queries_use_no_allowance(ledger: Ledger) -> None:
    for _ in range(12):
        asked = ask()
        ledger.reserve(asked)
        ledger.settle(asked.query_id, "answered")
    assert not ledger.balance("shop").paused


def test_an_admin_can_pause_and_resume(ledger: Ledger) -> None:
    ledger.pause("shop", ADMIN)
    with pytest.raises(DatasetPaused):
        ledger.reserve(ask())
    ledger.resume("shop", ADMIN)
    ledger.pause("shop", ADMIN, owner="hk_ann")
    with pytest.raises(DatasetPaused):
        ledger.reserve(ask())
    ledger.reserve(ask(principal="hk_bob"))
