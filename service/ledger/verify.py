"""Verify and export: the journal alone must explain every balance.

Whoever changes an entry breaks the chain from there on; whoever changes a balance breaks the sum;
whoever cuts the journal's end leaves the head (or a head that was kept elsewhere) dangling.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import sqlalchemy as sa

from service.ledger.journal import Entry, canonical_json, entries
from service.ledger.rederive import Replay
from service.ledger.rederive_events import ReplayBroken
from service.ledger.tables import FIRST_HASH, head

EXPORT_FORMAT = "halftone-ledger/1"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What verification found. `broken_entry` is the first entry that does not hold, when it is an
    entry and not a balance that is wrong; `problem` says what."""

    entries: int
    head: str
    problem: str | None = None
    broken_entry: int | None = None

    @property
    def holds(self) -> bool:
        return self.problem is None


def verify(tx: sa.Connection, known_heads: tuple[str, ...] = ()) -> Verdict:
    """Walk the chain from the first entry, re-deriving every account and hold, and compare."""
    replay, last, count = Replay(), FIRST_HASH, 0
    missing = set(known_heads) - {FIRST_HASH}
    for made in entries(tx):
        problem = _chain_problem(made, count, last)
        if problem is None:
            try:
                replay.apply(made)
            except (ReplayBroken, AssertionError, ValueError, KeyError, TypeError) as error:
                problem = f"it does not follow from the entries before it: {error}"
        if problem is not None:
            return Verdict(count, last, f"entry {count + 1}: {problem}", count + 1)
        count, last = made.number, made.hash
        missing.discard(last)
    number, stored = tx.execute(sa.select(head.c.number, head.c.hash)).one()
    if (number, stored) != (count, last):
        return Verdict(count, last, f"the journal ends at entry {count}, its head says {number}", count + 1)
    if missing:
        return Verdict(count, last, f"no entry has the hash {min(missing)}: the journal was rewritten or cut")
    return Verdict(count, last, replay.difference(tx))


def _chain_problem(made: Entry, count: int, last: str) -> str | None:
    if made.number != count + 1:
        return f"it is missing; the next one is {made.number}"
    if made.previous != last:
        return "it does not name the hash of the entry before it"
    if made.hash != made.digest():
        return "its hash does not fit its contents"
    return None


def export(tx: sa.Connection) -> Iterator[str]:
    """The journal as JSON lines. The last line holds the head: keep it, and `verify` can later show
    that nothing up to it was changed. docs/budgets.md says how to check the file without Halftone."""
    last, count = FIRST_HASH, 0
    for made in entries(tx):
        yield made.as_json()
        last, count = made.hash, made.number
    yield canonical_json({"format": EXPORT_FORMAT, "entries": count, "head": last})
