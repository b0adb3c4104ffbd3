"""Imports, inspections, quotas and keys: what admins get."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from service.api.responses.values import Cell, KeyPrefix
from service.core.request import Role

ImportId = Annotated[str, Field(description="Names an import.", examples=["i_01JC3M5W8Z6V7T9K2N4Q0R1S3X"])]

Owner = Annotated[str, Field(description="The person behind a key; a key without one is its own, by its prefix.")]


class FittedDefault(BaseModel):
    """Default bounds that fit a profile."""

    rows_per_unit: int
    groups_per_unit: int


class ChangedDefault(BaseModel):
    """Default bounds of questions to one table, or a join of it, in so many groups."""

    table: str
    times: Annotated[int, Field(description="How many public rows one of its rows may meet.")]
    joined: Annotated[list[str], Field(description="Private tables that it is joined with.")]
    groups: Annotated[int | None, Field(description="1 without GROUP BY; null: the keys are declared nowhere.")]
    before: Annotated[FittedDefault, Field(description="As they were first used.")]
    after: Annotated[FittedDefault | None, Field(description="By the profile of today; null: it says nothing.")]


class KeptDefault(ChangedDefault):
    """The same before anything is accepted."""

    kept_at: datetime


class TableDependents(BaseModel):
    """What an import of a table would make payable again."""

    tables: Annotated[
        list[str], Field(description="What it builds anew: the table, and those that reach their unit through it.")
    ]
    answers: Annotated[int, Field(description="Paid queries that read them and can be repeated for nothing today.")]
    panels: Annotated[list[str], Field(description="Panels whose answer reads them, if only in their outer SQL.")]


class ImportStarted(BaseModel):
    """The import runs; the old version serves until it is done."""

    import_id: Annotated[ImportId, Field(alias="import")]
    state: Literal["running"]


class Import(BaseModel):
    """How far an import is. `detail` holds warnings, or why it failed."""

    id: ImportId
    dataset: str
    table: str
    state: Literal["running", "done", "failed"]
    percent: Annotated[int, Field(ge=0, le=100)]
    detail: str
    started_at: datetime
    finished_at: datetime | None


class SuggestedColumn(BaseModel):
    """One column as the file has it; `low` and `high` are its smallest and largest value as text."""

    source_name: str
    type: Annotated[str, Field(description="The type to declare.")]
    null_share: Annotated[float, Field(description="The part of rows without a value.")]
    unique: bool
    unit_candidate: Annotated[bool, Field(description="It looks like a column that names people.")]
    low: str | None
    high: str | None
    domain: Annotated[list[Cell] | None, Field(description="All values, where there are few.")]
    file_type: str


class InspectedFile(BaseModel):
    """What a file seems to hold, from the data, for an admin's eyes; nothing is declared by it."""

    table: str
    rows: int
    complete: Annotated[bool, Field(description="false: only the first rows were looked at.")]
    columns: list[SuggestedColumn]


class QuotaSet(BaseModel):
    """A key's ration from now on."""

    dataset: str
    prefix: KeyPrefix
    share: Annotated[str | None, Field(description="A part of the budget, as it was given; null: not rationed.")]


class NewSecret(BaseModel):
    """A new key. `key` is the secret: it is here and nowhere else."""

    prefix: KeyPrefix
    key: Annotated[str, Field(examples=["ht_…"])]
    name: str
    role: Role
    datasets: list[str]
    expires_at: datetime | None
    owner: Owner


class ShownKey(BaseModel):
    """A key without its secret."""

    prefix: KeyPrefix
    name: str
    role: Role
    datasets: Annotated[list[str], Field(description="What it may read; an admin reads all.")]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: Annotated[datetime | None, Field(description="To the minute.")]
    owner: Owner


class Happened(BaseModel):
    """Failures and late answers so far, and how many more may fail before an admin has to look."""

    failures: int
    failures_allowed: int
    running: Annotated[int, Field(description="Charged and not settled: each of them may still fail.")]
    late: Annotated[int, Field(description="Answers that were not done when they were promised.")]
    paused: bool


class PersonHappened(Happened):
    owner: Owner


class Events(Happened):
    """Events of a dataset, and of every person who asked it."""

    dataset: str
    safety_factor: Annotated[int, Field(description="Promised times are at least so many times the predicted ones.")]
    owners: list[PersonHappened]
