"""Real processes dying at bad moments: the service, an import, a child."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest

from service.engine.duckdb import manifest as manifests
from service.engine.duckdb.engine import DuckDBEngine, EngineOptions
from service.engine.duckdb.importing.import_child import ImportOptions
from service.engine.duckdb.importing.importer import DuckDBImporter
from service.engine.reports import Progress
from service.engine.sources import Source
from tests.unit.engine.shop import DECLARED, write_shop
from tests.unit.engine.sql_text import SECONDS, column

MEMORY = 256 * 2**20
ROOT = Path(__file__).resolve().parents[2]

HOLDING = """
import sys
from pathlib import Path
from service.engine.emit.spelling import Statement
from service.engine.duckdb.engine import DuckDBEngine, EngineOptions
from tests.unit.engine.sql_text import SLOW
engine = DuckDBEngine(Path(sys.argv[1]), EngineOptions(workers=1, memory_bytes=2**28, threads=1))
with engine.slot("shop", 30) as slot:
    print(slot._child.process.pid, flush=True)
    slot._run(Statement(SLOW, ("n",)), None, 600)
"""

IMPORTING = """
import sys, time
from pathlib import Path
from service.engine.duckdb.importing.import_child import ImportOptions
from service.engine.duckdb.importing.importer import DuckDBImporter, Progress
from service.engine.sources import Source
from tests.unit.engine.shop import DECLARED
def stop(progress):
    if progress.step == int(sys.argv[3]):
        print("here", flush=True)
        time.sleep(600)
importer = DuckDBImporter(Path(sys.argv[1]), [Path(sys.argv[2])], ImportOptions(2**28, threads=1))
importer.prepare("shop", DECLARED["orders"], Source("parquet", "orders.parquet"), stop)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    sources = write_shop(tmp_path / "sources")
    importer = DuckDBImporter(tmp_path / "data", [tmp_path / "sources"], ImportOptions(MEMORY, threads=1))
    importer.prepare("shop", DECLARED["orders"], sources["orders"])
    return tmp_path


def start(program: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    )


def soon(claim: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS
    while not claim() and time.monotonic() < deadline:
        time.sleep(0.02)
    return claim()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_children_do_not_outlive_a_service_that_is_killed(folder: Path) -> None:
    """Also in mid-query, when the child is not listening."""
    service = start(HOLDING, str(folder / "data"))
    assert service.stdout is not None
    child = int(service.stdout.readline())
    assert is_running(child)
    time.sleep(0.3)
    os.kill(service.pid, signal.SIGKILL)
    service.wait()
    service.stdout.close()
    assert soon(lambda: not is_running(child))


@pytest.mark.parametrize("step", [1, 3, 5])
def test_an_import_that_is_killed_leaves_the_old_version_serving(folder: Path, step: int) -> None:
    dataset = manifests.dataset_folder(folder / "data", "shop")
    before = manifests.load_manifest(dataset)
    importing = start(IMPORTING, str(folder / "data"), str(folder / "sources"), str(step))
    assert importing.stdout is not None
    assert importing.stdout.readline() == "here\n"
    os.kill(importing.pid, signal.SIGKILL)
    importing.wait()
    importing.stdout.close()
    assert manifests.load_manifest(dataset) == before
    assert list(dataset.glob("_build-*"))

    importer = DuckDBImporter(folder / "data", [folder / "sources"], ImportOptions(MEMORY, threads=1))
    importer.clean()
    assert not list(dataset.glob("_build-*"))
    engine = DuckDBEngine(folder / "data", EngineOptions(workers=1, memory_bytes=MEMORY, threads=1))
    try:
        with engine.slot("shop", SECONDS) as slot:
            assert slot.data_version == 1
            assert column(slot, 'SELECT COUNT(*) AS n FROM "orders"') == [4]
        assert importer.prepare("shop", DECLARED["orders"], Source("parquet", "orders.parquet")).data_version == 2
        with engine.slot("shop", SECONDS) as slot:
            assert slot.data_version == 2
    finally:
        engine.close()


def test_a_swap_that_dies_between_files_and_manifest_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of the new version are in place, the manifest is not: they are leftovers."""
    dataset = manifests.dataset_folder(folder / "data", "shop")
    before = manifests.load_manifest(dataset)
    assert before is not None
    importer = DuckDBImporter(folder / "data", [folder / "sources"], ImportOptions(MEMORY, threads=1))

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(manifests, "save_manifest", die)
        with pytest.raises(KeyboardInterrupt):
            importer.prepare("shop", DECLARED["orders"], before.tables["orders"].source)
    assert manifests.load_manifest(dataset) == before
    assert (dataset / "orders" / "v2.duckdb").exists()
    importer.clean()
    assert not (dataset / "orders" / "v2.duckdb").exists()
    assert importer.prepare("shop", DECLARED["orders"], before.tables["orders"].source).data_version == 2


def test_many_versions_while_many_ask(folder: Path) -> None:
    """Swaps under load: every answer is right, on one version or another, and nobody is turned away."""
    engine = DuckDBEngine(folder / "data", EngineOptions(workers=2, memory_bytes=2 * MEMORY, threads=1))
    importer = DuckDBImporter(folder / "data", [folder / "sources"], ImportOptions(MEMORY, threads=1))
    source = Source("parquet", "orders.parquet")
    versions: set[int] = set()
    done = False

    def ask(caller: int) -> int:
        asked = 0
        while not done:
            with engine.slot("shop", SECONDS, caller=str(caller)) as slot:
                versions.add(slot.data_version)
                assert column(slot, 'SELECT COUNT(*) AS n FROM "orders" WHERE "#unit" >= 0') == [4]
            asked += 1
        return asked

    try:
        with ThreadPoolExecutor(4) as pool:
            asking = [pool.submit(ask, number) for number in range(4)]
            try:
                for _ in range(4):
                    importer.prepare("shop", DECLARED["orders"], source)
            finally:
                done = True
            assert all(asked.result() > 0 for asked in asking)
    finally:
        engine.close()
    assert len(versions) >= 3


@pytest.mark.slow
def test_six_million_rows_are_prepared_within_the_memory_of_the_import(tmp_path: Path) -> None:
    """The rows are several times larger than the memory: they are sorted in ranges of units."""
    (tmp_path / "sources").mkdir()
    with duckdb.connect() as database:
        database.execute(
            "COPY (SELECT i AS order_id, (hash(i) % 150000)::BIGINT AS customer,"
            " (i % 9999 / 100)::DECIMAL(10,2) AS amount, (i % 77)::DOUBLE AS weight,"
            " DATE '2020-01-01' + (i % 2500)::INTEGER AS \"day\", 'shop number ' || i % 1000 AS shop"
            f" FROM range(6000000) t(i)) TO '{tmp_path}/sources/orders.parquet'"
        )
    memory = 512 * 2**20
    importer = DuckDBImporter(tmp_path / "data", [tmp_path / "sources"], ImportOptions(memory, threads=2))
    told: list[Progress] = []
    prepared = importer.prepare("shop", DECLARED["orders"], Source("parquet", "orders.parquet"), told.append)
    assert prepared.rows == 6_000_000
    assert max(progress.parts for progress in told) > 2
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 < 2 * memory + 256 * 2**20


def test_the_prepared_file_is_a_plain_duckdb_file_without_a_log(folder: Path) -> None:
    files = sorted(path.name for path in manifests.dataset_folder(folder / "data", "shop").rglob("*") if path.is_file())
    assert files == ["_lock", "_manifest.json", "u1.duckdb", "v1.duckdb"]
    (path,) = folder.glob("data/prepared/shop/orders/v1.duckdb")
    with duckdb.connect(str(path), read_only=True) as database:
        assert {row[0] for row in database.execute("SHOW TABLES").fetchall()} == {"rows", "units"}
