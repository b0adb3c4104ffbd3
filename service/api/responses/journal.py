"""The journal's entries, one model per kind, and what its verification finds."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from service.api.responses.journal_bodies import (
    CameLate,
    FilesClaimed,
    Granted,
    GrantedAgain,
    ListClaimed,
    Noted,
    Paused,
    Promised,
    QuotaBody,
    Reserved,
    Resumed,
    SafetySet,
    Settled,
    WindowOpened,
    WindowSet,
)
from service.api.responses.values import Hash, QueryId


class JournalEntry(BaseModel):
    """One line of the journal; its hash covers the line before it."""

    number: int
    at: datetime
    dataset: str | None
    query_id: QueryId | None
    who: Annotated[str, Field(description="A key's prefix, `command line`, `service`, or `import` for a profile.")]
    previous: Hash
    hash: Hash


class OpenEntry(JournalEntry):
    kind: Literal["open"]
    body: Promised


class GrantEntry(JournalEntry):
    kind: Literal["grant"]
    body: Granted | GrantedAgain


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


class LateEntry(JournalEntry):
    kind: Literal["late"]
    body: CameLate


class SafetyEntry(JournalEntry):
    kind: Literal["safety"]
    body: SafetySet


class PauseEntry(JournalEntry):
    kind: Literal["pause"]
    body: Paused


class ResumeEntry(JournalEntry):
    kind: Literal["resume"]
    body: Resumed


class SourceEntry(JournalEntry):
    kind: Literal["source"]
    body: FilesClaimed | ListClaimed


class NoteEntry(JournalEntry):
    kind: Literal["note"]
    body: Noted


AdminEntry = (
    OpenEntry
    | GrantEntry
    | CeilingEntry
    | QuotaEntry
    | WindowEntry
    | SafetyEntry
    | PauseEntry
    | ResumeEntry
    | SourceEntry
    | NoteEntry
)
JournalPage = list[Annotated[AdminEntry | ReserveEntry | LateEntry | SettleEntry, Field(discriminator="kind")]]
AuditPage = list[Annotated[AdminEntry, Field(discriminator="kind")]]


class LedgerVerdict(BaseModel):
    """What re-deriving the chain and every balance found."""

    holds: bool
    entries: int
    head: Annotated[Hash, Field(description="The hash of the last entry: keep it elsewhere to prove the journal.")]
    problem: str | None
    broken_entry: Annotated[int | None, Field(description="The first entry that does not hold, if one does not.")]
    restored: Annotated[str | None, Field(description="Why nothing is charged: the ledger is older than it was.")]


class RestoreAccepted(BaseModel):
    """The ledger counts as it is; what it may have forgotten was charged to these datasets."""

    datasets: list[str]
