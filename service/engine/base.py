"""The seam: what every engine offers, whatever runs beneath it.

An engine holds prepared data (service/core/prepared.py), computes needs over it and hands the results back sealed.
It knows nothing of prices, ledgers or analysts; callers know nothing of files, processes, statements or dialects.
tests/unit/engine/contract.py is what an engine must pass.

Engine and Slot compute over private rows. Scratch runs the free outer SQL over released tables, and never sees any.
service/engine/import_base.py is the same for what makes the prepared copy. service/app.py chooses which engine is
behind all of them; nobody else knows.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from service.core.boundary import Array, ExactTable, KeyTable
from service.core.plan import Need, Plan
from service.core.schema import SqlType
from service.core.sizes import Size


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


@dataclass(frozen=True, slots=True)
class WorstCase:
    """What work takes over the worst data of the public sizes, on this machine: seconds before any safety factor, and
    memory of one engine process. `largest` says what makes it so large, `remedy` what to write instead."""

    seconds: float
    memory_bytes: int
    largest: str
    remedy: str


Computed = list[tuple[tuple[Need, ...], ExactTable]]


class Slot(Protocol):
    """The right to compute, one thing after the other, on one version of one dataset.

    In two steps, because a charge comes between them: `work` reads nothing but its arguments, so what it refuses is
    refused for nothing; `compute` reads private rows. After an EngineFailed the slot is of no more use.
    """

    @property
    def data_version(self) -> int: ...

    def version(self, table: str) -> int | None:
        """The data version in which this table was built; None for one that is not there."""

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

    def handed_over(self) -> tuple["HandedSlot", tuple[int, ...]]:
        """What another process needs to compute on this slot in our place: a value that can be pickled, and open files
        that go along. Until that one is done, nothing is computed here."""

    def spoil(self) -> None:
        """Whatever computes on this slot ends now; the slot is of no more use."""


class HandedSlot(Protocol):
    """A slot on its way to another process."""

    def taken(self, files: tuple[int, ...]) -> Slot: ...


class Engine(Protocol):
    """Slots are taken, and work is made on them, before any charge: until then TooBusy and bugs are free."""

    def slot(self, dataset: str, wait_s: float, caller: str = "") -> AbstractContextManager[Slot]:
        """Wait at most `wait_s` for a turn; raises TooBusy. Turns go to the `caller` (an analyst) that
        has the fewest running, so nobody can take the engine for himself."""

    @property
    def memory_bytes(self) -> int:
        """What one slot's work may use."""

    def predict(
        self, plan: Plan, needs: tuple[Need, ...], sizes: Mapping[str, Size], groups: int | None
    ) -> WorstCase | None:
        """What computing these needs takes at worst, from public facts alone; None where a size is not known.

        `groups` is the number of public keys that the needs are answered for, None where they look for keys or bounds.
        """

    @property
    def knows_its_speed(self) -> bool:
        """Whether what is predicted comes from measuring this machine, or from having tried to; until then a careful
        guess serves, and promises are longer."""

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
        *,
        caller: str = "",
    ) -> ScratchResult:
        """The SELECT over `tables` and the `public` tables of the dataset that it names. Raises ScratchRefused.

        Callers (analysts) take turns, as for slots; each run has a deadline of the engine's own besides `deadline_s`.
        """

    def rehearse(
        self,
        select: exp.Expression,
        tables: Mapping[str, Mapping[str, SqlType]],
        deadline_s: float,
        *,
        caller: str = "",
    ) -> tuple[str, ...]:
        """The types that the SELECT would yield, before there is anything to run it on.

        Raises ScratchRefused where it could not run on any values of these types. No file is open and no value is
        anybody's.
        """

    def ping(self, deadline_s: float) -> None:
        """Raises ScratchRefused when nothing is answered in time; waits for no caller's turn."""

    def close(self) -> None: ...
