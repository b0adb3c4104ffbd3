"""Outer SQL that could not run on any released values is refused before it costs anything, and no other is."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlglot import exp

from service.app import Books, Walk
from service.core.errors import TooBusy
from service.core.plan import Loss, Query
from service.core.request import Ask
from service.core.schema import BIGINT, SqlType
from service.engine.base import ScratchLost
from service.engine.duckdb.scratch import DuckDBScratch
from service.sql.understand import understand
from service.walk.history import HistoryPart
from service.walk.outer_sql import core_columns, is_plain, with_types
from service.walk.question import put_question
from service.walk.rehearsal import SECONDS, Rehearsal, _tables
from tests.fixtures.open_shop import BUYER, shop
from tests.fixtures.released import released
from tests.fixtures.slots import answerer_of
from tests.fixtures.sql.corpus import accepted
from tests.fixtures.sql.shop import SCHEMA
from tests.fixtures.whole import ANALYST, Served, served

PICO = 10**12
GROUPED = "FROM visits GROUP BY ward"
TWO = "WITH a AS (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward), b AS (SELECT MIN(cost) AS low FROM visits)"

# The question; words of the refusal; its line and column.
MISTAKES: list[tuple[str, str, tuple[int, int]]] = [
    (f"SELECT ward, 'a' * COUNT(*) AS n {GROUPED}", "*(STRING_LITERAL, BIGINT)", (1, 14)),
    (f"SELECT ward,\n  UPPER(COUNT(*)) AS n\n{GROUPED}", "upper(BIGINT)", (2, 9)),
    (f"SELECT ward, COUNT(*) AS n {GROUPED}\nHAVING ward > 5", "VARCHAR and type INTEGER_LITERAL", (2, 8)),
    (f"SELECT ward, COUNT(*) AS n {GROUPED}\nHAVING COUNT(*) > 'many'", "string 'many' to INT64", (2, 19)),
    (f"SELECT ward, COUNT(*) AS n {GROUPED}\nORDER BY -ward", "-(VARCHAR)", (2, 11)),
    (f"SELECT COUNT(*) AS n,\n SUM(ward) OVER () AS s {GROUPED}", "sum(VARCHAR)", (2, 6)),
    (f"SELECT COUNT(*) AS n {GROUPED}\nQUALIFY ROW_NUMBER() OVER (ORDER BY n) > ward", "type BIGINT and", (2, 9)),
    (f"SELECT ward,\n CASE WHEN COUNT(*) > 9 THEN 'big' ELSE 0 END AS c {GROUPED}", "string 'big' to INT32", (2, 30)),
    (f"SELECT ward, COALESCE(ward, 0) AS c, COUNT(*) AS n {GROUPED}", "VARCHAR and INTEGER_LITERAL", (1, 23)),
    (f"SELECT ward, INTERVAL '1' DAY AS span, COUNT(*) AS n {GROUPED}", "span is of type INTERVAL", (1, 23)),
    (f"SELECT n, ward FROM (SELECT ward, COUNT(*) AS n {GROUPED}) AS t\nGROUP BY n", "GROUP BY clause", (1, 11)),
    (f"{TWO}\nSELECT ward, (SELECT ward, n FROM a) AS x FROM a", "Subquery returns 2 columns", (2, 22)),
    (f"{TWO}\nSELECT a.n FROM a JOIN b ON a.ward + 1 = b.low", "+(VARCHAR, INTEGER_LITERAL)", (2, 38)),
]  # fmt: skip

COUNTRIES, DAYS = "FROM customers GROUP BY country", "FROM orders GROUP BY placed"
COUNTED = f"SELECT country, COUNT(*) AS n {COUNTRIES}"

# What the corpus has too little of: outer SQL that is right, whatever is released.
RIGHT = [
    f"SELECT placed - INTERVAL '1' MONTH AS p, STRFTIME(placed, '%Y-%m') AS m, COUNT(*) AS n {DAYS} ORDER BY placed",
    f"SELECT placed, COUNT(*) AS n {DAYS} HAVING placed >= DATE '2020-01-01' AND placed < '2021-01-01'",
    f"SELECT placed, COUNT(*) AS n {DAYS} HAVING placed IN ('2020-01-01', '2020-01-02')",
    f"SELECT placed, LAG(COUNT(*), 1, 0) OVER (ORDER BY placed) AS l {DAYS}",
    "SELECT MAX(placed) - MIN(placed) AS days, MAX(placed) + INTERVAL '1' DAY AS after FROM orders",
    "SELECT amount, amount * 2 AS x, COUNT(*) AS n FROM orders GROUP BY amount HAVING amount > 10.5 ORDER BY n / 3",
    "SELECT vip, CASE WHEN vip THEN 'yes' ELSE 'no' END AS v, COUNT(*) AS n FROM customers GROUP BY vip HAVING vip",
    f"SELECT CONCAT(country, '-', COUNT(*)) AS c, country || '!' AS e, LENGTH(country) AS l {COUNTRIES}",
    f"SELECT ROUND(AVG(age), 1) AS a, CAST(COUNT(*) AS VARCHAR) AS t, CAST(country AS INTEGER) AS i {COUNTRIES}",
    f"SELECT SUM(n) // COUNT(*) AS a, MEDIAN(n) AS b, MAX(country) AS c FROM ({COUNTED}) AS t",
    f"SELECT country, n * 1.0 / (SELECT SUM(n) FROM ({COUNTED}) AS u) AS share FROM ({COUNTED}) AS t",
    "SELECT MODE(country) AS c, MODE(country) = 'DE' AS g FROM customers",
    "SELECT status, COUNT(*) AS n FROM orders GROUP BY status HAVING status LIKE 'p%' OR status IS NULL",
    f"{COUNTED} UNION ALL SELECT 'all', COUNT(*) FROM customers ORDER BY n DESC",
    f"SELECT placed AS k, COUNT(*) AS n {DAYS} UNION ALL SELECT NULL, COUNT(*) FROM orders",
    f"SELECT placed, COUNT(*) AS n {DAYS} HAVING placed = CONCAT('2020-01-0', ABS(COUNT(*)) % 9 + 1)",
    f"SELECT placed, COUNT(*) AS n {DAYS} HAVING CONCAT('-', placed) < 'x' AND COALESCE(placed, '2020-01-01') > placed",
    f"WITH a AS (SELECT placed, COUNT(*) AS n {DAYS}) SELECT label, n FROM a JOIN holidays ON on_day = placed",
    "WITH a AS (SELECT store, COUNT(*) AS n FROM orders GROUP BY store)"
    " SELECT s.city, SUM(a.n) AS n FROM a JOIN stores s USING (store) GROUP BY s.city HAVING SUM(a.n) > 3",
    f"SELECT 1 / NULLIF(COUNT(*), 0) AS i, GREATEST(COUNT(*), 0) AS g, COALESCE(country, '?') AS c {COUNTRIES}",
    f"SELECT NTILE(4) OVER (ORDER BY COUNT(*)) AS q, PERCENT_RANK() OVER (ORDER BY country) AS p {COUNTRIES}",
    "SELECT raw, COUNT(*) AS n FROM orders GROUP BY raw HAVING raw <> 1.5 ORDER BY raw NULLS FIRST",
    f"{COUNTED} HAVING country IN ('DE', 'FR') AND COUNT(*) > (SELECT COUNT(*) FROM visits) / 100",
]  # fmt: skip


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("clinic"), epsilon="1000") as opened:
        yield opened


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Books, Walk]]:
    with shop(tmp_path_factory.mktemp("shop")) as opened:
        yield opened


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDBScratch]:
    """Its data folder is empty: whatever it says, it has read no table."""
    held = DuckDBScratch(Path(tmp_path_factory.mktemp("nothing")))
    yield held
    held.close()


def books_of(house: Served) -> tuple[object, object, int]:
    ledger = house.books.ledger
    return ledger.balance("clinic"), ledger.verify(), len(house.walk.answerer.history(ANALYST, HistoryPart()))


def said(response: Any) -> dict[str, Any]:
    problem: dict[str, Any] = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    return {key: value for key, value in problem.items() if key not in ("instance", "query_id", "request_id")}


@pytest.mark.parametrize(("sql", "words", "place"), MISTAKES, ids=[words for _, words, _ in MISTAKES])
def test_a_mistake_in_the_outer_sql_is_refused_for_nothing(
    house: Served, sql: str, words: str, place: tuple[int, int]
) -> None:
    body, before = {"dataset": "clinic", "sql": sql, "epsilon": "0.1"}, books_of(house)
    asked, estimated = (house.ask("POST", path, json=body) for path in ("/v1/queries", "/v1/estimates"))
    problem = said(asked)
    assert (asked.status_code, problem["code"], problem["budget_spent"]) == (422, "construct-refused", False)
    assert words in problem["detail"]
    assert problem["remedy"]
    assert (problem["line"], problem["column"]) == place
    assert said(estimated) == problem
    assert books_of(house) == before, "no charge, no entry, no failure, no history"


def test_a_panel_with_such_a_mistake_is_never_made(house: Served) -> None:
    wanted = {"dataset": "clinic", "sql": MISTAKES[0][0], "epsilon": "0.1", "refresh": None, "budget": "1"}
    refused = house.ask("PUT", "/v1/panels/broken", json=wanted)
    assert (refused.status_code, refused.json()["code"]) == (422, "construct-refused")
    assert house.ask("GET", "/v1/panels/broken").status_code == 404


def test_a_stored_release_does_not_make_a_mistake_right(house: Served) -> None:
    good = {"dataset": "clinic", "sql": f"SELECT ward, COUNT(*) AS n {GROUPED}", "epsilon": "0.1"}
    assert house.ask("POST", "/v1/queries", json=good).status_code in (200, 201)
    for path in ("/v1/queries", "/v1/estimates"):
        refused = house.ask("POST", path, json={**good, "sql": MISTAKES[1][0]})
        assert (refused.status_code, refused.json()["code"]) == (422, "construct-refused")


def test_what_only_released_values_decide_comes_after_the_charge(house: Served) -> None:
    """Wards could be named by numbers; that these are not, the released keys tell."""
    body = {"dataset": "clinic", "sql": "SELECT town AS t, COUNT(*) AS n FROM visits GROUP BY town HAVING t = COUNT(*)"}
    assert house.ask("POST", "/v1/estimates", json={**body, "epsilon": "0.5"}).status_code == 200
    late = house.ask("POST", "/v1/queries", json={**body, "epsilon": "0.5"})
    assert (late.json()["code"], late.json()["budget_spent"]) == ("outer-refused", True)


def test_an_output_whose_copies_do_not_fit_has_no_interval_and_the_others_keep_theirs(house: Served) -> None:
    """Intervals come from copies with fractions, and LEFT takes whole numbers."""
    sql = f"SELECT LEFT(ward, COUNT(*)) AS l, COUNT(*) * 2 AS d {GROUPED}"
    answer = house.ask("POST", "/v1/queries", json={"dataset": "clinic", "sql": sql, "epsilon": "0.1"}).json()
    assert [row[0] for row in answer["rows"]] == ["a", "b", "c"]
    for low, high in zip(answer["low_95"], answer["high_95"], strict=True):
        assert (low[0], high[0]) == (None, None)
        assert low[1] < high[1]


class Watched:
    """A scratch engine that counts what it is asked, or can not be reached at all."""

    def __init__(self, scratch: DuckDBScratch, *, lost: bool = False) -> None:
        self.run, self.scratch, self.lost, self.asked = scratch.run, scratch, lost, 0

    def rehearse(
        self,
        select: exp.Expression,
        tables: Mapping[str, Mapping[str, SqlType]],
        deadline_s: float,
        *,
        caller: str = "",
    ) -> tuple[str, ...]:
        self.asked += 1
        if self.lost:
            raise ScratchLost("no turn")
        return self.scratch.rehearse(select, tables, deadline_s, caller=caller)


def test_a_check_that_can_not_be_made_is_a_free_refusal_to_ask_again(house: Served) -> None:
    walk, before = house.walk, books_of(house)
    answerer = answerer_of(house.books, walk, scratch=Watched(walk.scratch, lost=True))
    ask = Ask("clinic", f"SELECT ward, COUNT(*) + 7 AS n {GROUPED}", Loss("epsilon", PICO))
    attempts: tuple[Callable[[], object], ...] = (
        lambda: answerer.submit(ask, ANALYST, None, "", 30),
        lambda: answerer.estimate(ask, ANALYST),
    )
    for attempt in attempts:
        with pytest.raises(TooBusy, match="could not be checked now"):
            attempt()
    assert books_of(house) == before


def test_it_is_asked_once_and_not_at_all_when_nothing_is_left_to_compute(scratch: DuckDBScratch) -> None:
    watched = Watched(scratch)
    rehearsal = Rehearsal(watched)  # type: ignore[arg-type]
    sorted_ask = Ask("shop", f"{COUNTED} ORDER BY n")
    rehearsal.check(understand(Ask("shop", COUNTED), SCHEMA), SCHEMA)
    assert watched.asked == 0
    for _ in range(3):
        rehearsal.check(understand(sorted_ask, SCHEMA), SCHEMA)
    assert watched.asked == 1
    customers = SCHEMA.tables["customers"]
    numbered = {**customers.columns, "country": replace(customers.columns["country"], type=BIGINT, domain=(1, 2))}
    other = replace(SCHEMA, tables={**SCHEMA.tables, "customers": replace(customers, columns=numbered)})
    rehearsal.check(understand(sorted_ask, other), other)
    assert watched.asked == 2, "the same SQL over other types is another question"


def working() -> list[tuple[str, Query]]:
    """Accepted questions, and right ones, with something for the scratch engine to do."""
    understood = [(sql, understand(Ask("shop", sql), SCHEMA)) for sql in (*accepted(), *RIGHT)]
    return [(sql, query) for sql, query in understood if not is_plain(query)]


def test_the_whole_corpus_passes_without_a_file_being_open(scratch: DuckDBScratch) -> None:
    found = working()
    assert len(found) > 40, "the corpus and RIGHT"
    assert any(query.outer.public_tables for _, query in found)
    rehearsal = Rehearsal(scratch)
    for _, query in found:
        rehearsal.check(query, SCHEMA)


@pytest.mark.parametrize("groups", [0, 1, 7])
def test_released_tables_have_the_types_that_were_rehearsed(scratch: DuckDBScratch, groups: int) -> None:
    """Also where no group was released, or only one whose keys are NULL."""
    for sql, query in working():
        if query.outer.public_tables:
            continue
        tables = {}
        for index, plan in enumerate(query.cores):
            columns = core_columns(released(plan, groups))
            if groups == 1:
                columns |= {key.name: np.array([None], dtype=object) for key in plan.keys}
            tables[f"core_{index}"] = with_types(plan, columns)
        kinds = {name: dict(columns) for name, columns in _tables(query, SCHEMA)}
        told = scratch.rehearse(query.outer.select, kinds, SECONDS)
        assert scratch.run(query.outer.select, tables, (), "shop", SECONDS).types == told, sql


def answerable() -> list[tuple[str, Query]]:
    """Without those that ask for declared keys and nothing else, which pricing refuses."""
    return [
        (sql, query)
        for sql, query in working()
        if any(plan.aggregates or not plan.keys_declared for plan in query.cores)
    ]


@pytest.mark.parametrize(("sql", "query"), answerable(), ids=range(len(answerable())))
def test_answers_of_the_corpus_have_the_types_that_were_rehearsed(
    opened: tuple[Books, Walk], sql: str, query: Query
) -> None:
    """Through all processes, with public tables as they were imported."""
    books, walk = opened
    ask = Ask("shop", sql, Loss("epsilon", 10 * PICO, 10**9))
    schema = books.catalog.schema("shop")
    assert put_question(ask, schema, books.ledger.terms("shop")).query.outer == query.outer
    kinds = {name: dict(columns) for name, columns in _tables(query, schema)}
    told = walk.scratch.rehearse(query.outer.select, kinds, SECONDS)
    answer = json.loads(walk.answerer.submit(ask, BUYER, None, "", 60).body or b"")
    assert [column["type"] for column in answer["columns"]] == list(told[: len(query.outer.outputs)])
