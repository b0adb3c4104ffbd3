"""The DuckDB engine keeps the contract, and what is its own: children, their death and their return."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service.core.boundary import KeyTable
from service.engine.base import EngineFailed, Work
from service.engine.duckdb.engine import DuckDBEngine, EngineOptions
from service.engine.duckdb.importing.import_child import ImportOptions
from service.engine.duckdb.importing.importer import DuckDBImporter
from service.engine.emit.spelling import Statement
from tests.unit.engine.asking import objects
from tests.unit.engine.contract import EngineContract
from tests.unit.engine.shop import DECLARED, write_shop
from tests.unit.engine.sql_text import SECONDS, SLOW, column

MEMORY = 256 * 2**20


@pytest.fixture(scope="module")
def importer(tmp_path_factory: pytest.TempPathFactory) -> tuple[DuckDBImporter, Path]:
    folder = tmp_path_factory.mktemp("shop")
    sources = write_shop(folder / "sources")
    held = DuckDBImporter(folder / "data", [folder / "sources"], ImportOptions(MEMORY, threads=1))
    for name, declared in DECLARED.items():
        held.prepare("shop", declared, sources[name])
    return held, folder


@pytest.fixture(scope="module")
def engine(importer: tuple[DuckDBImporter, Path]) -> Iterator[DuckDBEngine]:
    held = DuckDBEngine(importer[1] / "data", EngineOptions(workers=2, memory_bytes=2 * MEMORY, threads=1))
    yield held
    held.close()


@pytest.fixture
def new_version(importer: tuple[DuckDBImporter, Path]) -> Callable[[], int]:
    def prepare() -> int:
        sources = write_shop(importer[1] / "sources")
        return importer[0].prepare("shop", DECLARED["orders"], sources["orders"]).data_version

    return prepare


class TestDuckDB(EngineContract):
    pass


def test_a_child_killed_in_mid_query_costs_that_query_only(engine: DuckDBEngine) -> None:
    with engine.slot("shop", SECONDS) as slot:
        pid = slot._child.process.pid
        threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
        with pytest.raises(EngineFailed) as failed:
            slot._run(Statement(SLOW, ("n",)), None, SECONDS)
        assert failed.value.reason == "died"
        with pytest.raises(EngineFailed):
            column(slot, "SELECT 1 AS n")
    with engine.slot("shop", SECONDS) as slot:
        assert column(slot, 'SELECT COUNT(*) AS n FROM "orders"') == [4]


def test_a_child_killed_while_idle_is_noticed_and_replaced(engine: DuckDBEngine) -> None:
    """A dead child must not cost an analyst his budget: it is found out before the slot is handed over."""
    with engine.slot("shop", SECONDS) as slot:
        pid = slot._child.process.pid
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.1)
    for _ in range(3):
        with engine.slot("shop", SECONDS) as slot:
            assert column(slot, "SELECT 1 AS n") == [1]


def test_statements_reuse_a_warm_child(engine: DuckDBEngine) -> None:
    with engine.slot("shop", SECONDS) as slot:
        pid = slot._child.process.pid
    with engine.slot("shop", SECONDS) as slot:
        assert slot._child.process.pid == pid


def test_no_more_children_hold_data_than_there_are_workers(tmp_path: Path) -> None:
    """Each may fill its part of the memory, busy or idle: so the limit holds whatever datasets are asked."""
    sources = write_shop(tmp_path / "sources")
    importer = DuckDBImporter(tmp_path / "data", [tmp_path / "sources"], ImportOptions(MEMORY, threads=1))
    for dataset in ("a", "b", "c"):
        importer.prepare(dataset, DECLARED["orders"], sources["orders"])
    held = DuckDBEngine(tmp_path / "data", EngineOptions(workers=2, memory_bytes=2 * MEMORY, threads=1))
    seen = []
    try:
        for dataset in ("a", "b", "a", "c", "b"):
            with held.slot(dataset, SECONDS) as slot:
                assert column(slot, 'SELECT COUNT(*) AS n FROM "orders"') == [4]
                seen.append(slot._child.process)
                assert len({process.pid for process in seen if process.poll() is None}) <= 2
    finally:
        held.close()
    assert seen[0] is seen[2]


def test_closing_leaves_no_children(importer: tuple[DuckDBImporter, Path]) -> None:
    held = DuckDBEngine(importer[1] / "data", EngineOptions(workers=1, memory_bytes=MEMORY, threads=1))
    with held.slot("shop", SECONDS) as slot:
        process = slot._child.process
    held.close()
    assert process.poll() is not None


def test_a_key_table_that_makes_no_sense_is_a_failure_like_any_other(engine: DuckDBEngine) -> None:
    mixed = KeyTable({"k0": objects(True, 7, "a")}, 3)
    with engine.slot("shop", SECONDS) as slot:
        with pytest.raises(EngineFailed):
            column(slot, 'SELECT count(*) AS n FROM "#keys"', mixed)
        assert column(slot, "SELECT 1 AS n") == [1]


def test_the_key_table_is_there_for_its_run_only(engine: DuckDBEngine) -> None:
    with engine.slot("shop", SECONDS) as slot:
        assert column(slot, 'SELECT COUNT(*) AS n FROM "#keys"', KeyTable({"k0": objects("a", None)}, 2)) == [2]
        with pytest.raises(EngineFailed):
            column(slot, 'SELECT COUNT(*) AS n FROM "#keys"')


def test_the_index_counts_rows_and_adds_up_codes_per_unit(engine: DuckDBEngine) -> None:
    """It decides who may exceed a bound, so it is right for every unit and not only in all."""
    join = 'FROM "{0}#units" u JOIN "customers" c ON c."#unit" = u."#unit" ORDER BY c."id"'
    with engine.slot("shop", SECONDS) as slot:
        orders, customers = join.format("orders"), join.format("customers")
        assert column(slot, f'SELECT u."rows" AS n {orders}') == [2, 1]
        assert column(slot, f'SELECT u."amount#abs" AS n {orders}') == [11_234, 0]
        assert column(slot, f'SELECT u."weight#abs" AS n {orders}') == [9, 80]
        assert column(slot, f'SELECT u."account#abs" - abs(c."account#") AS n {customers}') == [0, 0, 0]
        assert min(column(slot, 'SELECT "account#" AS n FROM "customers"')) < 0
        assert column(slot, 'SELECT COUNT(*) AS n FROM "lines#units"') == [3]


def test_every_prepared_row_has_a_unit_and_a_rank(engine: DuckDBEngine) -> None:
    with engine.slot("shop", SECONDS) as slot:
        for name in ("customers", "orders", "lines"):
            sql = f'SELECT COUNT(*) AS n FROM "{name}" WHERE "#unit" IS NULL OR "#rank" IS NULL'
            assert column(slot, sql) == [0]


@pytest.mark.parametrize("wrong", ["SELECT 1 AS m", "SELECT 1.5 AS n", "SELECT 'a' AS n", "SELECT 1 AS n, 2 AS m"])
def test_columns_that_were_not_promised_are_a_failure(engine: DuckDBEngine, wrong: str) -> None:
    with engine.slot("shop", SECONDS) as slot, pytest.raises(EngineFailed):
        column(slot, wrong)


def test_work_of_another_engine_is_a_bug(engine: DuckDBEngine) -> None:
    with engine.slot("shop", SECONDS) as slot, pytest.raises(AssertionError):
        slot.compute(Work(), None, SECONDS)


def test_a_day_that_python_has_not_is_a_failure_like_any_other(engine: DuckDBEngine) -> None:
    with engine.slot("shop", SECONDS) as slot, pytest.raises(EngineFailed):
        slot._run(Statement("SELECT 1 AS n, DATE '12000-01-01' AS k0", ("n",), ("k0",)), None, SECONDS)
