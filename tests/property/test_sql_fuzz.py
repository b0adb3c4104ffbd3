"""Any text: only a refusal of ours or a plan whose trees hold listed nodes, and plans that mean what the SQL says."""

import random

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.core.errors import BoundsMissing, ConstructRefused, SyntaxRefused
from service.core.plan import Query
from service.core.request import Ask
from service.sql.read.allow import OUTER, ROWS, unlisted
from service.sql.read.parse import DIALECTS
from service.sql.understand import understand
from tests.fixtures.prepared import prepared
from tests.fixtures.sql.corpus import accepted, refused
from tests.fixtures.sql.exact import answer, tidy
from tests.fixtures.sql.shop import SCHEMA, rows

CORPUS = accepted() + [sql for _, _, sql in refused()]
WORDS = sorted(
    {word for sql in CORPUS for word in sql.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()}
)
QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def tried(sql: str, dialect: str = "duckdb") -> Query | None:
    try:
        query = understand(Ask("shop", sql, dialect=dialect), SCHEMA)
    except (SyntaxRefused, ConstructRefused, BoundsMissing):
        return None
    assert unlisted(query.outer.select, OUTER) == []
    for plan in query.cores:
        assert unlisted(plan.rows, ROWS) == []
    return query


@settings(max_examples=300, deadline=None)
@given(
    text=st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")),
    dialect=st.sampled_from(DIALECTS),
)
def test_random_text_is_refused_not_broken(text: str, dialect: str) -> None:
    tried(text, dialect)


@settings(max_examples=300, deadline=None)
@given(words=st.lists(st.sampled_from(WORDS), max_size=25))
def test_random_words_of_sql_are_refused_or_planned(words: list[str]) -> None:
    tried("SELECT " + " ".join(words))


@settings(max_examples=400, deadline=None, suppress_health_check=QUIET)
@given(seed=st.integers(0, 2**32), dialect=st.sampled_from(["duckdb"] * 8 + list(DIALECTS)))
def test_mutated_queries_are_refused_or_run_without_error(
    seed: int, dialect: str, database: duckdb.DuckDBPyConnection
) -> None:
    draw = random.Random(seed)
    words = draw.choice(CORPUS).replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(words))
        change = draw.randrange(4)
        if change == 0 and len(words) > 1:
            del words[at]
        elif change == 1:
            words.insert(at, draw.choice(WORDS))
        elif change == 2:
            words[at] = draw.choice(WORDS)
        else:
            words[at:at] = words[max(0, at - draw.randrange(6)) : at]
    query = tried(" ".join(words), dialect)
    if query is not None:
        for plan in query.cores:
            database.execute(plan.rows.sql(dialect="duckdb")).fetchall()


TABLES = {
    "customers": (
        ["age"],
        ["country", "vip", "age", "name"],
        ["age > 30", "country = 'DE'", "name LIKE 'A%'", "vip", "age IS NULL"],
    ),
    "orders": (
        ["amount", "amount * 2 - 1", "CASE WHEN store = 1 THEN amount END"],
        ["status", "store", "YEAR(placed)"],
        ["amount > 100", "status IN ('open', 'paid')", "store <> 2", "placed < DATE '2021-01-01'"],
    ),
    "orders JOIN customers USING (customer_id)": (
        ["amount", "age", "amount - age"],
        ["country", "status"],
        ["age < 60", "amount > 1"],
    ),
    "items JOIN products USING (product_id)": (
        ["price", "price * quantity", "price * (1 - discount)"],
        ["kind", "quantity"],
        ["cost > 2"],
    ),
    "(SELECT customer_id, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY customer_id) t": (
        ["n", "total"],
        ["n"],
        ["n > 1"],
    ),
}


@st.composite
def questions(draw: st.DrawFn) -> str:
    source = draw(st.sampled_from(sorted(TABLES)))
    numbers, keys, tests = TABLES[source]
    group = draw(st.lists(st.sampled_from(keys), max_size=2, unique=True))
    function = st.sampled_from(["SUM", "AVG", "COUNT", "MIN", "MAX", "COUNT(DISTINCT"])
    calls = [
        f"{call}{'(' if not call.endswith('DISTINCT') else ' '}{number})"
        for call, number in draw(st.lists(st.tuples(function, st.sampled_from(numbers)), min_size=1, max_size=3))
    ]
    calls = [
        call if not draw(st.booleans()) else f"{call} FILTER (WHERE {draw(st.sampled_from(tests))})" for call in calls
    ]
    where = draw(st.lists(st.sampled_from(tests), max_size=2, unique=True))
    having = draw(st.sampled_from(["", " HAVING COUNT(*) > 2"])) if group else ""
    text = f"SELECT {', '.join([*group, *calls])}, COUNT(*) FROM {source}"
    text += f" WHERE {draw(st.sampled_from([' AND ', ' OR '])).join(where)}" if where else ""
    return text + (f" GROUP BY {', '.join(group)}" if group else "") + having


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    return prepared(SCHEMA, rows(11))


@settings(max_examples=150, deadline=None, suppress_health_check=QUIET)
@given(sql=questions())
def test_a_generated_question_equals_plain_sql_without_noise(sql: str, database: duckdb.DuckDBPyConnection) -> None:
    query = tried(sql)
    assert query is not None
    expected = database.execute(sql).fetchall()
    _, found = answer(database, query)
    assert _nothing_is_zero(tidy(found)) == _nothing_is_zero(tidy(expected))


def _nothing_is_zero(cells: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """A released SUM over no rows is 0, plain SQL says NULL."""
    return sorted(tuple("0" if cell == "None" else cell for cell in row) for row in cells)
