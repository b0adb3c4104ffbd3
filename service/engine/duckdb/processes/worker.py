"""What runs inside a query or scratch child: bind once, then answer frames until the lifeline closes.

`bind` attaches files read-only, makes the views and locks everything; it is possible once. `run` is
one statement over private data: an error says its kind, never its text. `scratch` is one statement
over released tables, `rehearse` the same over made-up rows before there are any: an error may be shown.
`ping` is answered, bound or not. `measure` times statements over made-up rows, in a child that is bound to nothing.

After a fatal or internal error DuckDB trusts its own database no more and refuses whatever follows, so
the child says that this answer was its last and ends. The pool replaces it before anyone else pays for it.
"""

import json
import socket
import sys
import time
import warnings
from typing import Any

import duckdb
import pyarrow as pa

from service.core.prepared import KEYS_TABLE
from service.engine.duckdb.processes import cage, frames
from service.engine.quoting import quoted, string_literal

INCOMING = "#incoming"
SHOWN = ("scratch", "rehearse")
MEASURED_TIMES = 3
FATAL = (duckdb.FatalException, duckdb.InternalException)


class Worker:
    """Runs one request after the other, inside a child. `missing` are the walls that the system did not let the cage
    build."""

    def __init__(self, channel: socket.socket, missing: list[str], *, memory_bytes: int, threads: int) -> None:
        self.channel = channel
        self.missing = missing
        self.memory_bytes = memory_bytes
        self.threads = threads
        self.connection = cage.connect(memory_bytes=memory_bytes, threads=threads)
        self.bound = False
        self.broken = False

    def serve(self) -> None:
        self._warm_up()
        frames.send(self.channel, {"ready": True, "missing": self.missing})
        while not self.broken:
            header, payload = frames.receive(self.channel)
            cage.limit_cpu(float(header["seconds"]), self.threads)
            try:
                answer, table = self._answer(header, payload)
            except Exception as error:
                answer, table = self._failed(error, shown=header.get("do") in SHOWN), b""
            frames.send(self.channel, {**answer, "last": self.broken}, table)

    def _failed(self, error: Exception, *, shown: bool) -> frames.Header:
        """The kind of an error. Only what sees nothing but released, public and made-up values may explain itself."""
        fatal = _fatal(error)
        self.broken = self.broken or fatal is not None
        if isinstance(error, MemoryError | duckdb.OutOfMemoryException):
            return {"error": "MemoryError", "message": ""}
        message = str(fatal).split("\n")[0] if fatal else str(error)  # further down there are addresses and paths
        return {"error": type(fatal or error).__name__, "message": message if shown else ""}

    def _answer(self, header: frames.Header, payload: memoryview) -> tuple[frames.Header, bytes | memoryview]:
        if header["do"] == "bind":
            self._bind(header["files"], header["views"])
            return {}, b""
        if header["do"] == "ping":
            return {}, b""
        if header["do"] == "measure":
            return {"measured": self._measure(header["setup"], header["statements"])}, b""
        assert self.bound, "bind comes first"
        if header["do"] == "run":
            return self._run(header["sql"], payload)
        if header["do"] == "rehearse":
            return self._rehearse(header["sql"], header["rows"]), b""
        assert header["do"] == "scratch"
        return self._scratch(header["sql"], header["sizes"], payload)

    def _bind(self, files: dict[str, str], views: dict[str, str]) -> None:
        assert not self.bound, "a child serves one version of one dataset"
        self.bound = True
        for alias, path in files.items():
            self.connection.execute(f"ATTACH {string_literal(path)} AS {quoted(alias)} (READ_ONLY)")
        for name, select in views.items():
            self.connection.execute(f"CREATE VIEW main.{quoted(name)} AS {select}")
        cage.lock(self.connection)
        cage.limit_memory(self.memory_bytes)

    def _measure(self, setup: str, statements: dict[str, str]) -> dict[str, float]:
        """The processor time of each statement over made-up rows, on average: not the time on the clock, which would be
        that of everything else on the machine, too, and not the best, since some systems count in coarse steps."""
        assert not self.bound, "speed is measured in a child of its own"
        self.connection.execute(setup)
        found = dict.fromkeys(statements, 0.0)
        for _ in range(MEASURED_TIMES):
            for name, sql in statements.items():
                began = time.process_time()
                frames.pack_table(self.connection.execute(self._select(sql)).to_arrow_table())
                found[name] += (time.process_time() - began) / MEASURED_TIMES
        return found

    def _run(self, sql: str, payload: memoryview) -> tuple[frames.Header, memoryview]:
        names = []
        try:
            if len(payload):
                names.append(KEYS_TABLE)
                self._load(KEYS_TABLE, frames.unpack_table(payload))
            # Not a relation: it would bind the statement once for its columns and again to run it.
            return {}, frames.pack_table(self.connection.execute(self._select(sql)).to_arrow_table())
        finally:
            self._drop(names)

    def _scratch(self, sql: str, sizes: dict[str, int], payload: memoryview) -> tuple[frames.Header, memoryview]:
        start = 0
        try:
            for name, size in sizes.items():
                self._load(name, frames.unpack_table(payload[start : start + size]))
                start += size
            result = self._fetch(sql)
            types = [str(kind) for kind in result.types]
            table = result.to_arrow_table().rename_columns([str(i) for i in range(len(types))])
            return {"types": types}, frames.pack_table(table)
        finally:
            self._drop(sizes)

    def _rehearse(self, sql: str, rows: str) -> frames.Header:
        """The types of a SELECT's columns, and what its casts say of the made-up `rows` (a WITH clause).

        Raises what any rows of these types would raise. Whatever else the made-up ones run into is
        theirs alone: only a failed cast is told, and whether it is their fault the caller decides.
        """
        self._select(sql)
        described = self.connection.execute(f"DESCRIBE {rows} {sql}").fetchall()
        cast_error = ""
        try:
            self.connection.execute(f"{rows} {sql}").fetchall()
        except duckdb.ConversionException as error:
            cast_error = str(error)
        except duckdb.Error as error:
            self.broken = _fatal(error) is not None
        return {"types": [kind for _, kind, *_ in described], "cast_error": cast_error}

    def _fetch(self, sql: str) -> duckdb.DuckDBPyRelation:
        return self.connection.sql(self._select(sql))

    def _select(self, sql: str) -> duckdb.Statement:
        """One SELECT. Anything else could leave something behind for the next question: a temporary table
        that hides a real one, a variable, another search path. The lock on settings does not cover those."""
        statements = self.connection.extract_statements(sql)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise ValueError("only a single SELECT is run")
        return statements[0]

    def _load(self, name: str, table: pa.Table) -> None:
        """As a table of its own: an Arrow scan would be read again by every mention, without statistics."""
        self.connection.register(INCOMING, table)
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {quoted(name)} AS FROM {quoted(INCOMING)}")
        self.connection.unregister(INCOMING)

    def _drop(self, names: Any) -> None:
        for name in names:
            self.connection.execute(f"DROP TABLE IF EXISTS temp.{quoted(name)}")

    def _warm_up(self) -> None:
        """Everything that is slow once is done before the first question comes."""
        self._load(INCOMING + "0", pa.table({"a": [1, 2]}))
        frames.pack_table(self._fetch(f"SELECT sum(a) AS a FROM {quoted(INCOMING + '0')}").to_arrow_table())
        self._drop([INCOMING + "0"])


def _fatal(error: BaseException | None) -> BaseException | None:
    """The error that broke the database: this one, or one that it came after. Cleaning up fails then, too."""
    return error if error is None or isinstance(error, FATAL) else _fatal(error.__context__)


def main() -> None:
    """Argument: a JSON object with fd, memory_bytes, threads and niceness."""
    options = json.loads(sys.argv[1])
    cage.step_back(options["niceness"])
    missing = cage.enclose_process()
    cage.die_with_parent()
    warnings.simplefilter("ignore")
    channel = socket.socket(fileno=options["fd"])
    try:
        Worker(channel, missing, memory_bytes=options["memory_bytes"], threads=options["threads"]).serve()
    except frames.ConnectionLost:
        sys.exit(0)
