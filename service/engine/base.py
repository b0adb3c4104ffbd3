"""The seam: what every engine offers, whatever runs beneath it.

An engine holds prepared data (service/core/prepared.py), computes needs over it and hands the results back sealed.
It knows nothing of prices, ledgers or analysts; callers know nothing of files, processes, statements or dialects.
tests/unit/engine/contract.py is what an engine must pass.

Engine and Slot compute over private rows. Scratch runs the free outer SQL over released tables, and never sees any.
Importer makes the prepared copy. service/app.py chooses which engine is behind all three; nobody else knows.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from service.core.boundary import Array, ExactTable, KeyTable
from service.core.plan import Need, Plan
from service.core.schema import SqlType, Table
from service.engine.reports import Inspection, PreparedTable, Progress
from service.engine.sources import Source


class EngineFailed(Exception):
    """Computing did not complete: time, memory, a lost process, a bug.

    Invariant N1: which of them it was, and any text of the database, may depend on private rows. So
    `reason` is one word for the operator's log and never reaches a caller, and the charge stays.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Work:
    """Needs in an engine's own words, ready to be computed. What is in it is the engine's own: callers keep it and
    hand it back to a slot of the same engine, nothing else. It holds a salt, so it shows nothing of itself."""

    __slots__ = ()


Computed = list[tuple[tuple[Need, ...], ExactTable]]


class Slot(Protocol):
    """The right to compute, one thing after the other, on one version of one dataset.

    In two steps, because a charge comes between them: `work` reads nothing but its arguments, so what it refuses is
    refused for nothing; `compute` reads private rows. After an EngineFailed the slot is of no more use.
    """

    @property
    def data_version(self) -> int: ...

    def work(self, plan: Plan, needs: tuple[Need, ...], salt: int) -> Work:
        """What computes `needs` of the plan. `salt` is fresh and secret: it keys every choice of what a unit keeps.

        A plan or need that can not be computed is a bug (AssertionError), never a reason to refuse. EngineFailed, from
        an engine that asks others for this, is free: nothing has been charged.
        """

    def compute(self, work: Work, keys: KeyTable | None, deadline_s: float) -> Computed:
        """The exact columns that core/plan.py promises for each need, sealed; needs that share a table come together.

        `keys` are the public keys that the plan's groups are answered for, None where no need asks for them (those
        that look for keys or bounds). Raises EngineFailed for whatever may depend on rows.
        """

    def public_values(self, table: str, column: str, limit: int) -> Array:
        """Distinct values of a public table's column, sorted, NULL and NaN left out, at most `limit`."""


class Engine(Protocol):
    """Slots are taken, and work is made on them, before any charge: until then TooBusy and bugs are free."""

    def slot(self, dataset: str, wait_s: float, caller: str = "") -> AbstractContextManager[Slot]:
        """Wait at most `wait_s` for a turn; raises TooBusy. Turns go to the `caller` (an analyst) that
        has the fewest running, so nobody can take the engine for himself."""

    def close(self) -> None: ...


# --- Outer SQL -------------------------------------------------------------------------------------


class ScratchRefused(Exception):
    """The outer SQL can not be run. All of it may be shown: it depends on the SQL and on released values only.

    `message` is the whole of it; `mistake` says in a line what is wrong and `remedy` what to do about it; `place` is
    the line and column of it in the analyst's own text, where they are known.
    """

    def __init__(self, message: str, *, mistake: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.mistake = mistake
        self.remedy = remedy
        self.place: tuple[int, int] | None = None


class ScratchLost(ScratchRefused):
    """Nothing was said about the SQL: no turn, no process, or not enough time or memory."""


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """Released values with the type that was declared for them, also where they are all NULL or none are there."""

    values: Array
    type: SqlType


ScratchColumns = Mapping[str, Array | TypedColumn]
Cells = Array | list[Any]  # numbers without NULL as an array, whatever else as Python values


class ScratchResult(Protocol):
    """The columns of a SELECT, by their place in it. `types` are named as answers name them."""

    @property
    def types(self) -> tuple[str, ...]: ...

    @property
    def size(self) -> int: ...

    def cells(self, at: int) -> Cells: ...

    def numbers(self, at: int) -> npt.NDArray[np.float64]:
        """A column of numbers; NULL is NaN."""


class Scratch(Protocol):
    """Runs outer SQL that the allow-list has already passed, as the tree that it was rebuilt into.

    It sees released and public tables only, so whatever it says may be shown.
    """

    def run(
        self,
        select: exp.Expression,
        tables: Mapping[str, ScratchColumns],
        public: tuple[str, ...],
        dataset: str,
        deadline_s: float,
    ) -> ScratchResult:
        """The SELECT over `tables` and the `public` tables of the dataset that it names. Raises ScratchRefused."""

    def rehearse(
        self, select: exp.Expression, tables: Mapping[str, Mapping[str, SqlType]], deadline_s: float
    ) -> tuple[str, ...]:
        """The types that the SELECT would yield, before there is anything to run it on.

        Raises ScratchRefused where it could not run on any values of these types. No file is open and no value is
        anybody's.
        """

    def ping(self, deadline_s: float) -> None:
        """Raises ScratchRefused when nothing is answered in time."""

    def close(self) -> None: ...


# --- Imports ---------------------------------------------------------------------------------------

Told = Callable[[Progress], None]


class Importer(Protocol):
    """From an admin's files to the prepared copy (service/core/prepared.py), one version of a dataset after the other.

    What it hands back is made of exact values: for admins only.
    """

    def files(self, source: Source) -> tuple[Path, ...]:
        """The real paths behind a source; SourceRefused when there are none that may be read."""

    def inspect(self, source: Source) -> Inspection:
        """What a file seems to hold, for the admin who is about to declare it."""

    def column_types(self, source: Source) -> dict[str, str | None]:
        """By the file's own column names, the type that each takes when nobody declares one; None: none of ours."""

    def prepare(self, dataset: str, table: Table, source: Source, progress: Told | None = None) -> PreparedTable:
        """Build the table and whatever hangs on it, then swap. Any failure leaves the old version serving."""

    def remove(self, dataset: str, table: str) -> int:
        """A version without the table; its number. The budget is not touched: it belongs to the people."""

    def clean(self) -> None:
        """At start: leftovers of imports that were cut short, and files that no version names any more."""
