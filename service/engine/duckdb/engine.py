"""The DuckDB engine: emitted statements over prepared files, in caged child processes.

DuckDB itself is imported only by what runs inside children (worker.py, importing/) or encloses them (cage.py).
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from service.core.boundary import Array, ExactTable, KeyTable
from service.core.errors import NotFound, TooBusy
from service.core.fair_queue import FairQueue, remaining
from service.core.plan import Need, Plan
from service.core.prepared import POSITION
from service.core.schema import Table
from service.core.sizes import Size
from service.engine.base import Computed, EngineFailed, Work, WorstCase
from service.engine.duckdb.manifest import Manifest
from service.engine.duckdb.processes import frames
from service.engine.duckdb.processes.child import Child, ChildLost, Conversation
from service.engine.duckdb.processes.pool import BindFailed, Binding, Pool
from service.engine.duckdb.speed import kept_speed, measure, setting
from service.engine.duckdb.versions import KnownVersions
from service.engine.emit.spelling import Statement
from service.engine.emit.statements import Emitted, emit
from service.engine.quoting import quoted
from service.engine.worst_case.loads import USUAL, Speed
from service.engine.worst_case.predict import Machine, at_worst

PUBLIC_SECONDS = 30.0
NICENESS = 2  # a little behind the process that answers, which needs little and must come at once


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What a deployment gives to the engine: `workers` statements at once, each with its part of `memory_bytes`;
    `waiting` more may queue. A statement's deadline is never beyond `query_seconds`. `threads` None: all
    cores for each. `measured`: predictions are made with this machine's own speed, not with the defaults."""

    workers: int = 2
    memory_bytes: int = 4 * 2**30
    threads: int | None = None
    waiting: int = 64
    query_seconds: float = 60.0
    measured: bool = False

    @property
    def threads_each(self) -> int:
        return self.threads or os.cpu_count() or 1


class DuckDBEngine:
    """Engine over the prepared folder of `data_dir`. Takes up a new version as soon as its manifest is there."""

    def __init__(self, data_dir: Path, options: EngineOptions | None = None) -> None:
        self._data_dir = data_dir
        self._options = options or EngineOptions()
        self._turns = FairQueue(self._options.workers, self._options.waiting)
        self._known = KnownVersions(data_dir)
        self._pool = Pool(
            workers=self._options.workers,
            memory_bytes=self._options.memory_bytes // self._options.workers,
            threads=self._options.threads_each,
            niceness=NICENESS,
        )
        self._machine = self._known_machine(USUAL)
        self._tried = not self._options.measured
        if self._options.measured:
            self._measure_once()

    @contextlib.contextmanager
    def slot(self, dataset: str, wait_s: float, caller: str = "") -> Iterator["DuckDBSlot"]:
        began = time.monotonic()
        self._known.current(dataset)  # a dataset without data is refused before anybody waits for it
        self._turns.take(caller, wait_s)
        try:
            manifest, binding, child = self._lease(dataset, began, wait_s)
            try:
                yield DuckDBSlot(manifest, child, self._options.query_seconds)
            finally:
                self._pool.give(binding, child)
        finally:
            self._turns.give(caller)

    @property
    def memory_bytes(self) -> int:
        return self._options.memory_bytes // self._options.workers

    def predict(
        self, plan: Plan, needs: tuple[Need, ...], sizes: Mapping[str, Size], groups: int | None
    ) -> WorstCase | None:
        return at_worst(plan, needs, sizes, groups, self._machine)

    @property
    def knows_its_speed(self) -> bool:
        return self._tried

    def close(self) -> None:
        self._pool.close()

    def _known_machine(self, speed: Speed) -> Machine:
        return Machine(speed, self._options.workers, self._options.threads_each, os.cpu_count() or 1)

    def _measure_once(self) -> None:
        """The speed that was kept; else the defaults until it is measured, which takes a second in the background."""
        wanted = setting(threads=self._options.threads_each, workers=self._options.workers)
        known = kept_speed(self._data_dir, wanted)
        if known is not None:
            self._machine = self._known_machine(known)
            self._tried = True
            return

        def measured() -> None:
            try:
                found = measure(self._data_dir, wanted)
                if found is not None:
                    self._machine = self._known_machine(found)
            finally:
                self._tried = True

        threading.Thread(target=measured, name="engine-speed", daemon=True).start()

    def _lease(self, dataset: str, began: float, wait_s: float) -> tuple[Manifest, Binding, Child]:
        """Again while versions change: between reading a manifest and opening its files, they may be replaced."""
        while True:
            manifest = self._known.current(dataset)
            binding = self._known.binding(dataset, manifest, private=True)
            try:
                return manifest, binding, self._pool.lease(binding)
            except BindFailed:
                if self._known.current(dataset).data_version == manifest.data_version or remaining(began, wait_s) <= 0:
                    raise TooBusy(
                        "the engine could not open this dataset now; ask again", {"retry_after_s": 2}
                    ) from None


@dataclass(frozen=True, slots=True, repr=False)
class Statements(Work):
    """Emitted statements, each with the needs that it answers."""

    emitted: Emitted


class DuckDBSlot:
    """One child, for one query's statements. Dead after a failure: the next statement fails too."""

    def __init__(self, manifest: Manifest, child: Conversation, query_seconds: float) -> None:
        self._manifest = manifest
        self._child = child
        self._query_seconds = query_seconds

    @property
    def data_version(self) -> int:
        return self._manifest.data_version

    def version(self, table: str) -> int | None:
        entry = self._manifest.tables.get(table)
        return None if entry is None else entry.version

    def work(self, plan: Plan, needs: tuple[Need, ...], salt: int) -> Statements:
        return Statements(emit(plan, needs, salt=salt))

    def compute(self, work: Work, keys: KeyTable | None, deadline_s: float) -> Computed:
        assert isinstance(work, Statements), "this work was made by another engine"
        began = time.monotonic()
        exacts = []
        for statement, answered in work.emitted:
            left_s = remaining(began, deadline_s)
            if left_s <= 0:
                raise EngineFailed("deadline")
            exacts.append((answered, self._run(statement, keys if statement.uses_keys else None, left_s)))
        return exacts

    def _run(self, statement: Statement, keys: KeyTable | None, deadline_s: float) -> ExactTable:
        """One statement's integer columns and sealed keys. Raises EngineFailed and nothing else."""
        assert statement.uses_keys == (keys is not None), "the key table and the statement do not agree"
        table = self._ask(statement.sql, _packed(keys), deadline_s)
        wanted = [*statement.columns, *statement.keys]
        if sorted(table.column_names) != sorted(wanted):
            raise EngineFailed("columns")
        try:
            columns = {name: frames.integers(table.column(name)) for name in statement.columns}
            sealed = {name: frames.scalars(table.column(name)) for name in statement.keys}
        except (TypeError, ValueError, OverflowError, pa.ArrowException):
            raise EngineFailed("types") from None
        return ExactTable(columns, sealed)

    def public_values(self, table: str, column: str, limit: int) -> Array:
        declared = self._public_table(table, column)
        value = quoted(column)
        if declared.columns[column].type.name == "DOUBLE":
            value = f"CASE WHEN isnan({value}) THEN NULL ELSE {value} + 0.0 END"
        sql = (
            f"SELECT DISTINCT value FROM (SELECT {value} AS value FROM {quoted(table)})"
            f" WHERE value IS NOT NULL ORDER BY value LIMIT {int(limit)}"
        )
        return frames.scalars(self._ask(sql, memoryview(b""), PUBLIC_SECONDS).column("value"))

    def handed_over(self) -> tuple["HandedDuckDBSlot", tuple[int, ...]]:
        return HandedDuckDBSlot(self._manifest, self._query_seconds), (self._child.channel.fileno(),)

    def spoil(self) -> None:
        self._child.kill()

    def _public_table(self, table: str, column: str) -> Table:
        entry = self._manifest.tables.get(table)
        assert entry is None or not entry.table.private, "values of a private table are not public"
        if entry is None or column not in entry.table.columns:
            raise NotFound(f"no public column {table}.{column} has been imported", {"table": table, "column": column})
        return entry.table

    def _ask(self, sql: str, payload: memoryview, deadline_s: float) -> pa.Table:
        try:
            answer, table = self._child.call({"do": "run", "sql": sql}, payload, min(deadline_s, self._query_seconds))
        except ChildLost as lost:
            raise EngineFailed("deadline" if lost.late else "died") from None
        if "error" in answer:
            raise EngineFailed(str(answer["error"]))
        try:
            return frames.unpack_table(table)
        except (pa.ArrowException, OSError):
            raise EngineFailed("frame") from None


@dataclass(frozen=True, slots=True)
class HandedDuckDBSlot:
    """A slot without its child; the child's socket travels beside it."""

    manifest: Manifest
    query_seconds: float

    def taken(self, files: tuple[int, ...]) -> DuckDBSlot:
        (channel,) = files
        return DuckDBSlot(self.manifest, Conversation(socket.socket(fileno=channel)), self.query_seconds)


def _packed(keys: KeyTable | None) -> memoryview:
    try:
        return frames.pack_table(key_table(keys)) if keys is not None else memoryview(b"")
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        raise EngineFailed("keys") from None


def key_table(keys: KeyTable) -> pa.Table:
    """The key table as the child gets it: the key columns in order, then POSITION from 0."""
    positions = np.arange(keys.size, dtype=np.int64)
    return frames.arrow_table({**keys.columns, POSITION: positions})
