"""A child whose database is broken for good answers nobody any more: the next question gets another one."""

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest

from service.engine.base import EngineFailed, ScratchRefused
from service.engine.duckdb.engine import DuckDBEngine, EngineOptions
from service.engine.duckdb.importing.import_child import ImportOptions
from service.engine.duckdb.importing.importer import DuckDBImporter
from service.engine.duckdb.processes import pool
from service.engine.duckdb.scratch import DuckDBScratch, ScratchOptions
from service.engine.emit.spelling import Statement
from tests.unit.engine.shop import DECLARED, write_shop
from tests.unit.engine.sql_text import SECONDS, column, rows

MEMORY = 256 * 2**20
INTRUDER = "tests.unit.engine.intruder"
TABLES = {"core_0": {"a": np.arange(3)}}
KINDS = {"core_0": {name: column.type for name, column in DECLARED["orders"].columns.items()}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("broken")
    sources = write_shop(folder / "sources")
    importer = DuckDBImporter(folder / "data", [folder / "sources"], ImportOptions(MEMORY, threads=1))
    importer.prepare("shop", DECLARED["orders"], sources["orders"])
    return folder / "data"


def open_engine(data: Path) -> DuckDBEngine:
    return DuckDBEngine(data, EngineOptions(workers=1, memory_bytes=MEMORY, threads=1))


@pytest.fixture
def engine(data: Path) -> Iterator[DuckDBEngine]:
    held = open_engine(data)
    yield held
    held.close()


@pytest.fixture
def fragile(data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DuckDBEngine]:
    """Its children break at a statement with the word FATAL: the error first, then no answer to anything."""
    monkeypatch.setattr(pool, "MODULE", INTRUDER)
    held = open_engine(data)
    yield held
    held.close()


@pytest.fixture
def scratch(data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DuckDBScratch]:
    monkeypatch.setattr(pool, "MODULE", INTRUDER)
    held = DuckDBScratch(data, ScratchOptions(workers=1, memory_bytes=MEMORY))
    yield held
    held.close()


def internal_error() -> str:
    """SQL at which DuckDB trips over itself: a window without the edge that its frame names."""
    with duckdb.connect() as database:
        sql = "SELECT sum(a) OVER (ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM range(5) t(a)"
        row = database.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
    assert row is not None
    tree = json.loads(row[0])
    assert tree["statements"][0]["node"]["select_list"][0].pop("start_expr")
    return f"SELECT count(*) AS n FROM json_execute_serialized_sql('{json.dumps(tree)}'::JSON)"


def breaks(engine: DuckDBEngine, sql: str, reason: str) -> int:
    """Asks what breaks the child; the kind of error is the operator's to see. Returns the broken child's number."""
    with engine.slot("shop", SECONDS) as slot:
        child = slot._child
        with pytest.raises(EngineFailed) as failed:
            slot._run(Statement(sql, ("n",)), None, SECONDS)
        assert failed.value.reason == reason
        with pytest.raises(EngineFailed) as again:
            column(slot, "SELECT 1 AS n")
        assert again.value.reason == "died"
    assert child.process.poll() is not None
    return child.process.pid


def answers_anew(engine: DuckDBEngine, broken: int) -> None:
    with engine.slot("shop", SECONDS) as slot:
        assert slot._child.process.pid != broken
        assert column(slot, 'SELECT COUNT(*) AS n FROM "orders"') == [4]


def test_after_a_fatal_error_the_next_question_is_answered(fragile: DuckDBEngine) -> None:
    answers_anew(fragile, breaks(fragile, "SELECT length('FATAL') AS n", "FatalException"))


def test_after_an_internal_error_of_the_database_the_next_question_is_answered(engine: DuckDBEngine) -> None:
    """A real one, in an ordinary child."""
    answers_anew(engine, breaks(engine, internal_error(), "InternalException"))


def test_an_ordinary_error_costs_no_child(engine: DuckDBEngine) -> None:
    with engine.slot("shop", SECONDS) as slot:
        pid = slot._child.process.pid
        with pytest.raises(EngineFailed):
            column(slot, "SELECT nothing AS n")
        assert column(slot, "SELECT 1 AS n") == [1]
    with engine.slot("shop", SECONDS) as slot:
        assert slot._child.process.pid == pid


def test_a_broken_scratch_child_is_replaced_and_shows_no_address(scratch: DuckDBScratch) -> None:
    with pytest.raises(ScratchRefused) as refused:
        scratch._run("SELECT a, 'FATAL' AS b FROM core_0", TABLES, (), "shop", SECONDS)
    assert refused.value.message == "FATAL Error: Failed: database has been invalidated"
    assert rows(scratch._run("SELECT a FROM core_0", TABLES, (), "shop", SECONDS)) == [(0,), (1,), (2,)]


def test_a_rehearsal_that_breaks_the_child_breaks_no_other(scratch: DuckDBScratch) -> None:
    """What made-up rows run into is theirs alone, so the rehearsal passes; its child does not stay."""
    sql = "SELECT order_id, 'FATAL' AS b FROM core_0"
    assert scratch._rehearse(sql, KINDS, SECONDS).types == ("BIGINT", "VARCHAR")
    assert scratch._rehearse("SELECT order_id FROM core_0", KINDS, SECONDS).types == ("BIGINT",)


def test_sql_at_which_the_database_trips_is_refused_in_one_line(scratch: DuckDBScratch) -> None:
    with pytest.raises(ScratchRefused) as refused:
        scratch._rehearse(f"SELECT order_id FROM core_0 WHERE ({internal_error()}) > 0", KINDS, SECONDS)
    assert refused.value.message.startswith("INTERNAL Error")
    assert "\n" not in refused.value.message
    assert scratch._rehearse("SELECT order_id FROM core_0", KINDS, SECONDS).types == ("BIGINT",)
