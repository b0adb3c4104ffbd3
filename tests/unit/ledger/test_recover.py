"""Start-up: what dead processes left is settled as failed; what living ones run is left alone."""

import threading
from pathlib import Path

import pytest

from service.core.errors import AnswerFailed
from service.ledger.book import Ledger
from service.store import presence
from service.store.database import Store
from tests.fixtures.ledgers import ask, open_ledger


def test_holds_of_a_living_process_are_left_alone(ledger: Ledger, url: str) -> None:
    asked = ask()
    ledger.reserve(asked)
    with open_ledger(url) as (_, other):
        assert other.recover() == []
        assert ledger.recover() == []
    ledger.settle(asked.query_id, "answered")


def test_holds_of_a_process_that_is_gone_are_settled_as_failed(ledger: Ledger, url: str) -> None:
    with open_ledger(url) as (_, gone):
        lost, done = ask(key="k"), ask()
        gone.reserve(lost)
        gone.reserve(done)
        gone.settle(done.query_id, "answered")
    assert ledger.recover() == [lost.query_id]
    assert ledger.recover() == []
    attempt = ledger.lookup("hk_ann", "k")
    assert attempt is not None
    assert attempt.state == "failed"
    assert ledger.balance("shop").spent == (2, 4, 6)
    assert ledger.balance("shop").failures == 1


def test_a_process_taken_for_dead_can_not_answer_any_more(ledger: Ledger, url: str) -> None:
    asked = ask()
    with open_ledger(url) as (_, slow):
        slow.reserve(asked)
        slow.close()  # its lock is lost, but it lives
        assert ledger.recover() == [asked.query_id]
        with pytest.raises(AnswerFailed):
            slow.settle(asked.query_id, "answered", lambda tx: pytest.fail("a result was stored"))


@pytest.mark.parametrize("patience", [presence.GONE_WITHIN_S, 0.0], ids=["as it is", "broken: without patience"])
def test_a_process_whose_lock_falls_a_moment_later_is_taken_for_dead_all_the_same(
    ledger: Ledger, url: str, kind: str, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    """As after a kill: PostgreSQL sees the closed connection a moment later. A file's lock falls at once."""
    monkeypatch.setattr(presence, "GONE_WITHIN_S", patience)
    asked = ask()
    with open_ledger(url) as (_, dying):
        dying.reserve(asked)
        ending = threading.Timer(0.5, dying.close)
        ending.start()
        found = ledger.recover()
        ending.join()
        waits = kind == "postgresql" and patience > 0
        assert found == ([asked.query_id] if waits else [])
    assert ledger.recover() == ([] if waits else [asked.query_id])


def test_a_broken_session_is_renewed(ledger: Ledger, store: Store, url: str, kind: str) -> None:
    asked = ask()
    ledger.reserve(asked)
    if kind == "postgresql":
        cut = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        with store.read() as tx:
            assert tx.exec_driver_sql(cut).all()
    assert ledger.recover() == []
    with open_ledger(url) as (_, other):
        assert other.recover() == []
    ledger.settle(asked.query_id, "answered")


def test_no_lock_files_pile_up(ledger: Ledger, url: str, kind: str) -> None:
    """On SQLite a process removes its own file, and those of processes that were killed."""
    ledger.reserve(ask())
    if kind == "postgresql":
        assert ledger.recover() == []
        return
    folder = Path(url.removeprefix("sqlite:///") + ".owners")
    (folder / "o_killed").touch()
    with open_ledger(url) as (_, other):
        other.recover()
        assert len(list(folder.iterdir())) == 2
    assert len(list(folder.iterdir())) == 1
