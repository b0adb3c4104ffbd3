"""Which service processes are alive: a lock that dies with its process.

Every process that reserves has an owner id and holds a lock under it: on PostgreSQL an advisory lock
of one open session, on SQLite a locked file beside the database. The system drops both when the
process ends, however it ends; no clock and no heartbeat is involved.

A process can lose its lock and live on (the connection broke, PostgreSQL restarted). Then another one
may settle its unfinished holds as failed, and its own settling comes too late: its answer is never
sent. So a wrong guess costs an answer, never privacy.
"""

import hashlib
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol

import sqlalchemy as sa

from service.core.ids import new_id
from service.store.database import Store

# A killed process's session ends a moment after the process, when its server sees the closed connection.
GONE_WITHIN_S = 2.0

try:
    import fcntl
except ImportError:  # pragma: no cover: Windows, where a SQLite store serves one process
    fcntl = None  # type: ignore[assignment]


class Presence(Protocol):
    """A lock held under `owner` for as long as this process lives."""

    owner: str

    def is_gone(self, owner: str) -> bool:
        """No living process holds this owner's lock."""

    def close(self) -> None: ...


def announce(store: Store) -> Presence:
    return FilePresence(store) if store.engine.dialect.name == "sqlite" else SessionPresence(store)


class FilePresence:
    """A locked file in `<database>.owners/`; removed by its owner, or by whoever finds it unlocked."""

    def __init__(self, store: Store) -> None:
        self.owner = new_id("o")
        self._folder = Path(f"{store.engine.url.database}.owners")
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._file = self._lock(self._folder / self.owner)
        for left in self._folder.iterdir():
            self.is_gone(left.name)

    def is_gone(self, owner: str) -> bool:
        if owner == self.owner:
            return False
        path = self._folder / owner
        try:
            file = path.open("rb+")
        except FileNotFoundError:
            return True
        with file:
            if not _locked(file):
                return False
            path.unlink(missing_ok=True)
        return True

    def close(self) -> None:
        (self._folder / self.owner).unlink(missing_ok=True)
        self._file.close()

    def _lock(self, path: Path) -> IO[bytes]:
        """Another process may take the new file for a dead one's, before it is locked: then again."""
        while True:
            file = path.open("wb")
            if _locked(file) and path.exists():
                return file
            file.close()


def _locked(file: IO[bytes]) -> bool:
    """Lock it, if nobody else has."""
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


class SessionPresence:
    """An advisory lock of one session, which reads nothing and stays idle."""

    def __init__(self, store: Store) -> None:
        self.owner = new_id("o")
        self._store = store
        self._session = self._open()

    def is_gone(self, owner: str) -> bool:
        self._keep()
        if owner == self.owner:
            return False
        until = time.monotonic() + GONE_WITHIN_S
        with self._store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            while not connection.execute(sa.select(sa.func.pg_try_advisory_lock(_key(owner)))).scalar_one():
                if time.monotonic() > until:
                    return False
                time.sleep(0.02)
            connection.execute(sa.select(sa.func.pg_advisory_unlock(_key(owner))))
        return True

    def close(self) -> None:
        with suppress(sa.exc.SQLAlchemyError):  # a broken or closed session holds no lock
            self._session.execute(sa.select(sa.func.pg_advisory_unlock(_key(self.owner))))
        self._session.close()

    def _open(self) -> sa.Connection:
        session = self._store.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        session.detach()  # not the pool's: closing it closes the session, and that drops the lock
        session.execute(sa.select(sa.func.pg_advisory_lock(_key(self.owner))))
        return session

    def _keep(self) -> None:
        """Take the lock again if the session broke."""
        try:
            self._session.execute(sa.select(1))
        except sa.exc.DBAPIError:
            self._session.invalidate()
            self._session.close()
            self._session = self._open()


def _key(owner: str) -> int:
    return int.from_bytes(hashlib.sha256(f"halftone owner {owner}".encode()).digest()[:8], "big", signed=True)
