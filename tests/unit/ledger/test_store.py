"""The store: durable when it says so, and strict."""

import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import sqlalchemy as sa

from service.store.database import Store
from service.store.writer import Writer


@pytest.fixture(autouse=True)
def _table(store: Store) -> None:
    store.write(lambda tx: tx.exec_driver_sql("CREATE TABLE line (number INTEGER PRIMARY KEY)") and None)


def lines(store: Store) -> list[int]:
    with store.read() as tx:
        return list(tx.exec_driver_sql("SELECT number FROM line ORDER BY number").scalars())


def insert(store: Store, number: int) -> None:
    store.write(lambda tx: tx.exec_driver_sql(f"INSERT INTO line VALUES ({number})") and None)


def test_a_write_is_seen_by_others_when_it_returns(store: Store, url: str) -> None:
    insert(store, 1)
    other = Store(url)
    assert lines(other) == [1]
    other.close()


def test_a_write_that_raises_leaves_nothing(store: Store) -> None:
    def work(tx: sa.Connection) -> None:
        tx.exec_driver_sql("INSERT INTO line VALUES (1)")
        raise RuntimeError("after all, no")

    with pytest.raises(RuntimeError, match="after all"):
        store.write(work)
    with pytest.raises(sa.exc.IntegrityError):
        store.write(lambda tx: tx.exec_driver_sql("INSERT INTO line VALUES (7), (7)"))
    assert lines(store) == []
    insert(store, 2)
    assert lines(store) == [2]


def test_works_that_wait_share_one_commit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    commit = Writer._commit

    def counted(self: Writer, batch: list[object]) -> None:
        sizes.append(len(batch))
        commit(self, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(Writer, "_commit", counted)
    gate = threading.Event()
    with ThreadPoolExecutor(9) as pool:
        slow = pool.submit(store.write, lambda tx: gate.wait(10))
        while not sizes:
            time.sleep(0.001)
        waiting = [pool.submit(insert, store, number) for number in range(8)]
        while len(store._writer._jobs) < 8:
            time.sleep(0.001)
        gate.set()
        for future in (slow, *waiting):
            future.result()
    assert sizes == [1, 8]
    assert lines(store) == list(range(8))


def test_a_connection_that_breaks_fails_its_works_and_no_later_ones(store: Store) -> None:
    def broken(tx: sa.Connection) -> None:
        tx.exec_driver_sql("INSERT INTO line VALUES (1)")
        raw = tx.connection.driver_connection
        assert raw is not None
        raw.close()

    with pytest.raises((sqlite3.Error, psycopg.Error)):
        store.write(broken)
    insert(store, 2)
    assert lines(store) == [2]


def test_a_work_may_not_write_through_the_store_again(store: Store) -> None:
    with pytest.raises(AssertionError, match="again"):
        store.write(lambda tx: insert(store, 1))
    insert(store, 2)


def test_a_closed_store_refuses(store: Store) -> None:
    store.close()
    with pytest.raises(AssertionError, match="closed"):
        insert(store, 1)


def test_closing_waits_for_the_write_under_way(store: Store, url: str) -> None:
    begun, gate = threading.Event(), threading.Event()

    def work(tx: sa.Connection) -> None:
        begun.set()
        assert gate.wait(10)
        tx.exec_driver_sql("INSERT INTO line VALUES (1)")

    with ThreadPoolExecutor(2) as pool:
        writing = pool.submit(store.write, work)
        begun.wait(10)
        closing = pool.submit(store.close)
        time.sleep(0.05)
        assert not closing.done()
        gate.set()
        writing.result()
        closing.result()
    other = Store(url)
    assert lines(other) == [1]
    other.close()


def test_two_processes_that_lock_in_opposite_order_do_not_deadlock(store: Store, url: str) -> None:
    """Whoever writes has the turn of all processes, before any row is locked."""
    other = Store(url)
    for number in (1, 2):
        insert(store, number)
    meet = threading.Barrier(2)

    def both(mine: Store, first: int, second: int) -> None:
        meet.wait(10)

        def work(tx: sa.Connection) -> None:
            tx.exec_driver_sql(f"UPDATE line SET number = number WHERE number = {first}")
            time.sleep(0.05)
            tx.exec_driver_sql(f"UPDATE line SET number = number WHERE number = {second}")

        mine.write(work)

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(both, store, 1, 2), pool.submit(both, other, 2, 1)]:
            future.result()
    other.close()


def test_settings_that_durability_hangs_on(store: Store, kind: str) -> None:
    with store.read() as tx:
        if kind == "sqlite":
            found = [tx.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")]
            assert found == ["wal", 2]
            assert tx.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        else:
            names = ("fsync", "synchronous_commit", "transaction_isolation")
            assert [tx.exec_driver_sql(f"SHOW {name}").scalar() for name in names] == ["on", "on", "read committed"]


def test_a_snapshot_sees_one_moment(store: Store) -> None:
    insert(store, 1)
    with store.snapshot() as tx:
        count = sa.text("SELECT count(*) FROM line")
        assert tx.execute(count).scalar() == 1
        insert(store, 2)
        assert tx.execute(count).scalar() == 1
