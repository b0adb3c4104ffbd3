"""Imports, inspections, quotas and keys: what admins get."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from service.api.responses.values import Cell, KeyPrefix
from service.core.request import Role

ImportId = Annotated[str, Field(description="Names an import.", examples=["i_01JC3M5W8Z6V7T9K2N4Q0R1S3X"])]


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
