"""The journal's entries, one model per kind, and what its verification finds.

Amounts in entries are whole numbers as strings: many readers of JSON keep only 53 bits of a number.
"""

from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from service.api.responses.answers import BoundsOfCores
from service.api.responses.values import Atto, Digest, Hash, KeyPrefix, Pico, QueryId
from service.core.request import Role

Why = Annotated[str, Field(description="The reason that was given.")]
Declaration = Annotated[dict[str, Any], Field(description="A declaration, as it was stored then.")]


class Granted(BaseModel):
    """How much of the ceiling may be used, and the limit at every order."""

    epsilon: Pico
    delta: Atto
    limits: list[Pico]
    delta_limit: Atto
    why: Why


class Promised(Granted):
    """The grant, and the promise that it stays within."""

    terms: Annotated[str, Field(description="Orders, weights and ceilings, as canonical JSON.")]


class QuotaBody(BaseModel):
    """One key's ration of the budget."""

    prefix: KeyPrefix
    share: Annotated[Pico | None, Field(description="null: the ration is lifted.")]
    why: Why


class WindowOpened(BaseModel):
    """A new period has begun; what was spent in the last one no longer counts."""

    opens: date
    kind: Literal["day", "week", "month"]


class WindowSet(BaseModel):
    """An admin chose the period; null: one budget for all time."""

    kind: Literal["day", "week", "month"] | None
    opens: Annotated[date | None, Field(alias="from")]
    why: Why


class ChargeReceipt(BaseModel):
    """What the charge was for, without a value."""

    plan_digest: Digest
    mechanisms: list[str]
    bounds: BoundsOfCores


class Reserved(BaseModel):
    """A charge, before the query ran: the cost at every order, infinity last."""

    orders: list[Pico]
    delta: Atto
    share: Pico
    key: Annotated[str | None, Field(description="The Idempotency-Key.")]
    request_hash: str
    receipt: ChargeReceipt | None


class Settled(BaseModel):
    """How the query ended. Nothing is given back, whatever the outcome."""

    outcome: Literal["answered", "failed"]
    why: str | None = None


class Paused(BaseModel):
    """No more queries until an admin resumes them."""

    prefix: Annotated[KeyPrefix | None, Field(description="null: the whole dataset.")]
    why: Why


class Resumed(BaseModel):
    """Queries go on, with a fresh allowance of failures."""

    prefix: Annotated[KeyPrefix | None, Field(description="null: the whole dataset.")]
    why: Why
    failures_allowed: Annotated[str, Field(pattern=r"^\d+$")]


class SourceClaimed(BaseModel):
    """A source belongs to this dataset's budget for ever."""

    fingerprint: Hash
    why: Why


class WhatWasDone(BaseModel):
    """What an act changed. `before` and `after` are declarations."""

    subject: str
    before: Declaration | None = None
    after: Declaration | None = None
    import_id: Annotated[str | None, Field(alias="import")] = None
    name: str | None = None
    role: Role | None = None
    datasets: list[str] | None = None


class Noted(BaseModel):
    """An act that moves no budget."""

    act: Literal[
        "dataset.put", "dataset.delete", "table.put", "table.delete", "table.inspect", "key.create", "key.revoke"
    ]
    what: WhatWasDone
    why: Why


class JournalEntry(BaseModel):
    """One line of the journal; its hash covers the line before it."""

    number: int
    at: datetime
    dataset: str | None
    query_id: QueryId | None
    who: Annotated[str, Field(description="A key's prefix, `command line` or `service`.")]
    previous: Hash
    hash: Hash


class OpenEntry(JournalEntry):
    kind: Literal["open"]
    body: Promised


class GrantEntry(JournalEntry):
    kind: Literal["grant"]
    body: Granted


class CeilingEntry(JournalEntry):
    kind: Literal["ceiling"]
    body: Promised


class QuotaEntry(JournalEntry):
    kind: Literal["quota"]
    body: QuotaBody


class WindowEntry(JournalEntry):
    kind: Literal["window"]
    body: WindowSet | WindowOpened


class ReserveEntry(JournalEntry):
    kind: Literal["reserve"]
    body: Reserved


class SettleEntry(JournalEntry):
    kind: Literal["settle"]
    body: Settled


class PauseEntry(JournalEntry):
    kind: Literal["pause"]
    body: Paused


class ResumeEntry(JournalEntry):
    kind: Literal["resume"]
    body: Resumed


class SourceEntry(JournalEntry):
    kind: Literal["source"]
    body: SourceClaimed


class NoteEntry(JournalEntry):
    kind: Literal["note"]
    body: Noted


AdminEntry = (
    OpenEntry
    | GrantEntry
    | CeilingEntry
    | QuotaEntry
    | WindowEntry
    | PauseEntry
    | ResumeEntry
    | SourceEntry
    | NoteEntry
)
JournalPage = list[Annotated[AdminEntry | ReserveEntry | SettleEntry, Field(discriminator="kind")]]
AuditPage = list[Annotated[AdminEntry, Field(discriminator="kind")]]


class LedgerVerdict(BaseModel):
    """What re-deriving the chain and every balance found."""

    holds: bool
    entries: int
    head: Annotated[Hash, Field(description="The hash of the last entry: keep it elsewhere to prove the journal.")]
    problem: str | None
    broken_entry: Annotated[int | None, Field(description="The first entry that does not hold, if one does not.")]
