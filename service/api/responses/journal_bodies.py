"""What entries of the journal say, one model per kind of thing that happened.

Amounts are whole numbers as strings: many readers of JSON keep only 53 bits of a number.
"""

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from service.api.responses.admin import ChangedDefault
from service.api.responses.answers import BoundsOfCores
from service.api.responses.values import Atto, Digest, Hash, KeyPrefix, Pico
from service.core.request import Role

Why = Annotated[str, Field(description="The reason that was given.")]
Declaration = Annotated[dict[str, Any], Field(description="A declaration, as it was stored then.")]


Count = Annotated[str, Field(pattern=r"^\d+$")]


class ForgottenEvents(BaseModel):
    """What happened to one person's queries without the restored ledger knowing."""

    failures: Count
    late: Count


class Forgotten(BaseModel):
    """What a restored ledger may have forgotten: order by order, infinity last; and events."""

    orders: list[Pico]
    delta: Atto
    failures: Count
    late: Count | None = None
    safety: Annotated[Count | None, Field(description="The safety factor from then on.")] = None
    persons: dict[str, ForgottenEvents] | None = None


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


class GrantedAgain(Granted):
    """The grant after a restore, with what counts as spent since."""

    missing: Forgotten


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
    seconds: Annotated[float | None, Field(description="The promised time.")] = None


class ProfileReceipt(BaseModel):
    """The charge was for the profile of a table."""

    profile: Annotated[str, Field(description="The table.")]
    mechanisms: list[str]


class Reserved(BaseModel):
    """A charge, before the query ran: the cost at every order, infinity last."""

    orders: list[Pico]
    delta: Atto
    share: Pico
    key: Annotated[str | None, Field(description="The Idempotency-Key.")]
    request_hash: str
    receipt: ChargeReceipt | ProfileReceipt | None
    owner: Annotated[str | None, Field(description="The person behind the key; entries of before have none.")] = None


class CameLate(BaseModel):
    """A query was not done when it was promised; promised times of the dataset double."""

    safety: Annotated[str, Field(pattern=r"^\d+$", description="The safety factor from now on.")]


class SafetySet(CameLate):
    """Promised times start again: what they are predicted from is new."""

    why: Why


class Settled(BaseModel):
    """How the query ended. Nothing is given back, whatever the outcome."""

    outcome: Literal["answered", "failed"]
    why: str | None = None


class Paused(BaseModel):
    """No more queries until an admin resumes them."""

    prefix: Annotated[KeyPrefix | None, Field(description="In older entries, whose; null: see owner.")]
    owner: Annotated[str | None, Field(description="null, and no prefix: the whole dataset.")] = None
    why: Why


class Resumed(BaseModel):
    """Queries go on, with a fresh allowance of failures."""

    prefix: Annotated[KeyPrefix | None, Field(description="In older entries, whose; null: see owner.")]
    owner: Annotated[str | None, Field(description="null, and no prefix: the whole dataset.")] = None
    why: Why
    failures_allowed: Annotated[str, Field(pattern=r"^\d+$")]


class ListClaimed(BaseModel):
    """Files belong to this dataset's budget for ever: a hash of the list of their paths, as it was once written."""

    fingerprint: Hash
    why: Why


class ClaimedSource(BaseModel):
    """A real file: where it lies, which table of a DuckDB file is meant, "device:inode", and a hash of its content."""

    path: str
    inner: Annotated[str, Field(description="Empty for files that hold one table.")]
    inode: Annotated[str, Field(description="Empty: the file was gone.")]
    content: Annotated[str, Field(description="SHA-256; empty: not read.")]


class FilesClaimed(BaseModel):
    """Private files belong to this dataset's budget for ever; of public ones it is kept what they held."""

    private: bool
    table: str
    files: list[ClaimedSource]
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
    changed: Annotated[list[ChangedDefault] | None, Field(description="Default bounds that were accepted.")] = None
    owner: str | None = None


class Noted(BaseModel):
    """An act that moves no budget."""

    act: Literal[
        "dataset.put",
        "dataset.delete",
        "table.put",
        "table.delete",
        "table.inspect",
        "table.profile",
        "key.create",
        "key.revoke",
        "source.carry",
        "ledger.accept-restore",
        "defaults.refit",
    ]
    what: WhatWasDone
    why: Why
