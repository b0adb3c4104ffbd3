"""What is handed over without the scratch engine is what the scratch engine would have handed over."""

from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.answer import outer as outers
from service.answer.outer import OuterResult, as_released, run_outer
from service.answer.shape import column_to_json, ends_to_json
from service.core.boundary import Array, KeyTable, ReleasedColumn, ReleasedTable
from service.core.plan import Plan, Query
from service.core.request import Ask
from service.core.schema import SqlType
from service.engine.scratch import Scratch
from service.sql.front import understand
from tests.fixtures.sql.corpus import accepted
from tests.fixtures.sql.shop import SCHEMA

GROUPS = 7
SAMPLES: dict[str, list[object]] = {
    "BOOLEAN": [True, False], "BIGINT": [3, -5, 2**62], "DOUBLE": [0.5, -1.25, 1e300], "VARCHAR": ["a", "", "ü'"],
    "DATE": [date(2024, 2, 29), date(1, 1, 1)], "TIMESTAMP": [datetime(2024, 2, 29, 1, 2, 3, 456)],
    "DECIMAL": [1.5, 2.25],
}  # fmt: skip


def objects(type_: SqlType) -> Array:
    samples = [*SAMPLES[type_.name], None]
    made = np.empty(GROUPS, dtype=object)
    made[:] = [samples[at % len(samples)] for at in range(GROUPS)]
    return made


def numbers(type_: SqlType) -> Array:
    kind = np.int64 if type_.name == "BIGINT" else np.float64
    return (np.arange(GROUPS) * 13 - 7).astype(kind)


def released(plan: Plan) -> ReleasedTable:
    size = GROUPS if plan.keys else 1
    keys = {key.name: objects(key.type)[:size] for key in plan.keys}
    columns = {}
    for aggregate in plan.aggregates:
        typed = aggregate.type.name in ("BIGINT", "DOUBLE", "DECIMAL")
        values = (numbers(aggregate.type) if typed else objects(aggregate.type))[:size]
        ends = numbers(SqlType("DOUBLE"))[:size]
        columns[aggregate.name] = ReleasedColumn(values, ends - 3.25, ends + 3.25)
    return ReleasedTable(KeyTable(keys, size), columns, {}, {})


def shown(result: OuterResult) -> tuple[Any, ...]:
    ends = [None if pair is None else ends_to_json(*pair) for pair in result.intervals]
    return result.types, result.size, [column_to_json(cells) for cells in result.cells], ends


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scratch]:
    opened = Scratch(Path(tmp_path_factory.mktemp("scratch")))
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


def test_both_ways_give_the_same_answer(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
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
