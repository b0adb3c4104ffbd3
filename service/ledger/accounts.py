"""Accounts: what a dataset's people were promised, and how much of it is left.

A dataset's account carries the guarantee: a vector of Rényi costs (docs/mechanisms.md, "The filter"). A quota rations
one analyst's share of it: a scalar. Quotas do not protect anybody; the dataset's account does.
"""

import json
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, cast

import sqlalchemy as sa

from service.core.amounts import CLOSED, Cost, Terms
from service.core.errors import DatasetUnknown
from service.ledger.allowances import read_allowance
from service.ledger.journal import canonical_json
from service.ledger.tables import NO_ORDER, ORDERS, UNLIMITED, account, promise
from service.ledger.windows import WindowKind, window_id
from service.store.clock import utc_now


@dataclass(frozen=True, slots=True)
class Balance:
    """A dataset's account. Vectors line up with terms.orders, infinity last; pico and atto.

    `spent` is of the current window when the dataset has one.
    """

    dataset: str
    terms: Terms
    epsilon_granted: int
    delta_granted: int
    limits: tuple[int, ...]
    spent: tuple[int, ...]
    delta_limit: int
    delta_spent: int
    failures: int
    failures_allowed: int
    late: int
    safety: int  # times the predicted time: what the promised one is at least
    paused: bool
    window: WindowKind | None
    window_started: str | None

    @property
    def left(self) -> tuple[int, ...]:
        """What is left at every order, never below zero; a query needs room at one of them."""
        return tuple(max(0, limit - spent) for limit, spent in zip(self.limits, self.spent, strict=True))

    def after(self, cost: Cost) -> "Balance":
        """The same account with one more charge."""
        spent = tuple(min(CLOSED, old + new) for old, new in zip(self.spent, cost.orders, strict=True))
        return replace(self, spent=spent, delta_spent=self.delta_spent + cost.delta)


@dataclass(frozen=True, slots=True)
class Quota:
    """One analyst's ration: shares (pico) of the dataset's budget. `limit` None: not rationed."""

    dataset: str
    prefix: str
    spent: int
    limit: int | None


def dataset_account(dataset: str) -> str:
    return f"dataset:{dataset}"


def quota_account(dataset: str, prefix: str) -> str:
    return f"quota:{dataset}:{prefix}"


def terms_to_text(terms: Terms) -> str:
    """Exact: fractions as n/d, integers as decimal strings."""
    return canonical_json(
        {
            "orders": [str(order) for order in terms.orders],
            "weights": [str(weight) for weight in terms.weights],
            "epsilon_ceiling": str(terms.epsilon_ceiling),
            "delta_ceiling": str(terms.delta_ceiling),
            "delta_selection": str(terms.delta_selection),
            "reference": str(terms.reference),
        }
    )


@lru_cache(maxsize=1024)
def terms_from_text(text: str) -> Terms:
    stored = json.loads(text)
    return Terms(
        orders=tuple(Fraction(order) for order in stored["orders"]),
        weights=tuple(Fraction(weight) for weight in stored["weights"]),
        epsilon_ceiling=int(stored["epsilon_ceiling"]),
        delta_ceiling=int(stored["delta_ceiling"]),
        delta_selection=int(stored["delta_selection"]),
        reference=int(stored["reference"]),
    )


def read_balance(tx: sa.Connection, dataset: str) -> Balance:
    row, at = _read(tx, dataset)
    events = read_allowance(tx, dataset)
    terms = terms_from_text(row.terms)
    size = len(terms.orders) + 1
    kind = cast(WindowKind | None, row.window_kind)
    fresh = _window_is_over(kind, row.window_id, at)
    return Balance(
        dataset=dataset,
        terms=terms,
        epsilon_granted=row.epsilon_granted,
        delta_granted=row.delta_granted,
        limits=tuple(getattr(row, f"limit_{i}") for i in range(size)),
        spent=tuple(0 if fresh else getattr(row, f"spent_{i}") for i in range(size)),
        delta_limit=row.delta_limit,
        delta_spent=0 if fresh else row.delta_spent,
        failures=events.failures,
        failures_allowed=events.failures_allowed,
        late=events.late,
        safety=events.safety,
        paused=events.paused,
        window=kind,
        window_started=row.window_id if kind is None or not fresh else window_id(kind, at),
    )


def read_quota(tx: sa.Connection, dataset: str, prefix: str) -> Quota:
    """An analyst who was never rationed and never asked has an empty quota without a limit."""
    parent, at = _read(tx, dataset)
    row = tx.execute(sa.select(account).where(account.c.id == quota_account(dataset, prefix))).one_or_none()
    if row is None:
        return Quota(dataset, prefix, 0, None)
    fresh = _window_is_over(parent.window_kind, parent.window_id, at)
    return Quota(
        dataset=dataset,
        prefix=prefix,
        spent=0 if fresh else row.spent_0,
        limit=None if row.limit_0 == UNLIMITED else row.limit_0,
    )


_BOTH = (
    sa.select(account, promise, utc_now().label("at"))
    .select_from(account.join(promise))
    .where(account.c.id == sa.bindparam("wanted"))
)


def _read(tx: sa.Connection, dataset: str) -> tuple[Any, str]:
    """The dataset's account and promise, and the database's now."""
    row = tx.execute(_BOTH, {"wanted": dataset_account(dataset)}).one_or_none()
    if row is None:
        raise DatasetUnknown(f"there is no budget for a dataset named {dataset!r}", {"dataset": dataset})
    return row, row.at


def _window_is_over(kind: WindowKind | None, started: str | None, at: str) -> bool:
    return kind is not None and window_id(kind, at) > (started or "")


def new_account(account_id: str, dataset: str, **values: int) -> dict[str, object]:
    """A row with every number in place: nothing spent, no order but those in `values`."""
    row: dict[str, object] = {"id": account_id, "dataset": dataset, "window_kind": None, "window_id": None}
    row |= {f"spent_{i}": 0 for i in range(ORDERS)} | {f"limit_{i}": NO_ORDER for i in range(ORDERS)}
    row |= dict.fromkeys(("delta_spent", "delta_limit"), 0)
    return row | values


def new_quota(dataset: str, prefix: str, limit: int) -> dict[str, object]:
    name = quota_account(dataset, prefix)
    return new_account(name, dataset, orders=1, limit_0=limit)


def limit_values(limits: tuple[int, ...]) -> dict[str, int]:
    return {f"limit_{i}": limits[i] if i < len(limits) else NO_ORDER for i in range(ORDERS)}
