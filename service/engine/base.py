"""What every engine offers, whatever runs beneath it.

An engine holds prepared data, runs emitted statements over it and hands the results back sealed.
It knows nothing of prices, ledgers or analysts; callers know nothing of files, processes or dialects
beyond the word in `dialect`. tests/unit/engine/contract.py is what an engine must pass.
"""

from contextlib import AbstractContextManager
from typing import Protocol

from service.core.boundary import Array, ExactTable, KeyTable
from service.core.plan import Statement


class EngineFailed(Exception):
    """A statement did not complete: time, memory, a lost process, a bug.

    Invariant N1: which of them it was, and any text of the database, may depend on private rows. So
    `reason` is one word for the operator's log and never reaches a caller, and the charge stays.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Slot(Protocol):
    """The right to run statements, one after the other, on one version of one dataset."""

    @property
    def data_version(self) -> int: ...

    def run(self, statement: Statement, keys: KeyTable | None, deadline_s: float) -> ExactTable:
        """The statement's integer columns and sealed keys. Raises EngineFailed and nothing else."""

    def public_values(self, table: str, column: str, limit: int) -> Array:
        """Distinct values of a public table's column, sorted, NULL and NaN left out, at most `limit`."""


class Engine(Protocol):
    """Slots are taken before any charge: TooBusy is free, whatever follows a slot is not."""

    @property
    def dialect(self) -> str: ...

    def slot(self, dataset: str, wait_s: float, share: str = "") -> AbstractContextManager[Slot]:
        """Wait at most `wait_s` for a turn; raises TooBusy. Turns go to the `share` (an analyst) that
        has the fewest running, so nobody can take the engine for himself."""

    def close(self) -> None: ...
