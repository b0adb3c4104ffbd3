"""The high-water mark: how far the journal has come, kept beside the prepared data and not in the ledger's store.

A ledger that was restored from a backup has forgotten charges, and would grant them again. So a file in the data
folder keeps the number and hash of the newest entry with what every dataset had spent by then, and some older marks.
A ledger that does not have the entry of the newest mark is not the one that made it: nothing is charged on it until
an admin has accepted it (service/ledger/restore.py).

A charge does not wait for its mark: a thread writes one within half a second, and one is written before an import and
when the service stops. A machine that dies loses the marks of its last half second, and only those. What is restored
together with the ledger (the whole data folder) can not be noticed.
"""

import fcntl
import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import sqlalchemy as sa

from service.core.errors import LedgerRestored
from service.ledger.marks import Mark, mark_from, read_mark
from service.ledger.tables import FIRST_HASH, entry, head
from service.store.database import Store

log = logging.getLogger("halftone")

DELAY_S = 0.5
FORMAT = "halftone-mark/1"


@dataclass(frozen=True, slots=True)
class Restored:
    """The ledger is not the one that wrote the mark: `entries` is how many it has, `marked` how many there were."""

    entries: int
    marked: int

    @property
    def words(self) -> str:
        return (
            f"the ledger has {self.entries} entries and lacks entry {self.marked} as it was marked: it was restored"
            " from a backup, or is another ledger"
        )


class HighWater:
    """The mark of one data folder, and the thread that moves it."""

    def __init__(self, path: Path, store: Store) -> None:
        self._path = path
        self._store = store
        self._moved = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._checked = False
        self._restored: Restored | None = None

    def refuse_if_restored(self) -> None:
        """Before a charge. A ledger once found wanting is looked at again each time: an admin may have accepted it."""
        if self._restored is not None or not self._checked:
            self.look()
        if self._restored is not None:
            raise LedgerRestored(
                self._restored.words,
                {"remedy": "an admin looks into it, then: halftone ledger accept-restore --reason …"},
            )

    def look(self) -> Restored | None:
        """Compare the newest mark with the ledger; a folder without a mark has nothing to compare."""
        with self._alone():
            marks = self._read()
            with self._store.snapshot() as tx:
                self._restored = missing(tx, marks)
        if self._restored is not None:
            log.error("ledger restored", extra={"detail": self._restored.words})
        self._checked = True
        return self._restored

    def moved(self) -> None:
        """The journal has grown; the mark follows soon, and nobody waits for it."""
        self._moved.set()
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._follow, name="mark", daemon=True)
                    self._thread.start()

    def write(self) -> None:
        """Mark the newest entry, unless this is not the ledger that was marked last: then nothing is overwritten."""
        with self._alone():
            marks = self._read()
            with self._store.snapshot() as tx:
                self._restored = missing(tx, marks)
                self._checked = True
                newest = None if self._restored is not None else read_mark(tx, marks[-1] if marks else None)
            if newest is not None and (not marks or newest.number > marks[-1].number):
                self._save([*marks, newest])

    def accepted(self) -> None:
        """The ledger as it is now is the one that counts: marks that it does not contain are dropped."""
        with self._alone():
            marks = self._read()
            with self._store.snapshot() as tx:
                kept = [mark for mark in marks if contains(tx, mark)]
                self._save([*kept, read_mark(tx, kept[-1] if kept else None)])
            self._restored = None

    def marks(self) -> list[Mark]:
        with self._alone():
            return self._read()

    def close(self) -> None:
        """The last mark, if anything was charged."""
        self._stop.set()
        self._moved.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
            self._quietly()

    def _follow(self) -> None:
        while not self._stop.is_set():
            self._moved.wait()
            self._stop.wait(DELAY_S)
            self._moved.clear()
            if not self._stop.is_set():
                self._quietly()

    def _quietly(self) -> None:
        try:
            self.write()
        except (OSError, ValueError, sa.exc.SQLAlchemyError) as error:
            log.error("the mark could not be written", extra={"kind": type(error).__name__})

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One process at a time looks and writes."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _read(self) -> list[Mark]:
        """Oldest first. A file that can not be read is an error, not a fresh start."""
        try:
            raw = json.loads(self._path.read_text())
        except FileNotFoundError:
            return []
        return [mark_from(each) for each in raw["marks"]]

    def _save(self, marks: list[Mark]) -> None:
        """Written beside, synced, renamed, for this user alone."""
        raw = {"format": FORMAT, "marks": [asdict(mark) for mark in thinned(marks)]}
        beside = f"{self._path}.new"
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump(raw, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self._path)


def contains(tx: sa.Connection, mark: Mark) -> bool:
    if mark.number == 0:
        return mark.hash == FIRST_HASH
    found = tx.execute(sa.select(entry.c.hash).where(entry.c.number == mark.number)).scalar()
    return bool(found == mark.hash)


def missing(tx: sa.Connection, marks: list[Mark]) -> Restored | None:
    if not marks or contains(tx, marks[-1]):
        return None
    return Restored(int(tx.execute(sa.select(head.c.number)).scalar_one()), marks[-1].number)


def thinned(marks: list[Mark]) -> list[Mark]:
    """The newest, and of the others one for every doubling of the distance to it: a few dozen at most. Of two at
    about the same distance the older one stays, or none would ever grow old."""
    newest = marks[-1]
    kept: dict[int, Mark] = {}
    for mark in marks[:-1]:
        kept.setdefault((newest.number - mark.number).bit_length(), mark)
    return [*sorted(kept.values(), key=lambda mark: mark.number), newest]
