"""Open the store; run reads and writes on it.

One database holds the ledger, the catalog and the answers, so that a result and the entry that
settles it are one commit. Two kinds: SQLite (a file, the embedded default) and PostgreSQL.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import event

from service.store.transaction import Transaction
from service.store.writer import Writer

T = TypeVar("T")

metadata = sa.MetaData(
    naming_convention={
        "pk": "%(table_name)s_key",
        "uq": "%(table_name)s_%(column_0_N_name)s_unique",
        "ix": "%(table_name)s_%(column_0_N_name)s_index",
        "fk": "%(table_name)s_%(column_0_N_name)s_refers",
        "ck": "%(table_name)s_%(constraint_name)s",
    }
)

# How long a writer waits for another process, before it gives up without having charged anything.
LOCK_WAIT_MS = 30_000


class Store:
    """Reads on any thread; writes are transactions that are durable when `write` returns.

    SQLite: WAL, synchronous FULL, BEGIN IMMEDIATE. PostgreSQL: READ COMMITTED, synchronous commit on.
    Both: one writer with group commit (service/store/writer.py).
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = open_engine(url)
        self._writer = Writer(self._connect_writer, is_sqlite=self.engine.dialect.name == "sqlite")

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a transaction; its result, once that is durable. What it raises undoes it.

        Works of other threads may share the transaction, each with its own savepoint. So a work is
        short, talks to nothing but its connection, and neither commits nor rolls back.
        """
        return self._writer.run(work)

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A connection for reading; on SQLite one snapshot, on PostgreSQL a snapshot per statement."""
        with self.engine.connect() as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[sa.Connection]:
        """Reading that sees one moment throughout, on both stores: for verifying and exporting."""
        level = {} if self.engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
        with self.engine.connect().execution_options(**level) as connection:
            yield connection

    def close(self) -> None:
        self._writer.close()
        self.engine.dispose()

    def _connect_writer(self) -> sa.Connection:
        """In autocommit mode, because the writer spells its transactions out."""
        return self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")


def open_engine(url: str) -> sa.Engine:
    """An engine whose connections are as durable and as strict as the ledger needs."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _open_sqlite(parsed)
    if parsed.get_backend_name() == "postgresql":
        return _open_postgresql(parsed)
    raise ValueError(f"the store is SQLite or PostgreSQL, not {parsed.get_backend_name()}")


def _open_sqlite(url: sa.URL) -> sa.Engine:
    if not url.database or url.database == ":memory:":
        raise ValueError("the ledger needs a file: a budget that forgets is no budget")
    if sqlite3.sqlite_version_info < (3, 35):
        raise RuntimeError(f"SQLite 3.35 or later is needed (RETURNING), this is {sqlite3.sqlite_version}")
    Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    # For this user alone, whatever the umask says; SQLite gives its log and its index the mode of the database.
    os.close(os.open(url.database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    settings = {"timeout": LOCK_WAIT_MS / 1000, "check_same_thread": False}
    engine = sa.create_engine(url, connect_args=settings, pool_size=8, max_overflow=56)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver's own BEGIN is deferred: two writers could both read first
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "recursive_triggers = ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        options = connection.get_execution_options()
        if options.get("isolation_level") != "AUTOCOMMIT":
            connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("writes") else "BEGIN")

    return engine


def _open_postgresql(url: sa.URL) -> sa.Engine:
    engine = sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        isolation_level="READ COMMITTED",
        pool_size=8,
        max_overflow=24,
        pool_pre_ping=True,
        connect_args={"options": f"-c timezone=UTC -c synchronous_commit=on -c lock_timeout={LOCK_WAIT_MS}"},
    )

    @event.listens_for(engine, "connect")
    def check(connection: Any, _record: object) -> None:
        with connection.cursor() as cursor:
            durable = cursor.execute("SHOW fsync").fetchone()[0]
        connection.rollback()
        if durable != "on":
            raise RuntimeError("this PostgreSQL runs with fsync off: a crash could refill budgets")

    return engine
