"""Attacks on the engine's own connection: what if the SQL allow-list had a hole?

The allow-list (service/sql) is the first wall. Here the attacker is already past it and writes any
SQL he likes into an engine child. He may read what the dataset holds, slowly kill his own query, and
nothing else: no file, no network, no setting, no other process's memory, no second chance.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest

from service.engine.base import EngineFailed, ScratchRefused
from service.engine.duckdb.engine import DuckDBEngine, EngineOptions
from service.engine.duckdb.importing.import_child import ImportOptions
from service.engine.duckdb.importing.importer import DuckDBImporter
from service.engine.duckdb.processes import cage
from service.engine.duckdb.processes.child import Child
from service.engine.duckdb.scratch import DuckDBScratch, ScratchOptions
from service.engine.emit.spelling import Statement
from tests.unit.engine.shop import DECLARED, write_shop
from tests.unit.engine.sql_text import SECONDS, column, rows

MEMORY = 256 * 2**20
RAN_ANYWAY = {"columns", "types", "frame"}  # reasons that mean: the statement itself did succeed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    held = tmp_path_factory.mktemp("cage")
    sources = write_shop(held / "sources")
    importer = DuckDBImporter(held / "data", [held / "sources"], ImportOptions(MEMORY, threads=1))
    for name in ("orders", "shops"):
        importer.prepare("shop", DECLARED[name], sources[name])
    (held / "loot.csv").write_text("secret\n42\n")
    (held / "loot.json").write_text('[{"secret": 42}]')
    with duckdb.connect(str(held / "loot.duckdb")) as other:
        other.execute("CREATE TABLE loot AS SELECT 42 AS secret")
    return held


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[DuckDBEngine]:
    held = DuckDBEngine(folder / "data", EngineOptions(workers=1, memory_bytes=MEMORY, threads=1))
    yield held
    held.close()


@pytest.fixture(scope="module")
def scratch(folder: Path) -> Iterator[DuckDBScratch]:
    held = DuckDBScratch(folder / "data", ScratchOptions(workers=1, memory_bytes=MEMORY))
    yield held
    held.close()


READS = [
    "SELECT count(*) AS n FROM read_csv('{folder}/loot.csv')",
    "SELECT count(*) AS n FROM '{folder}/loot.csv'",
    "SELECT count(*) AS n FROM read_text('{folder}/loot.csv')",
    "SELECT count(*) AS n FROM read_blob('{folder}/loot.csv')",
    "SELECT count(*) AS n FROM read_json('{folder}/loot.json')",
    "SELECT count(*) AS n FROM read_parquet('{folder}/sources/orders.parquet')",
    "SELECT count(*) AS n FROM parquet_schema('{folder}/sources/orders.parquet')",
    "SELECT count(*) AS n FROM glob('{folder}/*')",
    "SELECT count(*) AS n FROM query('FROM read_csv(''{folder}/loot.csv'')')",
]
WRITES = [
    "COPY (SELECT 1 AS n) TO '{folder}/out.csv'",
    "EXPORT DATABASE '{folder}/out'",
    "ATTACH '{folder}/out.duckdb' AS out; CREATE TABLE out.t AS SELECT 1 AS n",
]
OPENINGS = [
    "ATTACH '{folder}/loot.duckdb' AS loot (READ_ONLY); SELECT secret AS n FROM loot.loot",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{folder}/loot.csv'",
    "FORCE INSTALL spatial FROM community",
    "CREATE SECRET s (TYPE s3, KEY_ID 'a', SECRET 'b')",
    "SELECT getenv('HALFTONE_LEDGER_URL') AS n",
    "SELECT count(*) AS n FROM read_csv('https://example.org/x.csv')",
    "SELECT count(*) AS n FROM read_csv('s3://bucket/x.csv')",
]
SETTINGS = [
    "SET enable_external_access = true",
    "SET threads = 64",
    "SET memory_limit = '64GB'",
    "RESET memory_limit",
    "SET lock_configuration = false",
    "SET error_on_division_by_zero = true",
    "SET python_enable_replacements = true",
    "SET temp_directory = '{folder}/spill'",
    "SET disabled_filesystems = ''",
    "SET TimeZone = 'America/Caracas'",
    "SET allowed_directories = ['/']",
    "PRAGMA enable_profiling",
    "PRAGMA enable_logging",
    "SET log_query_path = '{folder}/log'",
]
CHANGES = [
    'INSERT INTO "orders" SELECT * FROM "orders"',
    'DELETE FROM "#d0".main.rows',
    'UPDATE "#d0".main.rows SET "customer" = 1',
    'DROP TABLE "#d0".main.rows',
    'CREATE TABLE "#d0".main.t AS SELECT 1 AS n',
]


LEFT_BEHIND = [
    'CREATE TEMP TABLE "orders" AS SELECT 1 AS n',
    "SET VARIABLE x = 1",
    'USE "#d0"',
    "CREATE MACRO count(x) AS 1",
    "PREPARE p AS SELECT 1 AS n",
    "SELECT 1 AS n; SELECT 2 AS n",
    "BEGIN",
    "CHECKPOINT",
]


@pytest.mark.parametrize("sql", READS + WRITES + OPENINGS + SETTINGS + CHANGES + LEFT_BEHIND)
def test_the_engine_child_refuses(engine: DuckDBEngine, folder: Path, sql: str) -> None:
    with engine.slot("shop", SECONDS) as slot:
        with pytest.raises(EngineFailed) as failed:
            slot._run(Statement(sql.format(folder=folder), ("n",)), None, SECONDS)
        assert failed.value.reason not in {*RAN_ANYWAY, "died", "deadline"}
    assert not list(folder.glob("out*"))


@pytest.fixture(scope="module")
def locked(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """The child's connection without the child: neither process limits nor a check for SELECT."""
    connection = cage.connect(memory_bytes=MEMORY, threads=1)
    connection.execute(f"ATTACH '{next(folder.glob('data/prepared/shop/orders/v*.duckdb'))}' AS \"#d0\" (READ_ONLY)")
    connection.execute('CREATE VIEW "orders" AS FROM "#d0".main.rows')
    cage.lock(connection)
    yield connection
    connection.close()


@pytest.mark.parametrize("sql", READS + WRITES + OPENINGS + SETTINGS + CHANGES)
def test_the_settings_alone_refuse(locked: duckdb.DuckDBPyConnection, folder: Path, sql: str) -> None:
    with pytest.raises(duckdb.Error):
        locked.execute(sql.format(folder=folder)).fetchall()
    assert not list(folder.glob("out*"))


def test_the_settings_leave_the_data_readable(locked: duckdb.DuckDBPyConnection) -> None:
    assert locked.execute('SELECT count(*) FROM "orders"').fetchall() == [(4,)]


@pytest.mark.parametrize("sql", READS + WRITES[:1] + OPENINGS[:1])
def test_the_scratch_child_refuses(scratch: DuckDBScratch, folder: Path, sql: str) -> None:
    with pytest.raises(ScratchRefused):
        scratch._run(sql.format(folder=folder), {}, (), "shop", SECONDS)
    assert not list(folder.glob("out*"))


@pytest.mark.parametrize("sql", [*READS, *OPENINGS[:1]])
def test_without_the_cage_the_same_attacks_succeed(folder: Path, sql: str) -> None:
    """So the tests above can fail."""
    with duckdb.connect() as open_database:
        row = open_database.execute(sql.format(folder=folder)).fetchone()
    assert row is not None
    assert int(row[0]) > 0


def test_python_variables_of_the_child_are_no_tables(engine: DuckDBEngine) -> None:
    """A bare connection reads the caller's variables by name: here the worker's own."""
    for name in ("payload", "table", "names", "self", "INCOMING", "relation"):
        with engine.slot("shop", SECONDS) as slot, pytest.raises(EngineFailed) as failed:
            slot._run(Statement(f'SELECT count(*) AS n FROM "{name}"', ("n",)), None, SECONDS)
        assert failed.value.reason == "CatalogException"


def test_the_scratch_child_has_no_private_table(scratch: DuckDBScratch) -> None:
    with pytest.raises(ScratchRefused):
        scratch._run('SELECT count(*) AS n FROM "orders"', {}, ("shops",), "shop", SECONDS)
    files = scratch._run("SELECT path FROM duckdb_databases() WHERE path IS NOT NULL", {}, ("shops",), "shop", SECONDS)
    assert [Path(row[0]).parent.name for row in rows(files)] == ["shops"]


def test_a_memory_bomb_hits_the_address_space_limit_and_nobody_else(engine: DuckDBEngine) -> None:
    """One vector function allocates outside DuckDB's own limit; the kernel's limit stops it."""
    for bomb in ("SELECT len(range(2000000000)) AS n", "SELECT length(repeat('x', 3000000000)) AS n"):
        began = time.monotonic()
        with engine.slot("shop", SECONDS) as slot, pytest.raises(EngineFailed) as failed:
            slot._run(Statement(bomb, ("n",)), None, SECONDS)
        assert failed.value.reason not in {*RAN_ANYWAY, "deadline"}
        assert time.monotonic() - began < SECONDS / 2
        with engine.slot("shop", SECONDS) as slot:
            assert column(slot, 'SELECT COUNT(*) AS n FROM "orders"') == [4]


def test_operators_stop_at_the_memory_limit_of_their_child(engine: DuckDBEngine) -> None:
    """Both walls hold the peak of a child's memory down, not only its end."""
    hog = "SELECT length(string_agg(x::VARCHAR, ',')) + count(DISTINCT x) AS n FROM range(60000000) t(x)"
    with engine.slot("shop", SECONDS) as slot:
        with pytest.raises(EngineFailed) as failed:
            slot._run(Statement(hog, ("n",)), None, SECONDS)
        assert failed.value.reason == "MemoryError"
        status = Path(f"/proc/{slot._child.process.pid}/status").read_text()
    peak = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    assert peak < MEMORY + 512 * 2**20


def test_a_statement_that_no_interrupt_reaches_is_killed_at_the_deadline(engine: DuckDBEngine) -> None:
    """sleep_ms and single long vector functions ignore max_execution_time; SIGKILL does not ask."""
    began = time.monotonic()
    with engine.slot("shop", SECONDS) as slot, pytest.raises(EngineFailed) as failed:
        slot._run(Statement("SELECT sleep_ms(8000) AS n", ("n",)), None, 0.5)
    assert failed.value.reason == "deadline"
    assert time.monotonic() - began < 4


def test_arithmetic_out_of_its_domain_is_no_error(engine: DuckDBEngine) -> None:
    with engine.slot("shop", SECONDS) as slot:
        for call in ("sqrt(-weight * weight - 1)", "ln(weight * 0)", "exp(weight * 1e300)", "weight / 0"):
            assert column(slot, f'SELECT count(*) AS n FROM (SELECT {call} AS x FROM "orders")') == [4]


def test_division_by_zero_is_null_not_an_error(engine: DuckDBEngine) -> None:
    with engine.slot("shop", SECONDS) as slot:
        sql = 'SELECT COUNT("order_id" // 0) + COUNT("order_id" % 0) AS n FROM "orders"'
        assert column(slot, sql) == [0]


def test_what_one_question_leaves_behind_the_next_does_not_find(engine: DuckDBEngine, scratch: DuckDBScratch) -> None:
    """Released tables live for one call: the next analyst's SQL must not read them."""
    scratch._run("SELECT * FROM core_0", {"core_0": {"a": np.arange(3)}}, (), "shop", SECONDS)
    with pytest.raises(ScratchRefused):
        scratch._run("SELECT * FROM core_0", {}, (), "shop", SECONDS)
    with pytest.raises(ScratchRefused):
        scratch._run("SELECT nope FROM core_0", {"core_0": {"a": np.arange(3)}}, (), "shop", SECONDS)
    with pytest.raises(ScratchRefused):
        scratch._run("SELECT * FROM core_0", {}, (), "shop", SECONDS)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """What a child reports of itself, started by a service that has a secret."""
    path = tmp_path_factory.mktemp("probe") / "file"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HALFTONE_LEDGER_URL", "postgresql://ledger:hunter2@db/ledger")
        child = Child("tests.unit.engine.probe", memory_bytes=MEMORY, threads=2)
        try:
            child.wait_ready()
            yield child.call({"path": str(path)}, b"", 10.0)[0]
        finally:
            child.kill()


class TestTheProcessAround:
    def test_its_environment_has_nothing_of_ours(self, seen: dict[str, dict[str, str]]) -> None:
        assert not [name for name in seen["environment"] if "HALFTONE" in name]
        assert "hunter2" not in str(seen)
        assert "HALFTONE_LEDGER_URL" in os.environ  # the service itself had it

    def test_the_kernel_limits_it(self, seen: dict[str, dict[str, list[int]]]) -> None:
        limits = seen["limits"]
        assert limits["RLIMIT_CORE"] == [0, 0]
        assert limits["RLIMIT_FSIZE"] == [0, 0]
        assert 0 < limits["RLIMIT_AS"][0] < 8 * 2**30
        assert 20 <= limits["RLIMIT_CPU"][0] <= 60
        assert limits["RLIMIT_NOFILE"][0] <= 1024

    def test_it_can_write_no_byte_to_any_file(self, seen: dict[str, bool]) -> None:
        assert seen["wrote"] is False

    def test_it_inherits_no_open_file(self, seen: dict[str, list[str]]) -> None:
        assert all(name.startswith(("pipe:", "socket:", "/dev/null", "/proc/")) for name in seen["files"])

    def test_it_has_loaded_neither_ledger_nor_noise(self, seen: dict[str, list[str]]) -> None:
        ours = {name.split(".")[1] for name in seen["modules"] if name.startswith("service.")}
        assert ours <= {"core", "engine"}


def test_children_have_no_network_where_the_system_allows_it(engine: DuckDBEngine) -> None:
    """On a system where unshare works for this user, the child's network is not ours."""
    allowed = subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode == 0
    with engine.slot("shop", SECONDS) as slot:
        try:
            theirs = os.readlink(f"/proc/{slot._child.process.pid}/ns/net")
        except PermissionError:
            theirs = "not ours to see"  # the child is not dumpable: only root may look
        assert not allowed or theirs != os.readlink("/proc/self/ns/net")
