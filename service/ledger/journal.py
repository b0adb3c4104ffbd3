"""The journal: every change of the ledger as an entry, each bound to the one before it by a hash.

Invariant J3: hash(n) = SHA-256 of the canonical JSON of entry n, which holds hash(n-1). Changing,
removing or inserting an entry breaks every hash after it. The head is one row; whoever appends holds
its lock until the commit, so the chain never forks.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from service.ledger.tables import entry, head
from service.store.clock import utc_now
from service.store.rendered import RenderedStatement
from service.store.transaction import Transaction

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the journal. `body` is canonical JSON; amounts in it are decimal strings of
    integers, because many readers of JSON keep only 53 bits of a number."""

    number: int
    at: str
    kind: str
    dataset: str | None
    query_id: str | None
    who: str
    body: str
    previous: str
    hash: str

    def digest(self) -> str:
        return digest(self.number, self.at, self.kind, self.dataset, self.query_id, self.who, self.body, self.previous)

    def as_json(self) -> str:
        """The line that `halftone ledger export` writes."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return canonical_json({**fields, "body": json.loads(self.body)})


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)  # made once: every query writes


def canonical_json(value: object) -> str:
    """JSON with sorted keys, no spaces, ASCII only: equal values have equal bytes."""
    return _ENCODER.encode(value)


def digest(*fields: int | str | None) -> str:
    return hashlib.sha256(canonical_json(fields).encode()).hexdigest()


LOCK_HEAD = RenderedStatement(
    sa.select(head.c.number, head.c.hash, utc_now().label("at")).where(head.c.id == sa.text("1")).with_for_update()
)
INSERT_ENTRY = RenderedStatement(entry.insert())


class Journal:
    """The end of the chain, locked by this transaction."""

    __slots__ = ("_hash", "_tx", "at", "number")

    def __init__(self, tx: Transaction, number: int, last_hash: str, at: str) -> None:
        self._tx = tx
        self.number = number
        self._hash = last_hash
        self.at = at

    @classmethod
    def lock(cls, tx: Transaction) -> "Journal":
        number, last_hash, at = LOCK_HEAD(tx).fetchone()
        return cls(tx, number, last_hash, at)

    def append(
        self, kind: str, body: Body, *, who: str, dataset: str | None = None, query_id: str | None = None
    ) -> int:
        """Write the next entry; a trigger moves the head with it. Its number."""
        text = canonical_json(body)
        fields = (self.number + 1, self.at, kind, dataset, query_id, who, text, self._hash)
        made = digest(*fields)
        names = ("number", "at", "kind", "dataset", "query_id", "who", "body", "previous")
        INSERT_ENTRY(self._tx, **dict(zip(names, fields, strict=True)), hash=made)
        self.number, self._hash = self.number + 1, made
        return self.number


def entries(
    tx: sa.Connection, *, after: int = 0, dataset: str | None = None, limit: int | None = None
) -> Iterator[Entry]:
    """Entries in order, from the one after `after`; streamed, because a journal only grows."""
    chosen = sa.select(entry).where(entry.c.number > after).order_by(entry.c.number).limit(limit)
    if dataset is not None:
        chosen = chosen.where(entry.c.dataset == dataset)
    for row in tx.execute(chosen, execution_options={"yield_per": 1000}):
        yield Entry(*row)
