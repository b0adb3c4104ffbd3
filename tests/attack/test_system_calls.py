"""Attacks from inside an engine child: what if the database itself had a hole?

Here the attacker is past the SQL and past DuckDB: his code runs in the child, under our user. The kernel
answers him EPERM for everything that a query engine never does. What the child does need goes on working,
and where the system has no such filter the child works without it and says so.
"""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.engine.duckdb.engine import DuckDBEngine, EngineOptions
from service.engine.duckdb.importing.import_child import ImportOptions
from service.engine.duckdb.importing.importer import DuckDBImporter
from service.engine.duckdb.processes import pool, syscalls
from service.engine.duckdb.processes.seccomp import MACHINES
from service.engine.duckdb.scratch import DuckDBScratch, ScratchOptions
from tests.unit.engine.shop import DECLARED, write_shop
from tests.unit.engine.sql_text import SECONDS, column, rows

MEMORY = 256 * 2**20
ROOT = Path(__file__).resolve().parents[2]
PASS = {"own signal", "thread", "read"}
NO_SUCH_CALL = {"clone3", "openat2", "younger call"}
ELSEWHERE = {"clone3", "x32", "younger call"}  # attempts that no system lets through


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    held = tmp_path_factory.mktemp("calls")
    sources = write_shop(held / "sources")
    importer = DuckDBImporter(held / "data", [held / "sources"], ImportOptions(MEMORY, threads=1))
    for name in ("orders", "shops"):
        importer.prepare("shop", DECLARED[name], sources[name])
    (held / "ledger").write_text("spent: 3\n")
    return held


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[DuckDBEngine]:
    """An engine whose children have been taken over; cage, database and binding are the real ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "MODULE", "tests.unit.engine.intruder")
        held = DuckDBEngine(folder / "data", EngineOptions(workers=1, memory_bytes=MEMORY, threads=4))
        yield held
        held.close()


@pytest.fixture(scope="module")
def seen(engine: DuckDBEngine, folder: Path) -> dict[str, Any]:
    with engine.slot("shop", SECONDS) as slot:
        answer, _ = slot._child.call({"do": "attack", "file": str(folder / "ledger")}, b"", SECONDS)
    assert "error" not in answer
    return answer


def expected(name: str) -> int | None:
    if name in PASS:
        return None
    return errno.ENOSYS if name in NO_SUCH_CALL else errno.EPERM


def test_whoever_takes_over_a_child_is_refused(seen: dict[str, Any], folder: Path) -> None:
    errors = seen["errors"]
    assert len(errors) > 20
    assert errors == {name: expected(name) for name in errors}
    assert (folder / "ledger").read_text() == "spent: 3\n"


def test_every_listed_call_is_refused_in_every_thread(seen: dict[str, Any]) -> None:
    place = MACHINES[os.uname().machine][0]
    listed = {**syscalls.NEVER, **syscalls.CHANGES, **syscalls.UNREADABLE}
    assert seen["swept"] == {name: expected(name) for name, numbers in listed.items() if numbers[place] is not None}


def test_without_the_filter_the_same_attacks_succeed(folder: Path) -> None:
    """So the tests above can fail: the same code, in a process that nobody caged, on a file of its own."""
    (folder / "victim").write_text("x")
    program = "import json, sys; from tests.unit.engine.intruder import attack; print(json.dumps(attack(sys.argv[1])))"
    errors = json.loads(ran(program, str(folder / "victim")))
    through = {name for name, error in errors.items() if error != errno.EPERM}
    assert through >= errors.keys() - ELSEWHERE - {"clone with a network"}
    assert not (folder / "victim").exists()


def test_a_child_that_was_attacked_still_answers_with_all_its_threads(engine: DuckDBEngine) -> None:
    with engine.slot("shop", SECONDS) as slot:
        assert column(slot, 'SELECT COUNT(*) AS n FROM "orders"') == [4]
        heavy = "SELECT count(DISTINCT hash(x)) + max(x) AS n FROM range(3000000) t(x)"
        assert column(slot, heavy) == [5_999_999]
        status = Path(f"/proc/{slot._child.process.pid}/status").read_text()
    threads = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("Threads:"))
    assert threads >= 4


def test_the_scratch_engine_still_works(folder: Path) -> None:
    scratch = DuckDBScratch(folder / "data", ScratchOptions(workers=1, memory_bytes=MEMORY, threads=2))
    try:
        tables = {"core_0": {"a": np.arange(1000)}}
        sql = 'SELECT sum(core_0.a) AS n, (SELECT count(*) FROM "shops") AS m FROM core_0'
        assert rows(scratch._run(sql, tables, ("shops",), "shop", SECONDS))[0][0] == 499_500
    finally:
        scratch.close()


SPILLING = """
import json, socket, sys
from pathlib import Path
from service.engine.duckdb.importing import build
from service.engine.duckdb.processes import cage
missing = cage.enclose_process(keep_files=True)
try:
    socket.socket()
    refused = 0
except PermissionError as error:
    refused = error.errno
job = {"folder": sys.argv[1], "files": [], "kind": "csv"}
database = build.open_database({"memory_bytes": 96 * 2**20, "threads": 2}, job)
result = database.execute("SELECT x, hash(x) AS h FROM range(8000000) t(x) ORDER BY h")
spilled = [path.name for path in Path(sys.argv[1], "spill").iterdir()]
rows = sum(len(batch) for batch in result.to_arrow_reader(100_000))
print()  # the database shows how far it is
print(json.dumps({"missing": missing, "refused": refused, "spilled": len(spilled), "rows": rows}))
"""


def test_a_child_that_imports_spills_into_its_folder_and_has_no_network(tmp_path: Path) -> None:
    found = json.loads(ran(SPILLING, str(tmp_path)).splitlines()[-1])
    assert found["spilled"] > 0
    assert found | {"spilled": 0} == {"missing": [], "refused": errno.EPERM, "spilled": 0, "rows": 8_000_000}


FORBIDDING = """
import ctypes, errno, os
from service.engine.duckdb.processes import syscalls
from service.engine.duckdb.processes import seccomp
place, _ = seccomp.MACHINES[os.uname().machine]
REFUSE = (seccomp.RETURN, 0, 0, 0x00050000 | errno.EPERM)
steps = [(seccomp.LOAD, 0, 0, seccomp.NUMBER)]
for numbers in (syscalls.SECCOMP, syscalls.MOUNTS["unshare"]):
    steps += [(seccomp.EQUAL, 0, 1, numbers[place]), REFUSE]
assert ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0
assert seccomp.load_program(os.uname().machine, [*steps, (seccomp.RETURN, 0, 0, seccomp.ALLOW)])
"""
WORKING_ON = """
import json, logging, sys
from pathlib import Path
from service.api.middleware.logs import configure
from service.engine.duckdb.processes.child import walls
from service.engine.duckdb.engine import DuckDBEngine, EngineOptions
from tests.unit.engine.sql_text import column
configure("info")
engine = DuckDBEngine(Path(sys.argv[1]), EngineOptions(workers=2, memory_bytes=2**29, threads=1))
with engine.slot("shop", 60) as one, engine.slot("shop", 60) as two:
    rows = column(one, 'SELECT COUNT(*) AS n FROM "orders"') + column(two, 'SELECT COUNT(*) AS n FROM "orders"')
engine.close()
print(json.dumps({"rows": rows, "missing": walls.missing()}))
"""


def test_where_the_system_forbids_it_children_work_on_and_the_operator_is_told_once(folder: Path) -> None:
    """A container's policy, as it were: neither seccomp nor a namespace of one's own."""
    done = run(FORBIDDING + WORKING_ON, str(folder / "data"))
    assert json.loads(done.stdout) == {"rows": [4, 4], "missing": ["network", "system calls"]}
    told = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert [line["event"] for line in told] == [
        "engine processes lack a wall: network",
        "engine processes lack a wall: system calls",
    ]
    assert all(line["level"] == "warning" and line["detail"] for line in told)


def test_the_selftest_says_which_walls_stand() -> None:
    selftest = "from service.cli import main; assert main(['selftest']) == 0"
    assert "ok  engine processes are caged" in ran(selftest)
    shown = ran(FORBIDDING + selftest)
    assert "--  engine processes lack a wall: system calls. No seccomp filter" in shown
    assert "--  engine processes lack a wall: network." in shown
    assert "are caged" not in shown


def run(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=120, check=True
    )


def ran(program: str, *arguments: str) -> str:
    return run(program, *arguments).stdout
