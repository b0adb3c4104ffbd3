"""The state of the ledger, re-derived from the journal with plain Python integers.

Written apart from the statements that keep the balances, on purpose: two ways to the same numbers.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from service.core.amounts import CLOSED
from service.ledger.accounts import dataset_account, quota_account
from service.ledger.journal import Entry
from service.ledger.rederive_events import EventReplay, ReplayBroken
from service.ledger.tables import (
    NO_ORDER,
    ORDERS,
    UNLIMITED,
    account,
    hold,
    promise,
    source,
    source_content,
    source_file,
)


@dataclass(slots=True)
class Derived:
    """One account as the journal explains it."""

    limits: list[int]
    spent: list[int] = field(default_factory=lambda: [0] * ORDERS)
    delta_limit: int = 0
    delta_spent: int = 0
    orders: int = 1
    terms: str | None = None  # None for a quota, like the rest
    epsilon_granted: int | None = None
    delta_granted: int | None = None
    window_kind: str | None = None

    def charge(self, cost: list[int], delta: int) -> None:
        padded = cost + [0] * (ORDERS - len(cost))
        if len(cost) != self.orders or min(*padded, delta) < 0:
            raise ReplayBroken("a cost that fits no account")
        self.spent = [min(CLOSED, spent + more) for spent, more in zip(self.spent, padded, strict=True)]
        self.delta_spent += delta
        if not any(spent <= limit for spent, limit in zip(self.spent, self.limits, strict=True)):
            raise ReplayBroken("a charge beyond the limit")
        if self.delta_spent > self.delta_limit:
            raise ReplayBroken("a charge beyond the limit of delta")


@dataclass(slots=True)
class DerivedHold:
    """One charged query as the journal explains it."""

    dataset: str
    principal: str
    key: str | None
    request_hash: str
    owner: str
    late: int = 0
    state: str = "held"


class Replay:
    """Applies entries one by one; then compares itself with the stored accounts and holds."""

    def __init__(self) -> None:
        self._accounts: dict[str, Derived] = {}
        self._events = EventReplay()
        self._holds: dict[str, DerivedHold] = {}
        self._sources: dict[str, str] = {}
        self._files: dict[tuple[str, str], tuple[str, str]] = {}
        self._owners: dict[str, str] = {}
        self._contents: set[tuple[str, str, str, int]] = set()

    def apply(self, made: Entry) -> None:
        act: Callable[[Entry, Any], None] | None = getattr(self, f"_{made.kind}", None)
        if act is None:
            raise ReplayBroken(f"an entry of unknown kind {made.kind!r}")
        act(made, json.loads(made.body))

    def difference(self, tx: sa.Connection) -> str | None:
        """What the stored accounts, holds and sources say otherwise; None when they agree."""
        stored = {
            row.id: row for row in tx.execute(sa.select(account, promise).select_from(account.outerjoin(promise)))
        }
        for name in sorted(stored.keys() | self._accounts.keys()):
            if name not in stored or name not in self._accounts:
                return f"account {name} is {'missing' if name not in stored else 'in no entry'}"
            if wrong := self._wrong_fields(name, stored[name]):
                return f"account {name}: {', '.join(wrong)} differ from the sum of its entries"
        if wrong_events := self._events.difference(tx):
            return wrong_events
        columns = [hold.c[name] for name in DerivedHold.__slots__]
        found = {row[0]: DerivedHold(*row[1:]) for row in tx.execute(sa.select(hold.c.query_id, *columns))}
        for query_id in sorted(found.keys() | self._holds.keys()):
            if found.get(query_id) != self._holds.get(query_id):
                return f"the hold of query {query_id} differs from its entries"
        if dict(tx.execute(sa.select(source.c.fingerprint, source.c.dataset)).all()) != self._sources:
            return "the sources differ from their entries"
        files = {(row.path, row.inner_table): (row.dataset, row.inode) for row in tx.execute(sa.select(source_file))}
        contents = {tuple(row) for row in tx.execute(sa.select(source_content))}
        if files != self._files or contents != self._contents:
            return "the claimed files differ from their entries"
        return None

    def _wrong_fields(self, name: str, row: Any) -> list[str]:
        derived = self._accounts[name]
        names = ("delta_limit", "delta_spent", "orders", "window_kind")
        promised = ("terms", "epsilon_granted", "delta_granted")
        expected = {field: getattr(derived, field) for field in (*names, *promised)}
        expected |= {f"spent_{i}": derived.spent[i] for i in range(ORDERS)}
        expected |= {f"limit_{i}": derived.limits[i] for i in range(ORDERS)}
        return [field for field, value in expected.items() if getattr(row, field) != value]

    def _account(self, made: Entry, prefix: str | None) -> Derived:
        assert made.dataset is not None
        if prefix is None:
            return self._accounts[dataset_account(made.dataset)]
        fresh = Derived([UNLIMITED, *[NO_ORDER] * (ORDERS - 1)])
        return self._accounts.setdefault(quota_account(made.dataset, prefix), fresh)

    def _open(self, made: Entry, body: Any) -> None:
        assert made.dataset is not None
        opened = Derived([], orders=len(body["limits"]))
        if self._accounts.setdefault(dataset_account(made.dataset), opened) is not opened:
            raise ReplayBroken("a second first budget")
        self._events.open(made.dataset)
        self._ceiling(made, body)

    def _ceiling(self, made: Entry, body: Any) -> None:
        self._account(made, None).terms = body["terms"]
        self._grant(made, body)

    def _grant(self, made: Entry, body: Any) -> None:
        changed = self._account(made, None)
        limits = [int(limit) for limit in body["limits"]]
        assert changed.terms is not None
        ceiling = json.loads(changed.terms)
        if int(body["epsilon"]) > int(ceiling["epsilon_ceiling"]) or int(body["delta"]) > int(ceiling["delta_ceiling"]):
            raise ReplayBroken("a grant beyond the ceiling")
        changed.limits = limits + [NO_ORDER] * (ORDERS - len(limits))
        changed.epsilon_granted, changed.delta_granted = int(body["epsilon"]), int(body["delta"])
        changed.delta_limit = int(body["delta_limit"])
        if "missing" in body:
            self._forgotten(changed, body["missing"])
            self._events.forgotten(str(made.dataset), body["missing"])

    def _forgotten(self, changed: Derived, missing: Any) -> None:
        """What a restored ledger may have forgotten counts as spent, also beyond the limit it had."""
        more = [int(cost) for cost in missing["orders"]]
        if len(more) != changed.orders or min(*more, 0) < 0 or int(missing["delta"]) < 0:
            raise ReplayBroken("a cost that fits no account")
        padded = more + [0] * (ORDERS - len(more))
        changed.spent = [min(CLOSED, spent + cost) for spent, cost in zip(changed.spent, padded, strict=True)]
        changed.delta_spent += int(missing["delta"])

    def _quota(self, made: Entry, body: Any) -> None:
        share = UNLIMITED if body["share"] is None else int(body["share"])
        self._account(made, body["prefix"]).limits[0] = share

    def _window(self, made: Entry, body: Any) -> None:
        self._account(made, None).window_kind = body["kind"]
        if "opens" not in body:
            return
        for name, touched in self._accounts.items():
            if name == dataset_account(str(made.dataset)) or name.startswith(f"quota:{made.dataset}:"):
                touched.spent, touched.delta_spent = [0] * ORDERS, 0

    def _reserve(self, made: Entry, body: Any) -> None:
        assert made.dataset is not None
        assert made.query_id is not None
        if made.query_id in self._holds:
            raise ReplayBroken("a query that was charged before")
        self._account(made, None).charge([int(cost) for cost in body["orders"]], int(body["delta"]))
        self._account(made, made.who).charge([int(body["share"])], 0)
        owner = body.get("owner", made.who)  # before keys had owners, each was its own
        for touched in self._events.both(made.dataset, owner):
            touched.take(counts_open="owner" in body)
        self._holds[made.query_id] = DerivedHold(made.dataset, made.who, body["key"], body["request_hash"], owner)

    def _late(self, made: Entry, body: Any) -> None:
        slow = self._held(made)
        if slow.late:
            raise ReplayBroken("a query that was late before")
        slow.late = 1
        self._events.late(slow.dataset, slow.owner, body)

    def _settle(self, made: Entry, body: Any) -> None:
        done = self._held(made)
        if body["outcome"] not in ("answered", "failed"):
            raise ReplayBroken("an outcome that is none")
        done.state = body["outcome"]
        for touched in self._events.both(done.dataset, done.owner):
            touched.give(failed=done.state == "failed")

    def _held(self, made: Entry) -> DerivedHold:
        assert made.query_id is not None
        found = self._holds[made.query_id]
        if found.state != "held":
            raise ReplayBroken("a query that was settled before")
        return found

    def _safety(self, made: Entry, body: Any) -> None:
        self._events.of(str(made.dataset), None).safety = int(body["safety"])

    def _pause(self, made: Entry, body: Any) -> None:
        self._events.of(str(made.dataset), _whose(body)).paused = 1

    def _resume(self, made: Entry, body: Any) -> None:
        resumed = self._events.of(str(made.dataset), _whose(body))
        resumed.paused, resumed.failures_allowed = 0, int(body["failures_allowed"])

    def _source(self, made: Entry, body: Any) -> None:
        """A claim of files; the first version wrote one hash for a list of them."""
        if "files" in body:
            for file in body["files"]:
                self._file(str(made.dataset), file, private=body["private"])
        elif self._sources.setdefault(body["fingerprint"], str(made.dataset)) != made.dataset:
            raise ReplayBroken("a source under two budgets")

    def _file(self, dataset: str, file: Any, *, private: bool) -> None:
        path, place = file["path"], (file["path"], file["inner"])
        if private:
            if self._owners.setdefault(path, dataset) != dataset:
                raise ReplayBroken("a file under two budgets")
            self._files.setdefault(place, (dataset, file["inode"]))
        if file["content"]:
            self._contents.add((file["content"], path, dataset, int(private)))

    def _note(self, made: Entry, body: Any) -> None:
        """Moves nothing."""


def _whose(body: Any) -> str | None:
    """The person that a pause is about: their owner, or in older entries their key."""
    owner: str | None = body.get("owner") or body["prefix"]
    return owner
