"""What an admin may write about datasets and tables: the same models for HTTP, YAML and storage.

Pydantic says what fits; check.py says what makes sense. Amounts and bounds are decimals, never
binary floats: a declared bound is what the clamp and the noise are computed from.
"""

from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from service.core.schema import NAME_PATTERN, TEXT_BYTES_MAX

Name = Annotated[str, StringConstraints(pattern=f"^{NAME_PATTERN}$", max_length=63)]
# Text for people: no control characters, no markup brackets, no line breaks.
PlainText = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f<>\u2028\u2029]*$", max_length=200)]


def _no_float(value: Any) -> Any:
    """YAML and Python hand over binary floats; their shortest decimal is what the admin typed."""
    if isinstance(value, bool):
        raise ValueError("a number is needed, not true or false")
    return Decimal(repr(value)) if isinstance(value, float) else value


DeclaredAmount = Annotated[Decimal | Annotated[str, StringConstraints(max_length=40)], BeforeValidator(_no_float)]
DeclaredBound = Annotated[
    Annotated[Decimal, Field(allow_inf_nan=False)] | Annotated[str, StringConstraints(max_length=40)],
    BeforeValidator(_no_float),
]
DomainValue = bool | int | Decimal | date | datetime | Annotated[str, StringConstraints(max_length=500)] | None


class Declared(BaseModel):
    """A part of a declaration: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ColumnDeclaration(Declared):
    """One column. Without `type` it takes the file's; without `bounds` it can not be summed. `max_bytes` is for texts:
    longer ones are cut when they are prepared; without it texts of private tables keep 256 bytes."""

    type: Annotated[str, StringConstraints(max_length=30)] | None = None
    bounds: tuple[DeclaredBound, DeclaredBound] | None = None
    step: DeclaredBound | None = None
    domain: Annotated[list[DomainValue], Field(max_length=10_000)] | None = None
    unique: bool = False
    source_name: Annotated[str, StringConstraints(max_length=200)] | None = None
    max_bytes: Annotated[int, Field(strict=True, ge=1, le=TEXT_BYTES_MAX)] | None = None


class ViaDeclaration(Declared):
    """A foreign key: this column holds a value of `references`, "table.column"."""

    column: Name
    references: Annotated[str, StringConstraints(pattern=rf"^{NAME_PATTERN}\.{NAME_PATTERN}$")]


class UnitDeclaration(Declared):
    """Whose row it is: named in a column, or reached through a foreign key."""

    column: Name | None = None
    via: ViaDeclaration | None = None

    @model_validator(mode="after")
    def _one(self) -> "UnitDeclaration":
        if (self.column is None) == (self.via is None):
            raise ValueError("say either column or via")
        return self


class SourceDeclaration(Declared):
    """A file, a folder or a pattern below one of the source folders; `table` names a table of a DuckDB file."""

    kind: Literal["parquet", "csv", "duckdb"]
    path: Annotated[str, StringConstraints(min_length=1, max_length=500)]
    table: Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]+$", max_length=200)] | None = None

    @model_validator(mode="after")
    def _table_fits(self) -> "SourceDeclaration":
        if (self.kind == "duckdb") != (self.table is not None):
            raise ValueError("`table` names the table of a duckdb source, and of no other")
        return self


class ProfileDeclaration(Declared):
    """What may be paid for the profile of a private table: `share` is the part of the dataset's ceiling."""

    share: DeclaredAmount = Decimal("0.001")


class TableDeclaration(Declared):
    """One table. `private` has no default: nothing becomes public by silence. `profile` null: none is bought."""

    source: SourceDeclaration
    private: bool
    unit: UnitDeclaration | None = None
    columns: Annotated[dict[Name, ColumnDeclaration], Field(max_length=2000)] = {}
    rest: Literal["include", "leave"] = "include"
    expected_rows: Annotated[int, Field(ge=1, le=2**53)] | None = None
    max_rows_per_unit: Annotated[int, Field(ge=1, le=2**31)] | None = None
    profile: ProfileDeclaration | None = ProfileDeclaration()
    reason: PlainText = ""  # why a copy of files that are known elsewhere may be imported; the journal keeps it

    @model_validator(mode="after")
    def _profile_fits(self) -> "TableDeclaration":
        if not self.private and self.profile not in (None, ProfileDeclaration()):
            raise ValueError("a public table's size is known exactly and costs nothing; leave `profile` out")
        return self

    @model_validator(mode="after")
    def _unit_fits(self) -> "TableDeclaration":
        if self.private and self.unit is None:
            raise ValueError("a private table needs `unit`: the column that names whose row it is, or a foreign key")
        if not self.private and self.unit is not None:
            raise ValueError("a public table has no unit; leave `unit` out, or declare the table private")
        return self


class CeilingDeclaration(Declared):
    """The promise: no grant goes above it."""

    epsilon: DeclaredAmount
    delta: DeclaredAmount = Decimal(0)


class DefaultsDeclaration(Declared):
    """What a query gets when it does not say. Bounds that are left out are fitted to the profile of the tables."""

    epsilon: DeclaredAmount | None = None
    delta: DeclaredAmount | None = None
    rows_per_unit: Annotated[int, Field(ge=1, le=2**31)] | None = None
    groups_per_unit: Annotated[int, Field(ge=1, le=100_000)] | None = None
    min_units: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    expected_groups: Annotated[int, Field(ge=1, le=10_000_000)] | None = None


class DatasetDeclaration(Declared):
    """A dataset: what a unit is, the promise (ceiling), and what a query gets when it does not say."""

    unit: Annotated[PlainText, Field(min_length=1)]
    epsilon: DeclaredAmount
    delta: DeclaredAmount = Decimal(0)
    ceiling: CeilingDeclaration | None = None
    epsilon_per_query_max: DeclaredAmount | None = None
    defaults: DefaultsDeclaration = DefaultsDeclaration()
    keys_declared: bool = False
    weak: bool = False  # a ceiling that protects little is meant (core.amounts.weakness)
    window: Literal["day", "week", "month"] | None = None
