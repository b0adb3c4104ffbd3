"""Allowances: how many queries may fail before an admin has to look, and what has happened so far.

A failure after the charge, and an answer that comes late, may be facts about one person, without noise. So both
are *events*: counted here, per dataset and per person who asks (all keys of one owner together), in the store that
all processes share. Invariant W2: failures and open holds together never exceed the allowance, so it holds even if
everything in flight fails. A hold of a process that died is open until recovery settles it.

Late answers do not pause: load that others cause must not be able to. Each doubles the dataset's safety factor
instead, which is public and makes every later promise of time longer (docs/budgets.md).
"""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from service.core.errors import DatasetPaused, ServiceError, TooBusy
from service.ledger.tables import allowance
from service.store.rendered import RenderedStatement
from service.store.transaction import Transaction

# How many queries may fail after their charge before an admin has to look.
DATASET_FAILURES_ALLOWED = 10
PERSON_FAILURES_ALLOWED = 3

# The promised time of a query is at least this many times the predicted one; late answers double it.
FIRST_SAFETY = 4
GREATEST_SAFETY = 2**20

ASK_TO_RESUME = (
    "ask an admin, who can look into it and resume: halftone budget resume DATASET [--analyst OWNER] --reason …"
)
NO_ROOM = "as many queries run as may still fail before an admin has to look; ask again"


class NoRoomYet(TooBusy):
    """The allowance is taken by queries that still run: nothing was charged, and a moment later there may be room."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """Events of a dataset (`owner` None), or of one person who asks it."""

    dataset: str
    owner: str | None
    failures: int
    failures_allowed: int
    open_holds: int
    late: int
    safety: int  # the dataset's; a person has none of their own
    stopped: bool  # by an admin

    @property
    def paused(self) -> bool:
        return self.stopped or self.failures >= self.failures_allowed

    @property
    def has_room(self) -> bool:
        """Whether one more query could fail and the allowance still hold."""
        return not self.stopped and self.failures + self.open_holds < self.failures_allowed


def dataset_allowance(dataset: str) -> str:
    return f"dataset:{dataset}"


def person_allowance(dataset: str, owner: str) -> str:
    return f"person:{dataset}:{owner}"


def new_allowance(dataset: str, owner: str | None) -> dict[str, Any]:
    allowed = DATASET_FAILURES_ALLOWED if owner is None else PERSON_FAILURES_ALLOWED
    row = dict.fromkeys(("failures", "open_holds", "late", "paused"), 0)
    name = dataset_allowance(dataset) if owner is None else person_allowance(dataset, owner)
    facts = {"id": name, "dataset": dataset, "owner": owner}
    return row | facts | {"failures_allowed": allowed, "safety": FIRST_SAFETY}


_BOTH = "id IN (:dataset_id, :person_id)"

TAKE_PLACES = RenderedStatement(
    sa.text(
        f"UPDATE allowance SET open_holds = open_holds + 1 WHERE {_BOTH}"
        " AND paused = 0 AND failures + open_holds < failures_allowed"
    )
)
GIVE_PLACES = RenderedStatement(
    sa.text(f"UPDATE allowance SET open_holds = open_holds - 1, failures = failures + :failed WHERE {_BOTH}")
)


def take_places(tx: Transaction, dataset: str, owner: str) -> bool:
    """One more open hold of the dataset and of the person, if both have room. False: the caller must roll back."""
    moved = TAKE_PLACES(tx, **_named(dataset, owner)).rowcount
    if moved == 1 and not _is_there(tx, dataset, owner):  # a person's first query opens their allowance
        tx.execute(allowance.insert().values(new_allowance(dataset, owner) | {"open_holds": 1}))
        return True
    return bool(moved == 2)


def give_places(tx: Transaction, dataset: str, owner: str, *, failed: bool) -> None:
    """The hold is settled: it can not fail any more, or it has."""
    moved = GIVE_PLACES(tx, **_named(dataset, owner), failed=int(failed)).rowcount
    assert moved == 2, "a hold without its allowances"


def count_late(tx: Transaction, dataset: str, owner: str) -> int:
    """One more late answer of both; the dataset's new safety factor."""
    both = [dataset_allowance(dataset), person_allowance(dataset, owner)]
    tx.execute(allowance.update().where(allowance.c.id.in_(both)).values(late=allowance.c.late + 1))
    doubled = sa.case((allowance.c.safety * 2 > GREATEST_SAFETY, GREATEST_SAFETY), else_=allowance.c.safety * 2)
    chosen = allowance.update().where(allowance.c.id == dataset_allowance(dataset))
    return int(tx.execute(chosen.values(safety=doubled).returning(allowance.c.safety)).scalar_one())


def refusal(tx: sa.Connection, dataset: str, owner: str) -> ServiceError:
    """Why there was no room: paused, which waiting does not change, or too many in flight, which it does."""
    return paused_refusal(tx, dataset, owner) or NoRoomYet(NO_ROOM, {"retry_after_s": 2})


def paused_refusal(tx: sa.Connection, dataset: str, owner: str | None) -> DatasetPaused | None:
    """The dataset's pause goes before the person's own."""
    facts: dict[str, str | int] = {"dataset": dataset, "remedy": ASK_TO_RESUME}
    if read_allowance(tx, dataset).paused:
        return DatasetPaused(f"queries to {dataset!r} are paused until an admin looks", facts)
    if owner is not None and read_allowance(tx, dataset, owner).paused:
        return DatasetPaused(f"your queries to {dataset!r} are paused until an admin looks", facts)
    return None


def read_allowance(tx: sa.Connection, dataset: str, owner: str | None = None) -> Allowance:
    """Somebody who never asked has the whole of theirs."""
    name = dataset_allowance(dataset) if owner is None else person_allowance(dataset, owner)
    row = tx.execute(sa.select(allowance).where(allowance.c.id == name)).mappings().one_or_none()
    return _read(row if row is not None else new_allowance(dataset, owner))


def seems_to_have_room(tx: sa.Connection, dataset: str, owner: str) -> bool:
    """Whether a reserve is worth trying now: there is room for one more, or a pause that it will name."""
    both = [dataset_allowance(dataset), person_allowance(dataset, owner)]
    rows = tx.execute(sa.select(allowance).where(allowance.c.id.in_(both))).mappings().all()
    return all(found.has_room or found.paused for found in map(_read, rows))


def read_events(tx: sa.Connection, dataset: str) -> list[Allowance]:
    """The dataset's own first, then every person's who asked it, by name."""
    chosen = sa.select(allowance).where(allowance.c.dataset == dataset)
    rows = tx.execute(chosen.order_by(allowance.c.owner.is_not(None), allowance.c.owner)).mappings()
    return [_read(row) for row in rows]


def ensure_person(tx: Transaction, dataset: str, owner: str) -> None:
    if not _is_there(tx, dataset, owner):
        tx.execute(allowance.insert().values(new_allowance(dataset, owner)))


def _named(dataset: str, owner: str) -> dict[str, str]:
    return {"dataset_id": dataset_allowance(dataset), "person_id": person_allowance(dataset, owner)}


def _is_there(tx: sa.Connection, dataset: str, owner: str) -> bool:
    known = sa.select(allowance.c.id).where(allowance.c.id == person_allowance(dataset, owner))
    return tx.execute(known).one_or_none() is not None


def _read(row: Any) -> Allowance:
    names = ("dataset", "owner", "failures", "failures_allowed", "open_holds", "late", "safety")
    return Allowance(**{name: row[name] for name in names}, stopped=bool(row["paused"]))
