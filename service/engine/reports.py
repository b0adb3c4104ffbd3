"""What an admin hears of an import or an inspection. All of it is made of exact values: for admins only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.core.sizes import PublicSize


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an import is: `step` of `steps` has begun; within a step, `part` of `parts` equal ones. Steps differ in
    length, so this is no promise of time."""

    step: int
    steps: int
    part: int = 0
    parts: int = 1


@dataclass(frozen=True, slots=True)
class PreparedTable:
    """A table that was imported. `rows` is an exact count: for admins only, like `warnings`. `followers` are the rows
    of the tables that reach their unit through it and were built anew with it. `size` is that of a public table,
    exactly, and public; None for a private one."""

    dataset: str
    table: str
    data_version: int
    rows: int
    warnings: tuple[str, ...] = ()
    followers: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)  # of the tables built: those that hang on it too
    size: PublicSize | None = None


@dataclass(frozen=True, slots=True)
class ColumnSuggestion:
    """Read off a file for the admin who declares it; low and high are the smallest and largest value as text."""

    source_name: str
    type: str
    null_share: float
    unique: bool
    unit_candidate: bool
    low: str | None
    high: str | None
    domain: tuple[Any, ...] | None
    file_type: str = "VARCHAR"  # as the file says it, whatever the values look like


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a file seems to hold. `complete` is false when only the first rows were looked at."""

    rows: int
    complete: bool
    columns: tuple[ColumnSuggestion, ...]
