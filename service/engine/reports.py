"""What an admin hears of an import or an inspection. All of it is made of exact values: for admins only."""

from dataclasses import dataclass
from typing import Any


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
    """A table that was imported. `rows` is an exact count: for admins only, like `warnings`."""

    dataset: str
    table: str
    data_version: int
    rows: int
    warnings: tuple[str, ...] = ()


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
