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

from service.core.schema import UNIT_COLUMN, Table, UnitColumn, UnitVia, code_name
from service.engine import layout
from service.engine.duckdb.importing.coding import code_expression
from service.engine.duckdb.importing.inspecting import inspect_source
from service.engine.duckdb.importing.reading import Refused, Relation, open_relation, open_source, unreadable
from service.engine.duckdb.importing.verifying import refuse_broken, warnings_of
from service.engine.duckdb.manifest import table_from_json
from service.engine.duckdb.processes import cage
from service.engine.duckdb.processes import frames as wire
from service.engine.layout import RANK_COLUMN, ROW_COUNT
from service.engine.names import quoted, text
from service.engine.values import cast

SPILL_SHARE = 4  # a build may spill four times the memory it has, then stops: a full disk is worse
SORT_SHARE = 4  # a quarter of the memory holds the rows that are being sorted
SMALLEST_RANGE = 100_000
STEPS = ("finding units", "reading", "ordering by unit", "indexing", "verifying", "writing")


class Build:
    """One table's import, step by step. `stage` holds the rows as declared, `out` the prepared table."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, job: wire.Header, channel: socket.socket, memory_bytes: int
    ) -> None:
        self.connection = connection
        self.memory_bytes = memory_bytes
        self.job = job
        self.channel = channel
        self.table: Table = table_from_json(job["table"])
        self.folder = Path(job["folder"])
        self.salts = (secrets.randbits(64), secrets.randbits(64))

    def run(self) -> wire.Header:
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
            self._index()
        else:
            self._say(1)
            self._public_rows(relation)
        self._say(4)
        refuse_broken(self.connection, self.table, relation)
        told = warnings_of(self.connection, self.table)
        self._say(5)
        rows = self._one('SELECT count(*) FROM "out".main.rows')
        self.connection.execute('CHECKPOINT "out"')
        self.connection.execute('DETACH "out"')
        return {"rows": rows, "new_units": new_units, "warnings": told}

    def _units(self, relation: Relation) -> int:
        """Give every new unit the next code. Codes never change and never go away: other tables hold them.

        The dictionary of the previous version is read-only, so new units make a new file; how many
        there are decides about files alone, which nobody outside sees. Those with most rows get the lowest
        codes: rows are stored by code, so a statement that looks for heavy units skips most of the file.
        """
        if not isinstance(self.table.unit, UnitColumn):
            self.connection.execute(f'ATTACH {text(self.job["parent"])} AS "parent" (READ_ONLY)')
            return 0
        kind = self.table.columns[self.table.unit.column].type
        value = cast(quoted(relation.names[self.table.unit.column]), kind)
        self._attach("units", "units.duckdb")
        self.connection.execute(f'CREATE TABLE "units".main.units ("#unit" BIGINT, "key" UBIGINT, "value" {kind})')
        known = 0
        if self.job["units_in"]:
            self.connection.execute(f'ATTACH {text(self.job["units_in"])} AS "before" (READ_ONLY)')
            self.connection.execute('INSERT INTO "units".main.units FROM "before".main.units ORDER BY "#unit"')
            known = self._one('SELECT count(*) FROM "units".main.units')
        self._read(
            f'INSERT INTO "units".main.units SELECT {known} + row_number() OVER (ORDER BY n DESC) - 1, hash("value"),'
            f' "value" FROM (SELECT {value} AS "value", count(*) AS n FROM {relation.sql} WHERE {value} IS NOT NULL'
            ' GROUP BY 1) ANTI JOIN (SELECT "value" FROM "units".main.units) USING ("value")'
        )
        new = self._one('SELECT count(*) FROM "units".main.units') - known
        self.connection.execute('CHECKPOINT "units"')
        return new

    def _stage(self, relation: Relation) -> None:
        """Every declared column TRY_CAST into its declared type (what does not fit is NULL), and the unit,
        which is NULL where there is none or where the foreign key leads nowhere."""
        unit = self.table.unit
        assert unit is not None
        via = isinstance(unit, UnitVia)
        known = '"parent".main.rows' if via else '"units".main.units'
        key = quoted(unit.key) if isinstance(unit, UnitVia) else '"value"'
        self._read(
            f'CREATE TABLE "stage".main.s AS SELECT s.*, u."#unit" AS "#unit"'
            f" FROM (SELECT {self._cast(relation)} FROM {relation.sql}) AS s"
            f' LEFT JOIN (SELECT {key} AS "#key", "#unit" FROM {known}) AS u ON s.{quoted(unit.column)} = u."#key"'
        )

    def _rank(self) -> str:
        """A random number per row: a keyed mix of the row's place, under two fresh secrets.

        Invariant N5: the secrets are drawn for this version and kept nowhere, so these numbers are independent
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
        source = f'SELECT s.*, {self._rank()} AS "#rank" FROM "stage".main.s AS s'
        if self.table.max_rows_per_unit is not None:
            source = self._capped(source, self.table.max_rows_per_unit)
        # Counted from 0 within the unit, in the random order: the first k rows need no look at the others.
        counted = 'CAST(row_number() OVER (PARTITION BY "#unit" ORDER BY "#rank") - 1 AS BIGINT)'
        select = f'SELECT {self._columns()} FROM (SELECT * REPLACE ({counted} AS "#rank") FROM ({source})'
        self.connection.execute(f'CREATE TABLE "out".main.rows AS {select}) LIMIT 0')
        ranges = self._ranges()
        for place, (low, high) in enumerate(ranges):
            self._say(2, part=place, parts=len(ranges))
            self.connection.execute(
                f'INSERT INTO "out".main.rows {select} WHERE "#unit" BETWEEN {low} AND {high}) ORDER BY "#unit"'
            )

    def _ranges(self) -> list[tuple[int, int]]:
        """Ranges of unit codes with about as many rows each as can be sorted in memory."""
        kinds = [column.type.name for column in self.table.columns.values()]
        width = sum(32 if kind == "VARCHAR" else 16 for kind in kinds) + 8 * (len(layout.coded(self.table)) + 2)
        most = max(SMALLEST_RANGE, self.memory_bytes // (SORT_SHARE * width))
        found = self.connection.execute(
            'SELECT min("#unit"), max("#unit") FROM (SELECT "#unit", (sum(n) OVER (ORDER BY "#unit") - n) // $1 AS r'
            ' FROM (SELECT "#unit", count(*) AS n FROM "stage".main.s WHERE "#unit" IS NOT NULL GROUP BY "#unit"))'
            " GROUP BY r ORDER BY r",
            [most],
        ).fetchall()
        return [(int(low), int(high)) for low, high in found]

    def _capped(self, source: str, most: int) -> str:
        """At most `most` rows of a unit, those of smallest rank: a choice among that unit's rows alone.
        Only units above the cap are ranked at all."""
        self.connection.execute(
            f'CREATE TABLE "stage".main.cuts AS WITH heavy AS (SELECT "#unit" FROM "stage".main.s'
            f' WHERE "#unit" IS NOT NULL GROUP BY 1 HAVING count(*) > {most})'
            f' SELECT "#unit", max("#rank") AS "cut" FROM (SELECT s."#unit", {self._rank()} AS "#rank"'
            ' FROM "stage".main.s AS s SEMI JOIN heavy USING ("#unit")'
            f' QUALIFY row_number() OVER (PARTITION BY s."#unit" ORDER BY "#rank") <= {most}) GROUP BY 1'
        )
        return (
            f'SELECT r.* FROM ({source}) AS r LEFT JOIN "stage".main.cuts AS c ON r."#unit" = c."#unit"'
            ' WHERE c."cut" IS NULL OR r."#rank" <= c."cut"'
        )

    def _public_rows(self, relation: Relation) -> None:
        self._read(
            f'CREATE TABLE "out".main.rows AS SELECT {self._columns()}'
            f" FROM (SELECT {self._cast(relation)} FROM {relation.sql})"
        )

    def _index(self) -> None:
        pairs = [(quoted(code_name(c.name)), quoted(layout.total_name(c.name))) for c in layout.coded(self.table)]
        totals = "".join(f", coalesce(sum(abs({code})), 0)::HUGEINT AS {total}" for code, total in pairs)
        self.connection.execute(
            f'CREATE TABLE "out".main.units AS SELECT "#unit", count(*) AS {quoted(ROW_COUNT)}{totals}'
            ' FROM "out".main.rows GROUP BY "#unit" ORDER BY "#unit"'
        )

    def _read(self, sql: str) -> None:
        """A statement that reads the source: what fails here is the file's fault."""
        try:
            self.connection.execute(sql)
        except duckdb.OutOfMemoryException:
            raise
        except duckdb.Error:
            raise unreadable(self.job) from None

    def _columns(self) -> str:
        codes = [
            f"{code_expression(column)} AS {quoted(code_name(column.name))}" for column in layout.coded(self.table)
        ]
        hidden = [quoted(UNIT_COLUMN), quoted(RANK_COLUMN)] if self.table.private else []
        return ", ".join([*(quoted(name) for name in self.table.columns), *codes, *hidden])

    def _cast(self, relation: Relation) -> str:
        return ", ".join(
            f"{cast(quoted(relation.names[name]), column.type)} AS {quoted(name)}"
            for name, column in self.table.columns.items()
        )

    def _attach(self, alias: str, file: str) -> None:
        self.connection.execute(f"ATTACH {text(str(self.folder / file))} AS {quoted(alias)}")

    def _one(self, sql: str) -> int:
        row = self.connection.execute(sql).fetchone()
        assert row is not None
        return int(row[0])

    def _say(self, step: int, *, part: int = 0, parts: int = 1) -> None:
        frame = {"progress": STEPS[step], "step": step, "steps": len(STEPS), "part": part, "parts": parts}
        wire.send(self.channel, frame)


def open_database(options: dict[str, Any], job: wire.Header) -> duckdb.DuckDBPyConnection:
    """A database that reads the listed files and writes into the job folder, and can not be told otherwise."""
    folder = str(job["folder"]).rstrip("/") + "/"
    connection = duckdb.connect(":memory:", config=dict(cage.AT_CONNECT))
    databases = [job[name] for name in ("units_in", "parent") if job.get(name)]
    databases += job["files"] if job["kind"] == "duckdb" else []
    readable = [*job["files"], *databases, *(path + ".wal" for path in databases)]  # ATTACH looks for a log
    memory = int(options["memory_bytes"])
    for setting, value in (
        ("threads", str(int(options["threads"]))),
        ("memory_limit", text(f"{memory * 3 // 4}B")),
        ("temp_directory", text(folder + "spill")),
        ("max_temp_directory_size", text(f"{memory * SPILL_SHARE}B")),
        ("preserve_insertion_order", "false"),
        ("allowed_paths", "[" + ", ".join(text(path) for path in readable) + "]"),
        ("allowed_directories", f"[{text(folder)}]"),
    ):
        connection.execute(f"SET {setting} = {value}")
    cage.lock(connection, keep_files=True)
    return connection


def answer(options: dict[str, Any], job: wire.Header, channel: socket.socket) -> wire.Header:
    try:
        connection = open_database(options, job)
        cage.limit_memory(int(options["memory_bytes"]))
        if job["do"] == "inspect":
            return inspect_source(connection, job)
        if job["do"] == "describe":
            return {"types": open_relation(connection, job).types}
        return Build(connection, job, channel, int(options["memory_bytes"])).run()
    except Refused as refused:
        return {"refused": refused.detail, "extra": refused.extra}
    except (MemoryError, duckdb.OutOfMemoryException):
        return {"error": "memory"}
    except Exception as error:
        return {"error": type(error).__name__}


def main() -> None:
    """Argument: a JSON object with fd, memory_bytes and threads. One job, then the end."""
    options = json.loads(sys.argv[1])
    missing = cage.enclose_process(keep_files=True)
    cage.die_with_parent()
    warnings.simplefilter("ignore")
    channel = socket.socket(fileno=options["fd"])
    try:
        wire.send(channel, {"ready": True, "missing": missing})
        job, _ = wire.receive(channel)
        wire.send(channel, answer(options, job, channel))
    except wire.ConnectionLost:
        sys.exit(0)
