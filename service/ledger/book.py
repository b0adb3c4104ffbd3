"""The ledger: one object that the service holds, one method per act.

Methods that only an admin uses take `tx`, so that a change of the catalog and its entry can be one
commit; without it they commit on their own.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from service.core.amounts import Terms
from service.core.errors import AnswerFailed
from service.ledger import grants, history, holds
from service.ledger.accounts import Balance, Quota, read_balance, read_quota
from service.ledger.grants import By, Grant
from service.ledger.history import PastCharge
from service.ledger.holds import Attempt, AttemptExists, Hold, Outcome
from service.ledger.journal import Entry, entries
from service.ledger.verify import Verdict, export, verify
from service.ledger.windows import WindowKind
from service.store.database import Store
from service.store.presence import Presence, announce
from service.store.transaction import Transaction

__all__ = ["Attempt", "AttemptExists", "Balance", "By", "Grant", "Hold", "Ledger", "Quota"]

T = TypeVar("T")


class Ledger:
    """Budgets, charges and the journal, in one store that several processes may share."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._presence: Presence | None = None
        self._starting = threading.Lock()

    # What every query does.

    def reserve(self, asked: Hold) -> int:
        """Charge, durably; the entry's number. Raises BudgetExhausted, DatasetPaused,
        IdempotencyKeyReused or AttemptExists, none of which cost anything."""
        owner = self._alive().owner
        return self._store.write(lambda tx: holds.reserve(tx, asked, owner))

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
        self._store.write(lambda tx: holds.settle(tx, query_id, outcome, write, why))

    def lookup(self, principal: str, key: str) -> Attempt | None:
        """What became of the request that this principal sent under this Idempotency-Key."""
        with self._store.read() as tx:
            return holds.lookup(tx, principal, key)

    def find(self, query_id: str) -> tuple[str, Attempt] | None:
        """The principal of a charged query and what became of it; also of one whose process died."""
        with self._store.read() as tx:
            return holds.find(tx, query_id)

    def recover(self) -> list[str]:
        """Settle as failed what processes that are gone left unfinished. The queries' ids.

        Called at start-up; safe at any time, and while other processes serve.
        """
        presence = self._alive()
        with self._store.read() as tx:
            found = holds.unfinished(tx)
        left = [query for owner, held in found.items() if presence.is_gone(owner) for query in held]
        return [query for query in left if self._bury(query)]

    # What anyone may know.

    def balance(self, dataset: str) -> Balance:
        with self._store.read() as tx:
            return read_balance(tx, dataset)

    def terms(self, dataset: str) -> Terms:
        return self.balance(dataset).terms

    def quota(self, dataset: str, prefix: str) -> Quota:
        with self._store.read() as tx:
            return read_quota(tx, dataset, prefix)

    def history(self, principal: str, *, dataset: str | None = None) -> list[PastCharge]:
        """An analyst's own charges, newest first, the last 100."""
        with self._store.read() as tx:
            return history.past_charges(tx, principal, dataset=dataset)

    def shares(self, principal: str, query_ids: Sequence[str]) -> dict[str, int]:
        """Pico of the budget that each of these queries took; a replay took nothing and is not there."""
        with self._store.read() as tx:
            return history.shares(tx, principal, query_ids) if query_ids else {}

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

    def pause(self, dataset: str, by: By, *, prefix: str | None = None, tx: Transaction | None = None) -> None:
        self._do(tx, lambda tx: grants.pause(tx, dataset, prefix, by))

    def resume(self, dataset: str, by: By, *, prefix: str | None = None, tx: Transaction | None = None) -> None:
        self._do(tx, lambda tx: grants.resume(tx, dataset, prefix, by))

    def claim_source(self, dataset: str, fingerprint: str, by: By, tx: Transaction | None = None) -> None:
        self._do(tx, lambda tx: grants.claim_source(tx, dataset, fingerprint, by))

    def note(
        self,
        act: str,
        what: Mapping[str, Any],
        by: By,
        *,
        dataset: str | None = None,
        tx: Transaction | None = None,
    ) -> int:
        """An admin's act that moves no budget, in the same chain. `what` is JSON without secrets."""
        return self._do(tx, lambda tx: grants.note(tx, act, what, by, dataset))

    def entries(self, *, dataset: str | None = None, after: int = 0, limit: int = 100) -> list[Entry]:
        with self._store.read() as tx:
            return list(entries(tx, after=after, dataset=dataset, limit=limit))

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
        if self._presence is not None:
            self._presence.close()

    def _do(self, tx: Transaction | None, work: Callable[[Transaction], T]) -> T:
        return self._store.write(work) if tx is None else work(tx)

    def _alive(self) -> Presence:
        if self._presence is None:
            with self._starting:
                self._presence = self._presence or announce(self._store)
        return self._presence

    def _bury(self, query_id: str) -> bool:
        """Settle one hold of a dead process; False when another process was faster."""
        try:
            self.settle(query_id, "failed", why="the process that ran it is gone")
        except AnswerFailed:
            return False
        return True
