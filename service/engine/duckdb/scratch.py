"""The free outer SQL, run over released tables in a database that has never seen a private row.

Its processes are bound to a dataset's public tables and nothing else; released tables come with the
question and leave with it. So whatever it says, errors included, depends on released and public
values only and may be shown.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

from service.core.boundary import Array
from service.core.errors import Conflict, TooBusy
from service.core.fair_queue import FairQueue, remaining
from service.core.schema import Scalar, SqlType
from service.engine.base import Cells, ScratchColumns, ScratchLost, ScratchRefused, TypedColumn
from service.engine.duckdb.messages import DuckDBRefused, fails_in_any_case, marked, written_at
from service.engine.duckdb.processes import frames
from service.engine.duckdb.processes.child import Child, ChildLost
from service.engine.duckdb.processes.pool import BindFailed, Binding, Pool
from service.engine.duckdb.versions import KnownVersions
from service.engine.emit.spelling import DIALECT
from service.engine.quoting import quoted, tried_literal

WAIT_SECONDS = 30.0
NICENESS = 3  # behind what was paid for
NOTHING = Binding("", 0, {}, {})
MADE_UP: dict[str, Scalar] = {
    "BOOLEAN": True, "BIGINT": 1_000_000, "DOUBLE": 1e6, "DECIMAL": 0, "DATE": "2000-01-01", "TIMESTAMP": "2000-01-01",
    "VARCHAR": "\ue000" * 40,  # no text that is made from it is a literal of somebody's
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ArrowResult:
    """The columns of a SELECT as they came, in order."""

    types: tuple[str, ...]
    values: pa.Table

    @property
    def size(self) -> int:
        return int(self.values.num_rows)

    def cells(self, at: int) -> Cells:
        column = self.values.column(at)
        if column.null_count == 0 and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            numbers: Array = column.to_numpy()
            return numbers
        values: list[Any] = column.to_pylist()
        return values

    def numbers(self, at: int) -> npt.NDArray[np.float64]:
        column: Array = self.values.column(at).to_numpy(zero_copy_only=False)
        return column.astype(np.float64)  # NULL is NaN


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What a SELECT would yield. `failed_cast`: how a cast failed on the made-up row, if one did."""

    types: tuple[str, ...]
    failed_cast: DuckDBRefused | None


@dataclass(frozen=True, slots=True)
class ScratchOptions:
    """What a deployment gives to outer SQL: `workers` at once share `memory_bytes`, `waiting` more may queue, and each
    runs for `seconds` at most, however long a caller would wait: it is free, so nothing else keeps it short."""

    workers: int = 2
    memory_bytes: int = 2**30
    threads: int = 1
    waiting: int = 512
    seconds: float = 5.0


class DuckDBScratch:
    """The Scratch of this engine. One analyst holds all children but one at most, so that whoever comes next finds
    one free, however long the others' SQL runs."""

    def __init__(self, data_dir: Path, options: ScratchOptions | None = None) -> None:
        held = options or ScratchOptions()
        self._seconds = held.seconds
        self._known = KnownVersions(data_dir)
        self._turns = FairQueue(held.workers, held.waiting, each=max(1, held.workers - 1))
        self._pool = Pool(
            workers=held.workers,
            memory_bytes=held.memory_bytes // held.workers,
            threads=min(held.threads, os.cpu_count() or 1),
            niceness=NICENESS,
        )

    def run(
        self,
        select: exp.Expression,
        tables: Mapping[str, ScratchColumns],
        public: tuple[str, ...],
        dataset: str,
        deadline_s: float,
        *,
        caller: str = "",
    ) -> ArrowResult:
        return self._run(select.sql(dialect=DIALECT), tables, public, dataset, deadline_s, caller=caller)

    def rehearse(
        self,
        select: exp.Expression,
        tables: Mapping[str, Mapping[str, SqlType]],
        deadline_s: float,
        *,
        caller: str = "",
    ) -> tuple[str, ...]:
        """Over one made-up row for each table. What that row runs into is its own affair, but for casts that fail
        whatever the value is."""
        try:
            found = self._rehearse(select.sql(dialect=DIALECT), tables, deadline_s, caller=caller)
            if found.failed_cast is not None and fails_in_any_case(found.failed_cast, select):
                raise found.failed_cast
        except DuckDBRefused as refused:
            refused.place = self._place(select, tables, deadline_s, caller=caller)
            raise
        return found.types

    def ping(self, deadline_s: float) -> None:
        """Past the queue: whether children answer has nothing to do with how many ask them."""
        try:
            self._pool.ping(deadline_s)
        except ChildLost:
            raise ScratchLost("no engine process answers") from None

    def _run(
        self,
        sql: str,
        tables: Mapping[str, ScratchColumns],
        public: tuple[str, ...],
        dataset: str,
        deadline_s: float,
        *,
        caller: str = "",
    ) -> ArrowResult:
        parts = [frames.pack_table(_arrow(columns)) for columns in tables.values()]
        request = {"do": "scratch", "sql": sql, "sizes": dict(zip(tables, map(len, parts), strict=True))}
        answer, table = self._ask(request, b"".join(parts), (dataset, public), deadline_s, caller)
        return ArrowResult(tuple(answer["types"]), frames.unpack_table(table))

    def _rehearse(
        self, sql: str, tables: Mapping[str, Mapping[str, SqlType]], deadline_s: float, *, caller: str = ""
    ) -> Rehearsed:
        rows = ", ".join(f"{quoted(name)} AS MATERIALIZED ({_made_up(kinds)})" for name, kinds in tables.items())
        request = {"do": "rehearse", "sql": sql, "rows": f"WITH {rows}"}
        answer, _ = self._ask(request, b"", ("", ()), deadline_s, caller)
        failed = str(answer["cast_error"])
        return Rehearsed(tuple(answer["types"]), DuckDBRefused(failed) if failed else None)

    def _place(
        self, select: exp.Expression, tables: Mapping[str, Mapping[str, SqlType]], deadline_s: float, *, caller: str
    ) -> tuple[int, int] | None:
        """Where the analyst wrote what was refused: the same SQL fails again, now with its places marked."""
        text = marked(select)
        failed: ScratchRefused | None
        try:
            failed = self._rehearse(text, tables, deadline_s, caller=caller).failed_cast
        except ScratchRefused as refused:
            failed = refused
        return written_at(text, failed.line) if isinstance(failed, DuckDBRefused) else None

    def _ask(
        self, request: frames.Header, payload: bytes, data: tuple[str, tuple[str, ...]], deadline_s: float, caller: str
    ) -> tuple[frames.Header, memoryview]:
        """`data` is the dataset and those of its public tables that must be there."""
        began = time.monotonic()
        try:
            self._turns.take(caller, min(WAIT_SECONDS, deadline_s))
        except TooBusy:
            raise ScratchLost(_BUSY) from None  # the released core is stored by now: reading it again is free
        try:
            binding, child = self._lease(*data)
            try:
                left_s = min(self._seconds, remaining(began, deadline_s))
                answer, table = child.call(request, payload, max(0.0, left_s))
            except ChildLost as lost:
                raise ScratchLost(_TOO_LONG if lost.late else _TOO_LARGE) from None
            finally:
                self._pool.give(binding, child)
        finally:
            self._turns.give(caller)
        if "error" in answer:
            message = str(answer["message"])
            raise DuckDBRefused(message) if message else ScratchLost(_TOO_LARGE)
        return answer, table

    def close(self) -> None:
        self._pool.close()

    def _lease(self, dataset: str, public: tuple[str, ...]) -> tuple[Binding, Child]:
        """A child with the dataset's public tables, or with none when none is read."""
        binding = NOTHING
        for attempt in (1, 2):
            if public:
                manifest = self._known.current(dataset)
                binding = self._known.binding(dataset, manifest, private=False)
                missing = sorted(set(public) - set(binding.views))
                if missing:
                    raise Conflict(
                        "a public table that this question reads is not there any more", {"table": missing[0]}
                    )
            try:
                return binding, self._pool.lease(binding)
            except BindFailed:
                if attempt == 2:
                    raise ScratchLost("the public tables could not be opened; ask again") from None
        raise AssertionError


_BUSY = "too many answers are being put together; ask again"
_TOO_LONG = "the outer SQL took too long"
_TOO_LARGE = "the outer SQL needed more memory than it may use"


def _made_up(kinds: Mapping[str, SqlType]) -> str:
    """One row: a value of every type, so that what a cast can not do at all is seen."""
    return "SELECT " + ", ".join(
        f"{tried_literal(MADE_UP[kind.name], kind)} AS {quoted(name)}" for name, kind in kinds.items()
    )


def _arrow(columns: ScratchColumns) -> pa.Table:
    return frames.arrow_table(
        {
            name: frames.typed_column(column.values, column.type) if isinstance(column, TypedColumn) else column
            for name, column in columns.items()
        }
    )
