"""The ledger: one object that the service holds, one method per act.

Methods that only an admin uses take `tx`, so that a change of the catalog and its entry can be one
commit; without it they commit on their own.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from service.core.amounts import Terms
from service.core.errors import AnswerFailed, Conflict, ServiceError
from service.ledger import claims, grants, history, holds, restore
from service.ledger.accounts import Balance, Quota, read_balance, read_quota
from service.ledger.allowances import Allowance, NoRoomYet, read_allowance, read_events, seems_to_have_room
from service.ledger.claims import ClaimedFile, Wanted
from service.ledger.grants import By, Grant
from service.ledger.high_water import HighWater, Restored
from service.ledger.history import PastCharge
from service.ledger.holds import Attempt, AttemptExists, Hold, Outcome
from service.ledger.journal import Entry, entries
from service.ledger.late import late
from service.ledger.unsettled import Unsettled
from service.ledger.verify import Verdict, export, verify
from service.ledger.windows import WindowKind
from service.store.database import Store
from service.store.presence import Presence, announce
from service.store.transaction import Transaction

__all__ = ["Allowance", "Attempt", "AttemptExists", "Balance", "By", "Grant", "Hold", "Ledger", "NoRoomYet", "Quota"]

T = TypeVar("T")

log = logging.getLogger("halftone")


class Ledger:
    """Budgets, charges and the journal, in one store that several processes may share."""

    def __init__(self, store: Store, mark: Path | None = None) -> None:
        """`mark` is where the high-water mark is kept; None: nowhere, and no restore is noticed."""
        self._store = store
        self._mark = None if mark is None else HighWater(mark, store)
        self._presence: Presence | None = None
        self._starting = threading.Lock()
        self._unsettled = Unsettled(self._bury)
        self._late: set[str] = set()  # late queries that the store does not know of yet

    # What every query does.

    def reserve(self, asked: Hold, write: Callable[[Transaction], None] | None = None) -> int:
        """Charge, durably, and run `write` in the same commit; the entry's number. `write` may refuse with a
        ServiceError, which costs nothing either. Raises BudgetExhausted, DatasetPaused,
        LedgerRestored, IdempotencyKeyReused, AttemptExists or, when so many queries run as may still fail, NoRoomYet:
        none of them costs anything, and after the last one it is worth to wait and try again. Whatever else is raised
        may have come after the commit: then it costs what it costs, and the hold is closed as failed."""
        process = self._alive().owner
        if self._mark is not None:
            self._mark.refuse_if_restored()

        def work(tx: Transaction) -> int:
            number = holds.reserve(tx, asked, process)
            if write is not None:
                write(tx)
            return number

        try:
            number = self._store.write(work)
            self._moved()
        except (ServiceError, AttemptExists):
            raise
        except BaseException:
            self._unsettled.add(asked.query_id)
            raise
        return number

    def late(self, query_id: str) -> int:
        """Count, durably, that a query was not done when it was promised; the dataset's new safety factor.

        Once per query, before it is settled. Raises AnswerFailed like settle. What the store does not take now is
        counted in the commit that settles the query.
        """
        self._late.add(query_id)
        safety = self._store.write(lambda tx: late(tx, query_id))
        self._late.discard(query_id)
        return safety

    def settle(
        self,
        query_id: str,
        outcome: Outcome,
        write: Callable[[Transaction], None] | None = None,
        *,
        why: str | None = None,
    ) -> None:
        """Close the hold and run `write` (which stores the answer) in the same commit.

        Raises AnswerFailed when the hold was settled before: by recovery, which took this process for
        dead. Then `write` did not run and nothing may be sent.
        """
        was_late = query_id in self._late
        self._store.write(lambda tx: holds.settle(tx, query_id, outcome, write, why, was_late=was_late))
        self._late.discard(query_id)
        self._moved()

    def give_up(self, query_id: str) -> bool:
        """Close the hold of a query that can not be answered as failed: now, or when the store takes it again.

        Never raises. True: it has been answered, by a settle that was committed although it raised; that counts.
        """
        try:
            self._bury(query_id)
            found = self.find(query_id)
        except Exception as cause:
            log.error("a query could not be settled", extra={"query_id": query_id, "cause": type(cause).__name__})
            self._unsettled.add(query_id)
            return False
        return found is not None and found[1].state == "answered"

    def lookup(self, principal: str, key: str) -> Attempt | None:
        """What became of the request that this principal sent under this Idempotency-Key."""
        return self._read(lambda tx: holds.lookup(tx, principal, key))

    def find(self, query_id: str) -> tuple[str, Attempt] | None:
        """The principal of a charged query and what became of it; also of one whose process died."""
        return self._read(lambda tx: holds.find(tx, query_id))

    def recover(self) -> list[str]:
        """Settle as failed what processes that are gone left unfinished. The queries' ids.

        Called at start-up; safe at any time, and while other processes serve.
        """
        presence = self._alive()
        with self._store.read() as tx:
            found = holds.unfinished(tx)
        left = [query for process, held in found.items() if presence.is_gone(process) for query in held]
        return [query for query in sorted(left) if self._bury(query, "the process that ran it is gone")]

    # What anyone may know.

    def balance(self, dataset: str) -> Balance:
        return self._read(lambda tx: read_balance(tx, dataset))

    def terms(self, dataset: str) -> Terms:
        return self.balance(dataset).terms

    def quota(self, dataset: str, prefix: str) -> Quota:
        return self._read(lambda tx: read_quota(tx, dataset, prefix))

    def allowance(self, dataset: str, owner: str | None = None) -> Allowance:
        """Events of the dataset, or of one person there."""
        return self._read(lambda tx: read_allowance(tx, dataset, owner))

    def seems_to_have_room(self, dataset: str, owner: str) -> bool:
        """A look before a reserve, so that whoever has to wait can do so without an engine slot."""
        return self._read(lambda tx: seems_to_have_room(tx, dataset, owner))

    def events(self, dataset: str) -> list[Allowance]:
        """The dataset's events, then those of every person who asked it: for admins."""
        return self._read(lambda tx: read_events(tx, dataset))

    def history(self, principal: str, *, dataset: str | None = None) -> list[PastCharge]:
        """An analyst's own charges, newest first, the last 100."""
        return self._read(lambda tx: history.past_charges(tx, principal, dataset=dataset))

    def shares(self, principal: str, query_ids: Sequence[str]) -> dict[str, int]:
        """Pico of the budget that each of these queries took; a replay took nothing and is not there."""
        return self._read(lambda tx: history.shares(tx, principal, query_ids) if query_ids else {})

    # What admins do.

    def open_account(self, dataset: str, terms: Terms, granted: Grant, by: By, tx: Transaction | None = None) -> None:
        self._do(tx, lambda tx: grants.open_account(tx, dataset, terms, granted, by))

    def grant(self, dataset: str, granted: Grant, by: By, tx: Transaction | None = None) -> None:
        self._do(tx, lambda tx: grants.grant(tx, dataset, granted, by))

    def raise_ceiling(self, dataset: str, terms: Terms, granted: Grant, by: By, tx: Transaction | None = None) -> None:
        self._do(tx, lambda tx: grants.raise_ceiling(tx, dataset, terms, granted, by))

    def set_quota(self, dataset: str, prefix: str, share: int | None, by: By, tx: Transaction | None = None) -> None:
        self._do(tx, lambda tx: grants.set_quota(tx, dataset, prefix, share, by))

    def set_window(self, dataset: str, kind: WindowKind | None, by: By, tx: Transaction | None = None) -> None:
        self._do(tx, lambda tx: grants.set_window(tx, dataset, kind, by))

    def pause(self, dataset: str, by: By, *, owner: str | None = None, tx: Transaction | None = None) -> None:
        self._do(tx, lambda tx: grants.pause(tx, dataset, owner, by))

    def resume(self, dataset: str, by: By, *, owner: str | None = None, tx: Transaction | None = None) -> None:
        self._do(tx, lambda tx: grants.resume(tx, dataset, owner, by))

    def reset_safety(self, dataset: str, by: By, tx: Transaction | None = None) -> None:
        """Back to the first safety factor, when what predictions are made from is new."""
        self._do(tx, lambda tx: grants.reset_safety(tx, dataset, by))

    def claim_files(self, wanted: Wanted, by: By, tx: Transaction | None = None) -> None:
        self._do(tx, lambda tx: claims.claim_files(tx, wanted, by))

    def carry_over(self, wanted: Wanted, by: By) -> list[str]:
        """Claim files that were claimed before, in another form; paths that another dataset has already."""
        return self._store.write(lambda tx: claims.carry_over(tx, wanted, by))

    def claimed_files(self) -> list[ClaimedFile]:
        """Every private file and the budget that it belongs to."""
        return self._read(lambda tx: claims.claimed_files(tx))

    def last_seen(self, file: ClaimedFile) -> str:
        """When a claimed file was last seen to be the one that was claimed."""
        return self._read(lambda tx: claims.last_seen(tx, file))

    def list_claims(self, *, unless: str) -> dict[str, str]:
        """Claims of the first version, which are of lists of files: fingerprint to dataset; none after that act."""
        return self._read(lambda tx: claims.list_claims(tx, unless))

    def note(
        self, act: str, what: Mapping[str, Any], by: By, *, dataset: str | None = None, tx: Transaction | None = None
    ) -> int:
        """An admin's act that moves no budget, in the same chain. `what` is JSON without secrets."""
        return self._do(tx, lambda tx: grants.note(tx, act, what, by, dataset))

    def declared_tables(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Every declaration of a table that was ever accepted, oldest first: dataset, subject, declaration."""
        return self._read(lambda tx: list(claims.declared_tables(tx)))

    def owner(self) -> str:
        """The name under which this process holds its lock: what it began, it can be seen to have left."""
        return self._alive().owner

    def is_gone(self, owner: str) -> bool:
        return self._alive().is_gone(owner)

    def entries(self, *, dataset: str | None = None, after: int = 0, limit: int = 100) -> list[Entry]:
        return self._read(lambda tx: list(entries(tx, after=after, dataset=dataset, limit=limit)))

    def restored(self) -> Restored | None:
        """Whether this ledger is another one than the data folder's mark was made from."""
        return None if self._mark is None else self._mark.look()

    def mark(self) -> None:
        """Move the high-water mark to the newest entry now."""
        if self._mark is not None:
            self._mark.write()

    def accept_restore(self, by: By) -> list[str]:
        """Charge what a restored ledger may have forgotten, and go on with it; the datasets that were charged."""
        mark = self._mark
        if mark is None or mark.look() is None:
            raise Conflict("the ledger was not restored: it has all that was marked")
        marks = mark.marks()
        charged = self._store.write(lambda tx: restore.accept(tx, marks, by))
        mark.accepted()
        return charged

    def verify(self, known_heads: tuple[str, ...] = ()) -> Verdict:
        """Re-derive chain and balances. `known_heads`: hashes kept elsewhere, which must still occur."""
        with self._store.snapshot() as tx:
            return verify(tx, known_heads)

    def export(self) -> Iterator[str]:
        """JSON lines, oldest first; the last one names the head."""
        with self._store.snapshot() as tx:
            yield from export(tx)

    def close(self) -> None:
        """Say that this process is gone. The store is closed by whoever opened it."""
        self._unsettled.close()
        if self._mark is not None:
            self._mark.close()
        if self._presence is not None:
            self._presence.close()

    def _read(self, look: Callable[[sa.Connection], T]) -> T:
        with self._store.read() as tx:
            return look(tx)

    def _do(self, tx: Transaction | None, work: Callable[[Transaction], T]) -> T:
        return self._store.write(work) if tx is None else work(tx)

    def _alive(self) -> Presence:
        if self._presence is None:
            with self._starting:
                self._presence = self._presence or announce(self._store)
        return self._presence

    def _moved(self) -> None:
        if self._mark is not None:
            self._mark.moved()

    def _bury(self, query_id: str, why: str | None = None) -> bool:
        """Settle one hold as failed; False when it is settled already, or never was."""
        try:
            self.settle(query_id, "failed", why=why)
        except AnswerFailed:
            return False
        return True
