"""The log of what admins did: appended in the same transaction as the act, each entry hashing the one before.

Invariant C1: no admin act without its entry. An act and its entry commit together or not at all, and
an entry that is changed or taken out breaks every hash after it.
"""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from service.catalog.tables import audit, audit_head

FIRST = "0" * 64


@dataclass(frozen=True, slots=True)
class Act:
    """Who did what to what, and why. `change` is JSON-able and never holds a secret."""

    actor: str
    act: str
    subject: str
    change: Mapping[str, Any]
    reason: str = ""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def link(previous: str, entry: Mapping[str, Any]) -> str:
    """The hash of one entry: over the hash before it and over every field."""
    fields = [entry[name] for name in ("number", "at_ms", "actor", "act", "subject", "change", "reason")]
    return hashlib.sha256(json.dumps([previous, *fields], ensure_ascii=True).encode()).hexdigest()


def append(tx: sa.Connection, act: Act) -> int:
    head = tx.execute(sa.select(audit_head).where(audit_head.c.id == 1).with_for_update()).mappings().first()
    if head is None:
        tx.execute(audit_head.insert().values(id=1, number=0, hash=FIRST))
        head = {"number": 0, "hash": FIRST}  # type: ignore[assignment]
    assert head is not None
    entry = {
        "number": int(head["number"]) + 1,
        "at_ms": now_ms(),
        "actor": act.actor,
        "act": act.act,
        "subject": act.subject,
        "change": json.dumps(act.change, sort_keys=True, default=str),
        "reason": act.reason,
    }
    entry["hash"] = link(str(head["hash"]), entry)
    tx.execute(audit.insert().values(**entry))
    tx.execute(audit_head.update().where(audit_head.c.id == 1).values(number=entry["number"], hash=entry["hash"]))
    return int(str(entry["number"]))


def read(connection: sa.Connection, *, after: int, limit: int) -> list[dict[str, Any]]:
    rows = connection.execute(
        sa.select(audit).where(audit.c.number > after).order_by(audit.c.number).limit(limit)
    ).mappings()
    return [{**row, "change": json.loads(row["change"])} for row in rows]


def broken_at(connection: sa.Connection) -> int | None:
    """The first entry that does not follow from the one before, or None when the whole chain holds."""
    previous, number = FIRST, 0
    for row in connection.execute(sa.select(audit).order_by(audit.c.number)).mappings():
        number += 1
        if row["number"] != number or link(previous, dict(row)) != row["hash"]:
            return number
        previous = row["hash"]
    head = connection.execute(sa.select(audit_head).where(audit_head.c.id == 1)).mappings().first()
    if head is not None and (head["number"] != number or head["hash"] != previous):
        return number + 1
    return None
