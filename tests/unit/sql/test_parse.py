"""Limits hold before they can hurt, and syntax errors say where."""

import contextlib
import time

import pytest

from service.core.errors import BoundsMissing, ConstructRefused, ServiceError, SyntaxRefused
from service.core.request import Ask
from service.sql.expr.compiler import CHAIN
from service.sql.read.parse import DEPTH, DIALECTS, IN_ITEMS, JOINS, NESTING, OUTPUTS
from service.sql.understand import understand
from tests.fixtures.sql.shop import SCHEMA

DOUBLED = ", ".join(f"a{i - 1} + a{i - 1} AS a{i}" for i in range(1, 45))


def twice(rows: str, times: int = 30) -> str:
    """Rows that are read 2^times times."""
    queries = [f"c{i} AS (SELECT * FROM c{i - 1} UNION ALL SELECT * FROM c{i - 1})" for i in range(1, times)]
    return f"WITH c0 AS ({rows}), {', '.join(queries)} SELECT SUM(n) AS n FROM c{times - 1}"


BOMBS = {
    "5,000 parentheses": "SELECT COUNT(*) FROM customers WHERE " + "(" * 5000 + "1=1" + ")" * 5000,
    "5,000 open parentheses": "SELECT " + "(" * 5000,
    "a 1 MB list": "SELECT COUNT(*) FROM customers WHERE age IN (" + ",".join(["1"] * 500_000) + ")",
    "a 60 KB list": "SELECT COUNT(*) FROM customers WHERE age IN (" + ",".join(["1"] * 30_000) + ")",
    "nested CASE": "SELECT COUNT(*) FROM customers WHERE " + "CASE WHEN vip THEN " * 900 + "1" + " END" * 900 + " = 1",
    "a chain of NOT": "SELECT COUNT(*) FROM customers WHERE " + "NOT " * 5000 + "vip",
    "a chain of minus": "SELECT SUM(" + "- " * 5000 + "age) FROM customers",
    "a chain of plus": "SELECT SUM(age" + " + 1" * 4000 + ") FROM customers",
    "a chain of casts": "SELECT SUM(age" + "::INT" * 2000 + ") FROM customers",
    "nested functions": "SELECT COUNT(*) FROM customers WHERE " + "ABS(" * 500 + "age" + ")" * 500 + " > 1",
    "a chain of OR": "SELECT COUNT(*) FROM customers WHERE vip" + " OR vip" * 3500,
    "nested subqueries": "SELECT COUNT(*) FROM " + "(SELECT * FROM " * 200 + "customers" + ")" * 200,
    "a chain of UNION": "SELECT COUNT(*) FROM customers" + " UNION ALL SELECT COUNT(*) FROM customers" * 900,
    "many comma joins": "SELECT COUNT(*) FROM customers" + "".join(f", products p{i}" for i in range(50)),
    "nested COALESCE": "SELECT SUM(" + "COALESCE(" * 28 + "age" + ", 1)" * 28 + ") FROM customers",
    "nested LEAST": "SELECT SUM(" + "LEAST(" * 28 + "age" + ", 1)" * 28 + ") FROM customers",
    "nested NULLIF": "SELECT SUM(" + "NULLIF(" * 28 + "age" + ", 1)" * 28 + ") FROM customers",
    "nested SQRT": "SELECT SUM(" + "SQRT(" * 28 + "age" + ")" * 28 + ") FROM customers",
    "nested DATE_TRUNC": "SELECT "
    + "DATE_TRUNC('day', " * 28
    + "joined"
    + ")" * 28
    + ", COUNT(*) FROM customers GROUP BY 1",
    "nested CASE with a subject": "SELECT SUM("
    + "CASE " * 14
    + "age"
    + " WHEN 1 THEN 1 WHEN 2 THEN 2 END" * 14
    + ") FROM customers",
    "nested BETWEEN": "SELECT COUNT(*) FROM customers WHERE " + "(" * 25 + "vip" + " BETWEEN true AND false)" * 25,
    "nested casts of conditions": "SELECT SUM(" + "CAST((" * 13 + "age" + " > 1) AS INT)" * 13 + ") FROM customers",
    "nested squares": "SELECT SUM(" + "POW(" * 28 + "age" + ", 2)" * 28 + ") FROM customers",
    "brackets": "SELECT " + "[" * 3000 + "]" * 3000,
    "comments": "SELECT /* " * 3000 + " */" * 3000,
    "quotes": "SELECT " + "'" * 60_000,
    "aliases of aliases": f"SELECT COUNT(*) AS a0, {DOUBLED} FROM orders",
    "aliases of aliases in a condition": f"SELECT COUNT(*) AS a0, {DOUBLED} FROM orders HAVING a44 > 0",
    "aliases of aliases, backwards": "SELECT "
    + ", ".join(f"a{i + 1} + a{i + 1} AS a{i}" for i in range(44))
    + ", COUNT(*) AS a44 FROM orders",
    "aliases of aliases per unit": f"SELECT SUM(a44) FROM (SELECT customer_id, SUM(amount) AS a0, {DOUBLED}"
    " FROM orders GROUP BY customer_id) t",
    "private rows twice, twice, …": twice("SELECT customer_id, amount AS n FROM orders"),
    "released rows twice, twice, …": twice("SELECT COUNT(*) AS n FROM orders"),
    "public rows twice, twice, …": twice("SELECT store AS n FROM stores") + ", (SELECT COUNT(*) AS m FROM orders) z",
    "sums of sums": "WITH c0 AS (SELECT COUNT(*) AS n FROM orders), "
    + ", ".join(f"c{i} AS (SELECT n + n AS n FROM c{i - 1})" for i in range(1, 40))
    + " SELECT n * 2 AS n FROM c39",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_at_once_and_nothing_breaks(name: str) -> None:
    start = time.process_time()
    with contextlib.suppress(SyntaxRefused, ConstructRefused, BoundsMissing):
        understand(Ask("shop", BOMBS[name]), SCHEMA)
    assert time.process_time() - start < 2


def test_5000_parentheses_and_a_long_list_are_refused() -> None:
    for name in ("5,000 parentheses", "a 1 MB list", "nested CASE", "a chain of plus"):
        with pytest.raises(ConstructRefused) as refusal:
            understand(Ask("shop", BOMBS[name]), SCHEMA)
        assert refusal.value.extra["remedy"]


def test_what_stays_within_the_limits_is_answered() -> None:
    inner = "(" * (NESTING - 2) + "age" + ")" * (NESTING - 2)
    understand(Ask("shop", f"SELECT SUM({inner}) FROM customers"), SCHEMA)
    items = ",".join(str(i) for i in range(IN_ITEMS))
    understand(Ask("shop", f"SELECT COUNT(*) FROM customers WHERE age IN ({items})"), SCHEMA)
    understand(Ask("shop", "SELECT " + ", ".join(["COUNT(*)"] * OUTPUTS) + " FROM customers"), SCHEMA)
    understand(Ask("shop", "SELECT COUNT(*) FROM customers WHERE " + " AND ".join(["vip"] * CHAIN)), SCHEMA)


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT {', '.join(['COUNT(*)'] * (OUTPUTS + 1))} FROM customers",
        f"SELECT COUNT(*) FROM customers WHERE age IN ({','.join(['1'] * (IN_ITEMS + 1))})",
        "SELECT COUNT(*) FROM customers" + "".join(f", products p{i}" for i in range(JOINS + 1)),
        f"SELECT SUM(age{' + 1' * (DEPTH + 1)}) FROM customers",
    ],
)
def test_one_beyond_a_limit_is_refused(sql: str) -> None:
    with pytest.raises(ConstructRefused, match="more than"):
        understand(Ask("shop", sql), SCHEMA)


@pytest.mark.parametrize(
    ("sql", "line", "column"),
    [
        ("SELECT COUNT(* FROM customers", 1, None),
        ("SELECT COUNT(*)\nFROM customers WHERE AND", 2, None),
        ("", 1, None),
        ("SELECT 1; SELECT 2", 1, None),
        ("SELECT COUNT(*) FROM cust\x00omers", 1, 26),
        ("SELECT 'abc", 1, None),
    ],
)
def test_a_syntax_error_says_where(sql: str, line: int, column: int | None) -> None:
    with pytest.raises(ServiceError) as refusal:
        understand(Ask("shop", sql), SCHEMA)
    assert isinstance(refusal.value, SyntaxRefused | ConstructRefused)
    if isinstance(refusal.value, SyntaxRefused):
        assert refusal.value.extra["line"] == line
        assert column is None or refusal.value.extra["column"] == column


@pytest.mark.parametrize(
    ("sql", "place", "said"),
    [
        ("SELECT COUNT(* FROM customers", (1, 16), ") is expected here"),
        ("SELECT country COUNT(*) FROM customers", (1, 21), "( can not follow here"),
        ("SELEC country FROM customers", (1, 15), "FROM can not follow here"),
        ("SELECT COUNT(*) FROM", (1, 17), "table name is expected here"),
        ("  ", (1, 1), "the SQL is empty"),
        ("SELECT 1; SELECT 2", (1, 1), "exactly one statement is expected"),
    ],
)
def test_a_syntax_error_reads_as_a_sentence_without_the_parser_s_words(
    sql: str, place: tuple[int, int], said: str
) -> None:
    with pytest.raises(SyntaxRefused) as refusal:
        understand(Ask("shop", sql), SCHEMA)
    extra = refusal.value.extra
    assert (extra["line"], extra["column"]) == place
    assert refusal.value.detail == said
    assert extra["remedy"]


@pytest.mark.parametrize(
    ("sql", "remedy"),
    [
        ("SELECT contry, COUNT(*) FROM customers GROUP BY 1", "did you mean country? use one of: age, country"),
        ("SELECT COUNT(*) FROM custmers", "did you mean customers? use one of: "),
        ("SELECT COUNT(*) AS n FROM customers WHERE n > 5", "n is an output: put conditions on it into HAVING"),
        ("SELECT country, COUNT(*) AS n FROM customers GROUP BY 1 ORDER BY m", "name an output: country, n"),
        ("SELECT country FROM customers WHERE COUNT(*) > 5 GROUP BY 1", "into HAVING"),
    ],
)
def test_a_slip_is_told_what_was_probably_meant(sql: str, remedy: str) -> None:
    with pytest.raises(ConstructRefused) as refusal:
        understand(Ask("shop", sql), SCHEMA)
    assert remedy in str(refusal.value.extra["remedy"])


def test_a_refusal_points_at_the_construct() -> None:
    with pytest.raises(ConstructRefused) as refusal:
        understand(
            Ask("shop", "SELECT country,\n       COUNT(*)\nFROM customers\nWHERE   random() < 1\nGROUP BY 1"), SCHEMA
        )
    assert (refusal.value.extra["line"], refusal.value.extra["column"]) == (4, 9)


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        ("postgres", "SELECT date_trunc('month', placed) AS m, COUNT(*) FROM orders GROUP BY 1"),
        ("bigquery", "SELECT country, COUNTIF(age > 30) AS n FROM `customers` GROUP BY country"),
        ("snowflake", "SELECT COUNT(*) FROM customers WHERE IFF(age > 3, TRUE, FALSE)"),
        ("spark", "SELECT country, AVG(age) FROM customers GROUP BY country"),
        ("trino", "SELECT approx_percentile(age, 0.5) FROM customers"),
        ("mysql", "SELECT `country`, COUNT(*) FROM `customers` GROUP BY `country`"),
    ],
)
def test_other_dialects_are_read(dialect: str, sql: str) -> None:
    assert dialect in DIALECTS
    assert understand(Ask("shop", sql, dialect=dialect), SCHEMA).cores


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(ConstructRefused, match="not read"):
        understand(Ask("shop", "SELECT 1", dialect="cobol"), SCHEMA)
