"""What is handed over without the scratch engine is what the scratch engine would have handed over."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.core.plan import Query
from service.core.request import Ask
from service.engine.duckdb.scratch import DuckDBScratch
from service.sql.understand import understand
from service.walk import outer_sql as outers
from service.walk.answer_json import column_to_json, ends_to_json
from service.walk.outer_sql import OuterResult, as_released, run_outer
from tests.fixtures.released import released
from tests.fixtures.sql.corpus import accepted
from tests.fixtures.sql.shop import SCHEMA


def shown(result: OuterResult) -> tuple[Any, ...]:
    ends = [None if pair is None else ends_to_json(*pair) for pair in result.intervals]
    return result.types, result.size, [column_to_json(cells) for cells in result.cells], ends


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDBScratch]:
    opened = DuckDBScratch(Path(tmp_path_factory.mktemp("scratch")))
    yield opened
    opened.close()


def plain_queries() -> list[tuple[str, Query]]:
    found = []
    for sql in accepted():
        query = understand(Ask("shop", sql), SCHEMA)
        tables = tuple(released(plan) for plan in query.cores)
        if as_released(query, tables) is not None:
            found.append((sql, query))
    return found


def test_both_ways_give_the_same_answer(scratch: DuckDBScratch, monkeypatch: pytest.MonkeyPatch) -> None:
    found = plain_queries()
    assert len(found) > 40, "most questions are plain"
    monkeypatch.setattr(outers, "as_released", lambda *_: None)
    for sql, query in found:
        tables = tuple(released(plan) for plan in query.cores)
        direct = as_released(query, tables)
        assert direct is not None
        assert shown(run_outer(scratch, query, tables, 30)) == shown(direct), sql


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT country, COUNT(*) AS n FROM customers GROUP BY country ORDER BY n",
        "SELECT country, COUNT(*) AS n FROM customers GROUP BY country LIMIT 1",
        "SELECT country, COUNT(*) AS n FROM customers GROUP BY country HAVING COUNT(*) > 3",
        "SELECT country, COUNT(*) + 1 AS n FROM customers GROUP BY country",
        "SELECT COUNT(*) AS n FROM customers GROUP BY country QUALIFY ROW_NUMBER() OVER (ORDER BY country) = 1",
        "SELECT SUM(n) AS s FROM (SELECT country, COUNT(*) AS n FROM customers GROUP BY country) AS c",
    ],
)
def test_whatever_has_work_to_do_goes_to_the_scratch_engine(sql: str) -> None:
    query = understand(Ask("shop", sql), SCHEMA)
    assert as_released(query, tuple(released(plan) for plan in query.cores)) is None
