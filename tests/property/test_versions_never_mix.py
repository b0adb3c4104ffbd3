"""Whatever is imported, deleted and added again in any order: a stored answer is given for nothing exactly while every
table that it reads is at the version that it was made from (invariant V3). On both stores, with real imports."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.app import Books, Walk
from service.catalog.declare import TableDeclaration
from service.core.plan import Loss
from service.core.request import Ask
from service.core.schema import Schema
from service.core.versions import NEVER, common_version, versions_of, versions_to_text
from tests.fixtures.ledgers import KINDS
from tests.fixtures.postgres import new_database
from tests.fixtures.whole import ANALYST, DECLARED, clinic

STAYS = {
    "source": {"kind": "parquet", "path": "stays.parquet"},
    "private": True,
    "unit": {"column": "patient"},
    "columns": {"patient": {"type": "BIGINT"}, "days": {"type": "BIGINT", "bounds": [0, 9]}},
}
WARDS = {"source": {"kind": "parquet", "path": "wards.parquet"}, "private": False}
TABLES: dict[str, dict[str, Any]] = {"visits": DECLARED, "stays": STAYS, "wards": WARDS}

# Each question, the tables that its cores read, and all that it reads.
QUESTIONS: dict[str, tuple[set[str], set[str]]] = {
    "SELECT SUM(cost) AS s FROM visits": ({"visits"}, {"visits"}),
    "SELECT COUNT(*) AS n FROM stays": ({"stays"}, {"stays"}),
    "SELECT COUNT(*) AS n FROM visits v JOIN wards w ON v.ward = w.ward": ({"visits", "wards"}, {"visits", "wards"}),
    "SELECT COUNT(*) AS n FROM visits WHERE patient IN (SELECT patient FROM stays)": (
        {"visits", "stays"},
        {"visits", "stays"},
    ),
    "WITH c AS (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward)"
    " SELECT c.ward, w.label, c.n FROM c JOIN wards w ON c.ward = w.ward": ({"visits"}, {"visits", "wards"}),
}


def put(books: Books, table: str) -> None:
    books.administration.put_table("clinic", table, TableDeclaration.model_validate(TABLES[table]), actor="test")
    books.administration.wait("clinic", table)


def ask(walk: Walk, sql: str) -> dict[str, Any]:
    asked = Ask("clinic", sql, Loss("epsilon", 10**9))
    answer: dict[str, Any] = json.loads(walk.answerer.submit(asked, ANALYST, None, sql, 60).body or b"")
    return answer


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [3])
def test_a_stored_answer_is_given_while_all_that_it_reads_is_what_it_was(tmp_path: Path, kind: str, seed: int) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    pq.write_table(pa.table({"patient": [1, 2, 3], "days": [4, 5, 6]}), sources / "stays.parquet")
    pq.write_table(pa.table({"ward": ["a", "b", "c"], "label": ["x", "y", "z"]}), sources / "wards.parquet")
    drawn = random.Random(seed)
    seen: dict[str, set[int]] = {name: set() for name in TABLES}
    paid: dict[str, dict[str, int]] = {}
    with clinic(tmp_path, store_url="" if kind == "sqlite" else new_database()) as (books, walk):
        put(books, "stays")
        put(books, "wards")
        for _ in range(4):
            changed = drawn.choice(list(TABLES))
            before = books.catalog.schema("clinic")
            if drawn.random() < 0.3:
                books.administration.delete_table("clinic", changed, actor="test", reason="a test")
            put(books, changed)
            schema = books.catalog.schema("clinic")
            assert schema.versions[changed] == schema.data_version > before.data_version
            assert schema.versions[changed] not in seen[changed], "a number never comes back"
            seen[changed].add(schema.versions[changed])
            others = [name for name in TABLES if name != changed]
            assert all(schema.versions[name] == before.versions[name] for name in others)
            for sql, (cores, _) in QUESTIONS.items():
                now = {name: schema.versions[name] for name in cores}
                free = ask(walk, sql)["cost"]["epsilon"] == "0"
                assert free == (paid.get(sql) == now), (sql, paid.get(sql), now)
                paid[sql] = now


def test_a_new_public_table_in_the_outer_sql_gives_a_new_answer_for_nothing(tmp_path: Path) -> None:
    """The release is the same, the answer is not: a panel must not take the old one for current."""
    sources = tmp_path / "sources"
    sources.mkdir()
    pq.write_table(pa.table({"ward": ["a", "b", "c"], "label": ["x", "y", "z"]}), sources / "wards.parquet")
    sql = list(QUESTIONS)[-1]
    with clinic(tmp_path) as (books, walk):
        put(books, "wards")
        first = ask(walk, sql)
        asked = Ask("clinic", sql, Loss("epsilon", 10**9))
        shown = walk.answers.get(first["id"])
        assert shown is not None
        assert walk.answerer.shows_now(asked, ANALYST, shown)
        pq.write_table(pa.table({"ward": ["a", "b", "c"], "label": ["p", "q", "r"]}), sources / "wards.parquet")
        put(books, "wards")
        assert not walk.answerer.shows_now(asked, ANALYST, shown)
        second = ask(walk, sql)
        assert (second["cost"]["epsilon"], second["cost"]["replay_of"]) == ("0", first["id"])
        assert {row[1] for row in second["rows"]} == {"p", "q", "r"}
        assert {row[2] for row in second["rows"]} == {row[2] for row in first["rows"]}


def test_versions_that_differ_have_no_number_in_common() -> None:
    schema = Schema("d", "person", {}, data_version=5)
    assert versions_of(schema, ["not_declared"]) == {}
    assert common_version({"a": 5, "b": 5}) == 5
    assert common_version({"a": 5, "b": 6}) == common_version({}) == NEVER
    assert versions_to_text({"b": 1, "a": 2}) == versions_to_text({"a": 2, "b": 1}) == '{"a":2,"b":1}'
