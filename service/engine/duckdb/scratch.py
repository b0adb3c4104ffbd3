"""The free outer SQL, run over released tables in a database that has never seen a private row.

Its processes are bound to a dataset's public tables and nothing else; released tables come with the
question and leave with it. So whatever it says, errors included, depends on released and public
values only and may be shown (DESIGN section 4).
"""

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from service.core.boundary import Array
from service.core.errors import Conflict, TooBusy
from service.core.schema import Scalar, SqlType
from service.engine.duckdb.processes import frames as wire
from service.engine.duckdb.processes.child import Child, ChildLost
from service.engine.duckdb.processes.fair_queue import Turns, remaining
from service.engine.duckdb.processes.pool import BindFailed, Binding, Pool
from service.engine.duckdb.versions import KnownVersions
from service.engine.names import quoted
from service.engine.values import literal

WAIT_SECONDS = 30.0
NOTHING = Binding("", 0, {}, {})
LONGEST_MESSAGE = 500
LINE = re.compile(r"^LINE (\d+):", re.MULTILINE)
MADE_UP: dict[str, Scalar] = {
    "BOOLEAN": True, "BIGINT": 1_000_000, "DOUBLE": 1e6, "DECIMAL": 0, "DATE": "2000-01-01", "TIMESTAMP": "2000-01-01",
    "VARCHAR": "\ue000" * 40,  # no text that is made from it is a literal of somebody's
}  # fmt: skip


class ScratchRefused(Exception):
    """The outer SQL failed. `message` may be shown: it depends on released values only. `line` of the SQL."""

    def __init__(self, message: str) -> None:
        found = LINE.search(message)
        self.message = message[:LONGEST_MESSAGE]
        self.line = int(found[1]) if found else None
        super().__init__(self.message)


class ScratchLost(ScratchRefused):
    """Nothing was said about the SQL: no turn, no process, or not enough time or memory."""


@dataclass(frozen=True, slots=True)
class ScratchResult:
    """`values` are the columns in order; `rows` makes Python tuples of them."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    values: pa.Table

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return _rows(self.values)


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What a SELECT would yield. `cast_error`: how a cast failed on the made-up row, if one did."""

    types: tuple[str, ...]
    cast_error: ScratchRefused | None


@dataclass(frozen=True, slots=True)
class ScratchOptions:
    workers: int = 2
    memory_bytes: int = 2**30
    threads: int = 1
    waiting: int = 512


class Scratch:
    """Runs SQL that the allow-list has already passed. `public` names public tables that it reads."""

    def __init__(self, data_dir: Path, options: ScratchOptions | None = None) -> None:
        held = options or ScratchOptions()
        self._known = KnownVersions(data_dir)
        self._turns = Turns(held.workers, held.waiting)
        self._pool = Pool(
            workers=held.workers,
            memory_bytes=held.memory_bytes // held.workers,
            threads=min(held.threads, os.cpu_count() or 1),
        )

    def run(
        self,
        sql: str,
        tables: Mapping[str, Mapping[str, Array | pa.Array]],
        public: tuple[str, ...],
        dataset: str,
        deadline_s: float,
    ) -> ScratchResult:
        parts = [wire.pack(wire.arrow_table(columns)) for columns in tables.values()]
        request = {"do": "scratch", "sql": sql, "sizes": dict(zip(tables, map(len, parts), strict=True))}
        answer, table = self._ask(request, b"".join(parts), (dataset, public), deadline_s)
        return ScratchResult(tuple(answer["columns"]), tuple(answer["types"]), wire.unpack(table))

    def rehearse(self, sql: str, tables: Mapping[str, Mapping[str, SqlType]], deadline_s: float) -> Rehearsed:
        """The same SQL before there is anything to run it on: over one made-up row for each table that it reads.

        Raises ScratchRefused where names or types do not fit. No file is open and no value is anybody's.
        """
        rows = ", ".join(f"{quoted(name)} AS MATERIALIZED ({_made_up(kinds)})" for name, kinds in tables.items())
        request = {"do": "rehearse", "sql": sql, "rows": f"WITH {rows}"}
        answer, _ = self._ask(request, b"", ("", ()), deadline_s)
        failed = str(answer["cast_error"])
        return Rehearsed(tuple(answer["types"]), ScratchRefused(failed) if failed else None)

    def _ask(
        self, request: wire.Header, payload: bytes, data: tuple[str, tuple[str, ...]], deadline_s: float
    ) -> tuple[wire.Header, memoryview]:
        """`data` is the dataset and those of its public tables that must be there."""
        began = time.monotonic()
        try:
            self._turns.take("", min(WAIT_SECONDS, deadline_s))
        except TooBusy:
            raise ScratchLost(_BUSY) from None  # the released core is stored by now: reading it again is free
        try:
            binding, child = self._lease(*data)
            try:
                answer, table = child.call(request, payload, max(0.0, remaining(began, deadline_s)))
            except ChildLost as lost:
                raise ScratchLost(_TOO_LONG if lost.late else _TOO_LARGE) from None
            finally:
                self._pool.give(binding, child)
        finally:
            self._turns.give("")
        if "error" in answer:
            message = str(answer["message"])
            raise ScratchRefused(message) if message else ScratchLost(_TOO_LARGE)
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
        f"{literal(MADE_UP[kind.name], kind)} AS {quoted(name)}" for name, kind in kinds.items()
    )


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    if not table.num_columns:
        return [()] * table.num_rows
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
