"""The state of the ledger, re-derived from the journal with plain Python integers.

Written apart from the statements that keep the balances, on purpose: two ways to the same numbers.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from service.core.amounts import CLOSED
from service.ledger.accounts import (
    ANALYST_FAILURES_ALLOWED,
    DATASET_FAILURES_ALLOWED,
    dataset_account,
    quota_account,
)
from service.ledger.journal import Entry
from service.ledger.tables import NO_ORDER, ORDERS, UNLIMITED, account, hold, promise, source


class ReplayBroken(Exception):
    """An entry that could not have been written by the ledger."""


@dataclass(slots=True)
class Derived:
    """One account as the journal explains it."""

    limits: list[int]
    spent: list[int] = field(default_factory=lambda: [0] * ORDERS)
    delta_limit: int = 0
    delta_spent: int = 0
    failures: int = 0
    failures_allowed: int = ANALYST_FAILURES_ALLOWED
    paused: int = 0
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
        if self.paused or self.failures >= self.failures_allowed:
            raise ReplayBroken("a charge while queries were paused")
        if not any(spent <= limit for spent, limit in zip(self.spent, self.limits, strict=True)):
            raise ReplayBroken("a charge beyond the limit")
        if self.delta_spent > self.delta_limit:
            raise ReplayBroken("a charge beyond the limit of delta")


class Replay:
    """Applies entries one by one; then compares itself with the stored accounts and holds."""

    def __init__(self) -> None:
        self._accounts: dict[str, Derived] = {}
        self._holds: dict[str, tuple[str, str, str | None, str, str]] = {}
        self._sources: dict[str, str] = {}

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
        columns = (hold.c.dataset, hold.c.principal, hold.c.key, hold.c.request_hash, hold.c.state)
        found = {row[0]: tuple(row[1:]) for row in tx.execute(sa.select(hold.c.query_id, *columns))}
        for query_id in sorted(found.keys() | self._holds.keys()):
            if found.get(query_id) != self._holds.get(query_id):
                return f"the hold of query {query_id} differs from its entries"
        if dict(tx.execute(sa.select(source.c.fingerprint, source.c.dataset)).all()) != self._sources:
            return "the sources differ from their entries"
        return None

    def _wrong_fields(self, name: str, row: Any) -> list[str]:
        derived = self._accounts[name]
        names = ("delta_limit", "delta_spent", "failures", "failures_allowed", "paused", "orders", "window_kind")
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
        opened = Derived([], failures_allowed=DATASET_FAILURES_ALLOWED, orders=len(body["limits"]))
        if self._accounts.setdefault(dataset_account(made.dataset), opened) is not opened:
            raise ReplayBroken("a second first budget")
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
        self._holds[made.query_id] = (made.dataset, made.who, body["key"], body["request_hash"], "held")

    def _settle(self, made: Entry, body: Any) -> None:
        assert made.query_id is not None
        dataset, principal, key, request_hash, state = self._holds[made.query_id]
        if state != "held" or body["outcome"] not in ("answered", "failed"):
            raise ReplayBroken("a query that was settled before")
        self._holds[made.query_id] = (dataset, principal, key, request_hash, body["outcome"])
        if body["outcome"] == "failed":
            for touched in (self._account(made, None), self._account(made, principal)):
                touched.failures += 1

    def _pause(self, made: Entry, body: Any) -> None:
        self._account(made, body["prefix"]).paused = 1

    def _resume(self, made: Entry, body: Any) -> None:
        resumed = self._account(made, body["prefix"])
        resumed.paused, resumed.failures_allowed = 0, int(body["failures_allowed"])

    def _source(self, made: Entry, body: Any) -> None:
        if self._sources.setdefault(body["fingerprint"], str(made.dataset)) != made.dataset:
            raise ReplayBroken("a source under two budgets")

    def _note(self, made: Entry, body: Any) -> None:
        """Moves nothing."""
