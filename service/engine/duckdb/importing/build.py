"""What runs inside an import child: read hostile files once, write one prepared file.

The child may read the listed source files and write into its own job folder, nothing else. It speaks
to the service in counts and in our own words; messages of the database stay inside.
"""

import json
import secrets
import socket
import sys
import warnings
from pathlib import Path
from typing import Any

import duckdb

from service.core.prepared import (
    RANK_COLUMN,
    UINT64,
    UNIT_COLUMN,
    UNIT_KEY,
    code_name,
    coded,
)
from service.core.schema import BIGINT, Table, UnitColumn, UnitVia
from service.core.schema_codec import table_from_json
from service.engine.duckdb.importing.coding import code_expression
from service.engine.duckdb.importing.counting import counted_units, cut_rows, index_units
from service.engine.duckdb.importing.inspecting import inspect_source, own_type
from service.engine.duckdb.importing.reading import (
    ImportRefused,
    SourceRows,
    as_declared,
    declared_rows,
    open_relation,
    open_source,
    unreadable,
    within_limit,
)
from service.engine.duckdb.importing.sizing import public_size
from service.engine.duckdb.importing.verifying import refuse_broken, warnings_of
from service.engine.duckdb.prepared_file import BUILT, ROWS, STAGED, UNITS, VALUE, inside
from service.engine.duckdb.processes import cage, frames
from service.engine.quoting import quoted, string_literal

SPILL_SHARE = 4  # a build may spill four times the memory it has, then stops: a full disk is worse
SORT_SHARE = 4  # a quarter of the memory holds the rows that are being sorted
SMALLEST_RANGE = 100_000
UNIT, RANK = quoted(UNIT_COLUMN), quoted(RANK_COLUMN)
DICTIONARY = inside("units", UNITS)
STEPS = ("finding units", "reading", "ordering by unit", "indexing", "verifying", "writing")


class Build:
    """One table's import, step by step. `stage` holds the rows as declared, `out` the prepared table."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, job: frames.Header, channel: socket.socket, memory_bytes: int
    ) -> None:
        self.connection = connection
        self.memory_bytes = memory_bytes
        self.job = job
        self.channel = channel
        self.table: Table = table_from_json(job["table"])
        self.most: int | None = job.get("most", self.table.max_rows_per_unit)
        self.folder = Path(job["folder"])
        self.salts = (secrets.randbits(64), secrets.randbits(64))

    def run(self) -> frames.Header:
        self._attach("out", "rows.duckdb")
        relation = open_source(self.connection, self.job)
        new_units = 0
        if self.table.private:
            self._attach("stage", "stage.duckdb")
            self._say(0)
            new_units = self._units(relation)
            self._say(1)
            self._stage(relation)
            self._ordered_rows()
            self._say(3)
            index_units(self.connection, self.table)
        else:
            self._say(1)
            self._public_rows(relation)
        self._say(4)
        refuse_broken(self.connection, self.table, relation)
        told = warnings_of(self.connection, self.table, relation, self.most)
        self._say(5)
        rows = self._one(f"SELECT count(*) FROM {BUILT}")
        size = None if self.table.private else public_size(self.connection, self.table)
        self.connection.execute('CHECKPOINT "out"')
        self.connection.execute('DETACH "out"')
        return {"rows": rows, "new_units": new_units, "warnings": told, "size": size}

    def _units(self, relation: SourceRows) -> int:
        """Give every new unit the next code. Codes never change and never go away: other tables hold them.

        The dictionary of the previous version is read-only, so new units make a new file; how many
        there are decides about files alone, which nobody outside sees. Those with most rows get the lowest
        codes: rows are stored by code, so a statement that looks for heavy units skips most of the file.
        """
        if not isinstance(self.table.unit, UnitColumn):
            self.connection.execute(f'ATTACH {string_literal(self.job["parent"])} AS "parent" (READ_ONLY)')
            return 0
        column = self.table.columns[self.table.unit.column]
        value, named = quoted(relation.names[column.name]), quoted(VALUE)
        value = within_limit(as_declared(value, column.type), column, key=True)
        columns = f"{UNIT} {BIGINT}, {quoted(UNIT_KEY)} {UINT64}, {named} {column.type}"
        self._attach("units", "units.duckdb")
        self.connection.execute(f"CREATE TABLE {DICTIONARY} ({columns})")
        known = 0
        if self.job["units_in"]:
            self.connection.execute(f'ATTACH {string_literal(self.job["units_in"])} AS "before" (READ_ONLY)')
            self.connection.execute(f"INSERT INTO {DICTIONARY} FROM {inside('before', UNITS)} ORDER BY {UNIT}")
            known = self._one(f"SELECT count(*) FROM {DICTIONARY}")
        self._read(
            f"INSERT INTO {DICTIONARY} SELECT {known} + row_number() OVER (ORDER BY n DESC) - 1, hash({named}), {named}"
            f" FROM (SELECT {value} AS {named}, count(*) AS n FROM {relation.sql} WHERE {value} IS NOT NULL GROUP BY 1)"
            f" ANTI JOIN (SELECT {named} FROM {DICTIONARY}) USING ({named})"
        )
        new = self._one(f"SELECT count(*) FROM {DICTIONARY}") - known
        self.connection.execute('CHECKPOINT "units"')
        return new

    def _stage(self, relation: SourceRows) -> None:
        """Every declared column TRY_CAST into its declared type (what does not fit is NULL), texts cut, and the unit,
        which is NULL where there is none or where the foreign key leads nowhere."""
        unit = self.table.unit
        assert unit is not None
        known = inside("parent", ROWS) if isinstance(unit, UnitVia) else DICTIONARY
        key = quoted(unit.key if isinstance(unit, UnitVia) else VALUE)
        self._read(
            f"CREATE TABLE {STAGED} AS SELECT s.*, u.{UNIT} AS {UNIT}"
            f" FROM ({declared_rows(relation, self.table)}) AS s"
            f' LEFT JOIN (SELECT {key} AS "#key", {UNIT} FROM {known}) AS u ON s.{quoted(unit.column)} = u."#key"'
        )

    def _rank(self) -> str:
        """A random number per row: a keyed mix of the row's place, under two fresh secrets.

        Why N5 holds: the secrets are drawn for this version and kept nowhere, so these numbers are independent
        and uniform, and the order of a unit's rows by them (its ranks) is a uniform permutation, with the
        same law whoever else is in the table, although a row's place does depend on others. hash() of one
        integer is a bijection: no two rows of a file share a hash, and the bit that is dropped to make it
        signed lets numbers meet with chance 2^-63.
        """
        first, second = self.salts
        mixed = f"hash(xor(CAST(s.rowid AS UBIGINT), {first}::UBIGINT))"
        return f"CAST(hash(xor({mixed}, {second}::UBIGINT)) >> 1 AS BIGINT)"

    def _ordered_rows(self) -> None:
        """Rows by unit, a range of units at a time: what is sorted at once fits into memory, so any number
        of rows can be prepared. Rows without a unit are in no range."""
        source = f"SELECT s.*, {self._rank()} AS {RANK} FROM {STAGED} AS s"
        if self.most is not None:
            source = self._capped(source, self.most)
        # Counted from 0 within the unit, in the random order: the first k rows need no look at the others.
        counted = f"CAST(row_number() OVER (PARTITION BY {UNIT} ORDER BY {RANK}) - 1 AS {BIGINT})"
        select = f"SELECT {self._columns()} FROM (SELECT * REPLACE ({counted} AS {RANK}) FROM ({source})"
        self.connection.execute(f"CREATE TABLE {BUILT} AS {select}) LIMIT 0")
        ranges = self._ranges()
        for place, (low, high) in enumerate(ranges):
            self._say(2, part=place, parts=len(ranges))
            self.connection.execute(
                f"INSERT INTO {BUILT} {select} WHERE {UNIT} BETWEEN {low} AND {high}) ORDER BY {UNIT}"
            )

    def _ranges(self) -> list[tuple[int, int]]:
        """Ranges of unit codes with about as many rows each as can be sorted in memory."""
        kinds = [column.type.name for column in self.table.columns.values()]
        width = sum(32 if kind == "VARCHAR" else 16 for kind in kinds) + 8 * (len(coded(self.table)) + 2)
        most = max(SMALLEST_RANGE, self.memory_bytes // (SORT_SHARE * width))
        found = self.connection.execute(
            f"SELECT min({UNIT}), max({UNIT}) FROM (SELECT {UNIT}, (sum(n) OVER (ORDER BY {UNIT}) - n) // $1 AS r"
            f" FROM (SELECT {UNIT}, count(*) AS n FROM {STAGED} WHERE {UNIT} IS NOT NULL GROUP BY {UNIT}))"
            " GROUP BY r ORDER BY r",
            [most],
        ).fetchall()
        return [(int(low), int(high)) for low, high in found]

    def _capped(self, source: str, most: int) -> str:
        """At most `most` rows of a unit, those of smallest rank: a choice among that unit's rows alone.
        Only units above the cap are ranked at all."""
        cuts = inside("stage", "cuts")
        self.connection.execute(
            f"CREATE TABLE {cuts} AS WITH heavy AS (SELECT {UNIT} FROM {STAGED}"
            f" WHERE {UNIT} IS NOT NULL GROUP BY 1 HAVING count(*) > {most})"
            f' SELECT {UNIT}, max({RANK}) AS "cut" FROM (SELECT s.{UNIT}, {self._rank()} AS {RANK}'
            f" FROM {STAGED} AS s SEMI JOIN heavy USING ({UNIT})"
            f" QUALIFY row_number() OVER (PARTITION BY s.{UNIT} ORDER BY {RANK}) <= {most}) GROUP BY 1"
        )
        return (
            f"SELECT r.* FROM ({source}) AS r LEFT JOIN {cuts} AS c ON r.{UNIT} = c.{UNIT}"
            f' WHERE c."cut" IS NULL OR r.{RANK} <= c."cut"'
        )

    def _public_rows(self, relation: SourceRows) -> None:
        self._read(f"CREATE TABLE {BUILT} AS SELECT {self._columns()} FROM ({declared_rows(relation, self.table)})")

    def _read(self, sql: str) -> None:
        """A statement that reads the source: what fails here is the file's fault."""
        try:
            self.connection.execute(sql)
        except duckdb.OutOfMemoryException:
            raise
        except duckdb.Error:
            raise unreadable(self.job) from None

    def _columns(self) -> str:
        codes = [f"{code_expression(column)} AS {quoted(code_name(column.name))}" for column in coded(self.table)]
        hidden = [UNIT, RANK] if self.table.private else []
        return ", ".join([*(quoted(name) for name in self.table.columns), *codes, *hidden])

    def _attach(self, alias: str, file: str) -> None:
        self.connection.execute(f"ATTACH {string_literal(str(self.folder / file))} AS {quoted(alias)}")

    def _one(self, sql: str) -> int:
        row = self.connection.execute(sql).fetchone()
        assert row is not None
        return int(row[0])

    def _say(self, step: int, *, part: int = 0, parts: int = 1) -> None:
        frame = {"progress": STEPS[step], "step": step, "steps": len(STEPS), "part": part, "parts": parts}
        frames.send(self.channel, frame)


def open_database(options: dict[str, Any], job: frames.Header) -> duckdb.DuckDBPyConnection:
    """A database that reads the listed files and writes into the job folder, and can not be told otherwise."""
    folder = str(job["folder"]).rstrip("/") + "/"
    connection = duckdb.connect(":memory:", config=dict(cage.AT_CONNECT))
    databases = [job[name] for name in ("units_in", "parent", "prepared") if job.get(name)]
    databases += job["files"] if job["kind"] == "duckdb" else []
    readable = [
        *job["files"],
        *databases,
        *(path + ".wal" for path in databases),
    ]  # ATTACH asks for a log; a source's is refused
    memory = int(options["memory_bytes"])
    for setting, value in (
        ("threads", str(int(options["threads"]))),
        ("memory_limit", string_literal(f"{memory * 3 // 4}B")),
        ("temp_directory", string_literal(folder + "spill")),
        ("max_temp_directory_size", string_literal(f"{memory * SPILL_SHARE}B")),
        ("preserve_insertion_order", "false"),
        ("allowed_paths", "[" + ", ".join(string_literal(path) for path in readable) + "]"),
        ("allowed_directories", f"[{string_literal(folder)}]"),
    ):
        connection.execute(f"SET {setting} = {value}")
    cage.lock(connection, keep_files=True)
    return connection


def done(options: dict[str, Any], job: frames.Header, channel: socket.socket) -> frames.Header:
    try:
        connection = open_database(options, job)
        cage.limit_memory(int(options["memory_bytes"]))
        if job["do"] == "inspect":
            return inspect_source(connection, job)
        if job["do"] == "describe":
            return {"types": {name: own_type(kind) for name, kind in open_relation(connection, job).types.items()}}
        if job["do"] == "count":
            return counted_units(connection, job)
        if job["do"] == "cut":
            return cut_rows(connection, job)
        return Build(connection, job, channel, int(options["memory_bytes"])).run()
    except ImportRefused as refused:
        return {"refused": refused.detail, "extra": refused.extra}
    except (MemoryError, duckdb.OutOfMemoryException):
        return {"error": "memory"}
    except Exception as error:
        return {"error": type(error).__name__}


def main() -> None:
    """Argument: a JSON object with fd, memory_bytes, threads and niceness. One job, then the end."""
    options = json.loads(sys.argv[1])
    cage.step_back(options["niceness"])
    missing = cage.enclose_process(keep_files=True)
    cage.die_with_parent()
    warnings.simplefilter("ignore")
    channel = socket.socket(fileno=options["fd"])
    try:
        frames.send(channel, {"ready": True, "missing": missing})
        job, _ = frames.receive(channel)
        frames.send(channel, done(options, job, channel))
    except frames.ConnectionLost:
        sys.exit(0)
