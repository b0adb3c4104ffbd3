"""The scratch engine: ordinary SQL over released and public tables, fresh for every call."""

import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from sqlglot import exp, parse_one

from service.core.boundary import Array
from service.core.errors import Conflict
from service.core.places import remember
from service.core.schema import BIGINT, BOOLEAN, DATE, DOUBLE, TIMESTAMP, VARCHAR, SqlType
from service.engine.base import ScratchLost, ScratchRefused, TypedColumn
from service.engine.duckdb.importing.import_child import ImportOptions
from service.engine.duckdb.importing.importer import DuckDBImporter
from service.engine.duckdb.scratch import DuckDBScratch, ScratchOptions
from tests.unit.engine.asking import SECONDS, objects
from tests.unit.engine.shop import DECLARED, write_shop
from tests.unit.engine.sql_text import rows

MEMORY = 256 * 2**20


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDBScratch]:
    folder = tmp_path_factory.mktemp("scratch")
    sources = write_shop(folder / "sources")
    importer = DuckDBImporter(folder / "data", [folder / "sources"], ImportOptions(MEMORY, threads=1))
    for name in ("customers", "shops"):
        importer.prepare("shop", DECLARED[name], sources[name])
    held = DuckDBScratch(folder / "data", ScratchOptions(workers=2, memory_bytes=2 * MEMORY))
    yield held
    held.close()


def core() -> dict[str, dict[str, Array]]:
    return {
        "core_0": {
            "k0": objects("north", "south", None),
            "a0": np.array([3, 1, 2]),
            "a1": np.array([0.5, math.nan, -1.0]),
        }
    }


def test_outer_sql_runs_as_it_is(scratch: DuckDBScratch) -> None:
    sql = (
        'SELECT "k0", "a0" * 2 AS twice, rank() OVER (ORDER BY "a0" DESC) AS place, sum("a0") OVER () AS total'
        ' FROM "core_0" WHERE "a0" > 1 ORDER BY "a0" LIMIT 5'
    )
    result = scratch._run(sql, core(), (), "shop", SECONDS)
    assert result.types == ("VARCHAR", "BIGINT", "BIGINT", "HUGEINT")
    assert rows(result) == [(None, 4, 2, 5), ("north", 6, 1, 5)]


def test_rows_keep_the_released_order_when_the_sql_asks_for_none(scratch: DuckDBScratch) -> None:
    many = {"core_0": {"a0": np.arange(200_000)[::-1].copy()}}
    result = scratch._run('SELECT "a0" + 1 AS n FROM "core_0"', many, (), "shop", SECONDS)
    assert [row[0] for row in rows(result)] == list(range(200_000, 0, -1))


def test_values_come_back_as_python_values(scratch: DuckDBScratch) -> None:
    tables = {"t": {"b": objects(True, None), "d": objects(date(2024, 1, 2), None), "big": objects(2**70, -(2**70))}}
    result = scratch._run("SELECT b, d, big, 1.5 AS x, NULL AS nothing FROM t", tables, (), "shop", SECONDS)
    assert rows(result)[0] == (True, date(2024, 1, 2), Decimal(2**70), Decimal("1.5"), None)
    assert rows(result)[1][:3] == (None, None, Decimal(-(2**70)))


def test_nan_stays_nan_and_is_not_null(scratch: DuckDBScratch) -> None:
    result = scratch._run("SELECT a1, a1 IS NULL FROM core_0 WHERE a0 = 1", core(), (), "shop", SECONDS)
    assert math.isnan(rows(result)[0][0])
    assert rows(result)[0][1] is False


def test_two_cores_can_be_joined_and_columns_may_share_a_name(scratch: DuckDBScratch) -> None:
    tables = {**core(), "core_1": {"k0": objects("north", None), "a0": np.array([10, 20])}}
    sql = "SELECT l.a0, r.a0 FROM core_0 l LEFT JOIN core_1 r ON l.k0 IS NOT DISTINCT FROM r.k0 ORDER BY l.a0"
    result = scratch._run(sql, tables, (), "shop", SECONDS)
    assert result.types == ("BIGINT", "BIGINT")
    assert rows(result) == [(1, None), (2, 20), (3, 10)]


def test_public_tables_of_the_dataset_are_there(scratch: DuckDBScratch) -> None:
    sql = 'SELECT s."size", c."a0" FROM core_0 c JOIN "shops" s ON s."name" = c."k0" WHERE s."size" > 2'
    assert (2.5, 1) in rows(scratch._run(sql, core(), ("shops",), "shop", SECONDS))
    assert rows(scratch._run('SELECT count(*) FROM "shops"', {}, ("shops",), "shop", SECONDS)) == [(4,)]


def test_private_and_missing_tables_are_not(scratch: DuckDBScratch) -> None:
    for name in ("customers", "nothing"):
        with pytest.raises(Conflict):
            scratch._run(f'SELECT count(*) FROM "{name}"', {}, (name,), "shop", SECONDS)
        with pytest.raises(ScratchRefused):
            scratch._run(f'SELECT count(*) FROM "{name}"', {}, (), "shop", SECONDS)


def test_errors_are_shown_since_they_speak_of_released_values_only(scratch: DuckDBScratch) -> None:
    with pytest.raises(ScratchRefused) as refused:
        scratch._run('SELECT CAST("k0" AS INTEGER) FROM core_0', core(), (), "shop", SECONDS)
    assert "north" in refused.value.message


def test_time_and_memory_are_limited_and_the_next_call_is_answered(scratch: DuckDBScratch) -> None:
    began = time.monotonic()
    with pytest.raises(ScratchRefused, match="too long"):
        scratch._run("SELECT count(*) FROM range(1000000000000)", {}, (), "shop", 0.5)
    assert time.monotonic() - began < 5
    with pytest.raises(ScratchRefused, match="memory"):
        scratch._run("SELECT len(range(2000000000))", {}, (), "shop", SECONDS)
    assert rows(scratch._run("SELECT 1", {}, (), "shop", SECONDS)) == [(1,)]


def test_calls_at_once_do_not_see_each_other(scratch: DuckDBScratch) -> None:
    def ask(number: int) -> int:
        table = {"core_0": {"a0": np.full(100, number)}}
        (row,) = rows(scratch._run("SELECT sum(a0)::BIGINT, count(*) FROM core_0", table, (), "shop", SECONDS))
        assert row[1] == 100
        return int(row[0])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(40))) == [100 * number for number in range(40)]


@pytest.mark.parametrize("values", [(), (None,), (None, None)])
def test_declared_types_stay_where_no_value_shows_them(scratch: DuckDBScratch, values: tuple[None, ...]) -> None:
    kinds = [BOOLEAN, BIGINT, DOUBLE, VARCHAR, DATE, TIMESTAMP, SqlType("DECIMAL", 10, 2), SqlType("DECIMAL", 38, 0)]
    columns = {f"c{at}": TypedColumn(objects(*values), kind) for at, kind in enumerate(kinds)}
    result = scratch.run(exp.select("*").from_("t"), {"t": columns}, (), "shop", SECONDS)
    assert result.types == tuple(map(str, kinds))
    assert result.size == len(values)


def test_a_tree_is_run_and_its_columns_are_read_by_place(scratch: DuckDBScratch) -> None:
    tree = parse_one('SELECT "k0", "a0" AS n, CASE WHEN "a0" > 1 THEN "a0" END AS some FROM core_0 ORDER BY "a0"')
    result = scratch.run(tree, core(), (), "shop", SECONDS)
    counted = result.cells(1)
    assert isinstance(counted, np.ndarray)
    assert counted.tolist() == [1, 2, 3]
    assert result.cells(0) == ["south", None, "north"]
    assert result.cells(2) == [None, 2, 3]
    assert np.array_equal(result.numbers(2), [math.nan, 2.0, 3.0], equal_nan=True)


SHAPE = {"core_0": {"k0": VARCHAR, "d": DATE, "a0": BIGINT}, "core_1": {"k0": VARCHAR, "x": SqlType("DECIMAL", 4, 2)}}


def test_a_rehearsal_tells_the_types_that_the_sql_would_yield(scratch: DuckDBScratch) -> None:
    sql = 'SELECT "k0", "a0" / 2 AS h, "x" AS y, "d" FROM core_0 JOIN core_1 USING ("k0") WHERE "a0" > 3'
    told = scratch._rehearse(sql, SHAPE, SECONDS)
    assert (told.types, told.failed_cast) == (("VARCHAR", "DOUBLE", "DECIMAL(4,2)", "DATE"), None)


def test_a_rehearsal_refuses_what_no_values_could_make_right(scratch: DuckDBScratch) -> None:
    with pytest.raises(ScratchRefused, match=r"upper\(BIGINT\)") as refused:
        scratch._rehearse('SELECT "k0",\n upper("a0")\n FROM core_0', SHAPE, SECONDS)
    assert refused.value.line == 2
    for sql in ("SELECT nope FROM core_0", "SELECT 1 FROM core_2", "SELECT 1; SELECT 2", "CREATE TABLE t (a INT)"):
        with pytest.raises(ScratchRefused):
            scratch._rehearse(sql, SHAPE, SECONDS)


def test_a_rehearsal_says_what_a_cast_said(scratch: DuckDBScratch) -> None:
    told = scratch._rehearse("SELECT d = 'abc' AS b FROM core_0", SHAPE, SECONDS)
    assert told.types == ("BOOLEAN",)
    assert told.failed_cast is not None and '"abc"' in told.failed_cast.message
    assert scratch._rehearse("SELECT 9223372036854775807 + a0 FROM core_0", SHAPE, SECONDS).failed_cast is None


def remembered(sql: str) -> exp.Expression:
    """A tree whose columns, literals and functions remember where they were written, as the front end makes them."""
    tree = parse_one(sql, read="duckdb")
    for node in tree.walk():
        if isinstance(node, exp.Column | exp.Literal | exp.Func):
            remember(node, node)
    return tree


@pytest.mark.parametrize(
    ("sql", "mistake", "remedy", "place"),
    [
        ("SELECT k0,\n  upper(a0)\nFROM core_0", "upper(BIGINT)", "CAST", (2, 9)),
        ("SELECT k0 FROM core_0\nWHERE d = 'abc'", 'invalid date field format: "abc"', "CAST", (2, 11)),
        ("SELECT CAST(d AS BIGINT) FROM core_0", "DATE -> BIGINT", "CAST", (1, 13)),
        ("SELECT k0, sum(a0) FROM core_0", "GROUP BY clause", "aggregate it", (1, 8)),
    ],
)
def test_a_refusal_says_what_is_wrong_what_to_do_and_where(
    scratch: DuckDBScratch, sql: str, mistake: str, remedy: str, place: tuple[int, int]
) -> None:
    with pytest.raises(ScratchRefused) as refused:
        scratch.rehearse(remembered(sql), SHAPE, SECONDS)
    assert mistake in refused.value.mistake
    assert "\n" not in refused.value.mistake
    assert " Error: " not in refused.value.mistake
    assert remedy in refused.value.remedy
    assert refused.value.place == place


@pytest.mark.parametrize(
    "sql", ["SELECT CAST(k0 AS BIGINT) FROM core_0", "SELECT 9223372036854775807 + a0 FROM core_0"]
)
def test_what_only_the_made_up_row_runs_into_is_no_refusal(scratch: DuckDBScratch, sql: str) -> None:
    assert scratch.rehearse(remembered(sql), SHAPE, SECONDS) == ("BIGINT",)


def test_it_says_whether_it_answers(scratch: DuckDBScratch) -> None:
    scratch.ping(SECONDS)
    with pytest.raises(ScratchLost):
        scratch.ping(0.0)
    scratch.ping(SECONDS)


def test_a_rehearsal_that_finds_no_end_says_nothing_about_the_sql(scratch: DuckDBScratch) -> None:
    with pytest.raises(ScratchLost):
        scratch._rehearse("SELECT count(*) FROM range(1000000000000)", SHAPE, 0.5)


def test_a_dataset_without_data_can_still_compute(scratch: DuckDBScratch, tmp_path: Path) -> None:
    assert rows(scratch._run("SELECT a0 FROM core_0 LIMIT 1", core(), (), "nowhere", SECONDS)) == [(3,)]


def test_whose_sql_runs_long_does_not_stop_the_others(tmp_path: Path) -> None:
    """One caller's endless SQL holds all children but one; others and the check of readiness are answered meanwhile,
    and it ends at the engine's own deadline, however long its caller would wait."""
    held = DuckDBScratch(tmp_path, ScratchOptions(workers=2, memory_bytes=2 * MEMORY, seconds=3.0))
    endless, lost = "SELECT count(*) FROM range(1000000000000)", []

    def ask() -> None:
        with pytest.raises(ScratchLost) as refused:
            held._run(endless, {}, (), "shop", 60, caller="greedy")
        lost.append(str(refused.value))

    try:
        held._run("SELECT 1", {}, (), "shop", SECONDS)  # children have started
        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        while not held._turns._queues:
            time.sleep(0.01)
        assert rows(held._run("SELECT 1", {}, (), "shop", SECONDS, caller="modest")) == [(1,)]
        held.ping(SECONDS)
        assert lost == [], "all that while the others were still running or waiting"
        for thread in threads:
            thread.join()
        assert lost == ["the outer SQL took too long"] * 3
    finally:
        held.close()
