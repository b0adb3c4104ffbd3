"""What a mark holds: an entry of the journal, and every dataset's account and events as they were right after it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from service.ledger.charges import Charges, charges_after, nothing_charged
from service.ledger.tables import account, allowance, head, promise


@dataclass(frozen=True, slots=True)
class MarkedAccount:
    """A dataset's account as it was at a mark: what was promised, granted and spent. Integers as in the account.

    `spent` is of the window that ran then. `charged` is all that was ever charged, which no window resets; None: the
    mark was written before it was kept. `persons`: failures and late answers of each person who had any.
    """

    terms: str
    epsilon: int
    delta: int
    limits: tuple[int, ...]
    delta_limit: int
    spent: tuple[int, ...]
    delta_spent: int
    failures: int
    window: str | None
    kind: str | None = None
    charged: Charges | None = None
    late: int = 0
    safety: int = 0
    persons: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Mark:
    """An entry of the journal, and every dataset's account right after it."""

    number: int
    hash: str
    accounts: dict[str, MarkedAccount]


def read_mark(tx: sa.Connection, before: Mark | None) -> Mark:
    """The newest entry and every dataset's account, at one moment. `before` is an earlier mark of the same journal:
    what was charged is added up from there, or else from the first entry."""
    number, last = tx.execute(sa.select(head.c.number, head.c.hash)).one()
    charged, persons = _charged(tx, before), _persons(tx)
    of_dataset = (allowance.c.dataset == account.c.dataset) & allowance.c.owner.is_(None)
    joined = account.join(promise).join(allowance, of_dataset)
    events = [allowance.c[name] for name in ("failures", "late", "safety")]
    accounts = {
        row.dataset: _marked(row, charged.get(row.dataset, nothing_charged(row.orders)), persons.get(row.dataset, {}))
        for row in tx.execute(sa.select(account, promise, *events).select_from(joined))
    }
    return Mark(int(number), str(last), accounts)


def mark_from(raw: Any) -> Mark:
    """A mark as the file has it."""
    return Mark(raw["number"], raw["hash"], {name: _account_from(each) for name, each in raw["accounts"].items()})


def _account_from(raw: Any) -> MarkedAccount:
    charged = raw.get("charged")
    read = {
        "limits": tuple(raw["limits"]),
        "spent": tuple(raw["spent"]),
        "charged": None if charged is None else Charges(tuple(charged["orders"]), charged["delta"]),
        "persons": {name: (counts[0], counts[1]) for name, counts in raw.get("persons", {}).items()},
    }
    return MarkedAccount(**{**raw, **read})


def _charged(tx: sa.Connection, before: Mark | None) -> dict[str, Charges]:
    """All that was ever charged, by dataset."""
    known = {} if before is None else {name: marked.charged for name, marked in before.accounts.items()}
    found = {name: charged for name, charged in known.items() if charged is not None}
    if before is None or len(found) < len(known):
        return charges_after(tx, 0)
    for name, more in charges_after(tx, before.number).items():
        found[name] = found[name].plus(more) if name in found else more
    return found


def _persons(tx: sa.Connection) -> dict[str, dict[str, tuple[int, int]]]:
    found: dict[str, dict[str, tuple[int, int]]] = {}
    happened = allowance.c.owner.is_not(None) & (allowance.c.failures + allowance.c.late > 0)
    for row in tx.execute(sa.select(allowance).where(happened)):
        found.setdefault(row.dataset, {})[row.owner] = (row.failures, row.late)
    return found


def _marked(row: Any, charged: Charges, persons: Mapping[str, tuple[int, int]]) -> MarkedAccount:
    size = int(row.orders)
    return MarkedAccount(
        terms=row.terms,
        epsilon=row.epsilon_granted,
        delta=row.delta_granted,
        limits=tuple(getattr(row, f"limit_{i}") for i in range(size)),
        delta_limit=row.delta_limit,
        spent=tuple(getattr(row, f"spent_{i}") for i in range(size)),
        delta_spent=row.delta_spent,
        failures=row.failures,
        window=row.window_id,
        kind=row.window_kind,
        charged=charged,
        late=row.late,
        safety=row.safety,
        persons=persons,
    )
