"""Attacks on the wall between untrusted text and private rows: each must be refused, or must not reach the engine."""

import re

import duckdb
import pytest
import sqlglot

from service.core.errors import ConstructRefused, ServiceError, SyntaxRefused
from service.core.plan import Query
from service.core.prepared import UNIT_COLUMN
from service.core.request import Ask
from service.sql.read.parse import DIALECTS
from service.sql.understand import understand
from tests.fixtures.prepared import prepared
from tests.fixtures.sql.shop import SCHEMA, rows


def ask(sql: str, dialect: str = "duckdb") -> Query:
    return understand(Ask("shop", sql, dialect=dialect), SCHEMA)


ESCAPES = [
    "SELECT COUNT(*) FROM read_csv('/etc/passwd')",
    "SELECT COUNT(*) FROM '/etc/passwd'",
    "SELECT COUNT(*) FROM customers, glob('*')",
    "SELECT COUNT(*) FROM customers, (SELECT * FROM read_parquet('x')) p",
    "SELECT COUNT(*) FROM customers WHERE 1 = (SELECT COUNT(*) FROM read_text('x'))",
    "SELECT COUNT(*), (SELECT content FROM read_text('x')) FROM customers",
    "COPY customers TO 'x'",
    "ATTACH 'x.db'",
    "INSTALL httpfs",
    "SET threads = 1",
    "PRAGMA database_list",
    "CALL pragma_version()",
    "EXPLAIN SELECT COUNT(*) FROM customers",
    "EXPLAIN ANALYZE SELECT COUNT(*) FROM customers",
    "DESCRIBE customers",
    "SUMMARIZE customers",
    "SHOW TABLES",
    "SELECT COUNT(*) FROM customers; DROP TABLE customers",
    "SELECT COUNT(*) FROM information_schema.tables",
    "SELECT COUNT(*) FROM duckdb_tables()",
    "SELECT COUNT(*) FROM pragma_storage_info('customers')",
    "SELECT COUNT(*) FROM query('SELECT 1')",
    "SELECT COUNT(*) FROM query_table('customers')",
    "SELECT COUNT(*) FROM customers WHERE current_setting('memory_limit') = 'x'",
    "SELECT COUNT(*) FROM customers WHERE getvariable('x') = 1",
    "SELECT COUNT(*) FROM customers WHERE sleep_ms(1000) IS NULL",
    "SELECT COUNT(*) FROM customers WHERE LEN(range(100000000)) > 1",
    "SELECT COUNT(*) FROM customers WHERE REPEAT('x', 1000000000) = name",
    "SELECT COUNT(*) FROM customers WHERE regexp_matches(name, name)",
    "SELECT COUNT(*) FROM customers WHERE name LIKE '%a' ESCAPE name",
    "SELECT COUNT(*) FROM customers WHERE json_extract(name, '$.a') IS NULL",
    "SELECT COUNT(*) FROM customers WHERE CAST(name AS JSON) IS NULL",
    "SELECT COUNT(*) FROM customers WHERE name COLLATE nocase = 'a'",
    "SELECT COUNT(*) FROM customers WHERE name.upper() = 'A'",
    "SELECT COUNT(*) FROM customers WHERE [x for x in [1, 2]] IS NULL",
    "SELECT COUNT(*) FROM customers WHERE {'a': 1} IS NULL",
    "SELECT COUNT(*) FROM customers WHERE list_aggregate([1], 'sum') = 1",
    "SELECT COUNT(customers) FROM customers",
    "SELECT COUNT(*) FROM customers POSITIONAL JOIN orders",
    "SELECT COUNT(*) FROM customers ASOF JOIN orders ON customers.customer_id = orders.customer_id",
    "SELECT COUNT(*) FROM customers, LATERAL (SELECT 1)",
    "SELECT COUNT(*) FROM customers, UNNEST([1, 2, 3])",
    "SELECT COUNT(*) FROM (VALUES (1), (2)) v, customers",
    "SELECT COUNT(*) FROM customers USING SAMPLE 1",
    "SELECT COUNT(*) FROM customers AT (VERSION => 1)",
    "SELECT COLUMNS('.*') FROM customers",
    "SELECT * REPLACE (1 AS age) FROM customers",
    "SELECT MAX(COLUMNS(*)) FROM customers",
    "SELECT COUNT(*) FROM customers WHERE $1 = 1",
    "SELECT COUNT(*) FROM customers WHERE ? = 1",
    "SELECT /*+ hint */ COUNT(*) INTO x FROM customers",
    "FROM customers",
    "TABLE customers",
    "VALUES (1)",
    "WITH x AS (DELETE FROM customers RETURNING *) SELECT COUNT(*) FROM x",
    "CREATE TABLE t AS SELECT COUNT(*) FROM customers",
    "SELECT COUNT(*) FROM customers UNION SELECT customer_id FROM customers",
    "SELECT COUNT(*) FROM customers ORDER BY (SELECT name FROM customers)",
    "SELECT COUNT(*) FROM customers LIMIT (SELECT age FROM customers)",
    "SELECT COUNT(*) FILTER (WHERE age > (SELECT 1 FROM orders)) FROM customers",
    "SELECT SUM(age) OVER () FROM customers",
    "SELECT COUNT(*) FROM customers HAVING age > 3",
    "SELECT COUNT(*) FROM customers WHERE COUNT(*) > 1",
    "SELECT COUNT(*) FROM customers WHERE ROW_NUMBER() OVER () = 1",
]


@pytest.mark.parametrize("sql", ESCAPES)
def test_a_known_escape_is_refused(sql: str) -> None:
    with pytest.raises((ConstructRefused, SyntaxRefused)):
        ask(sql)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "sql", ["SELECT * FROM customers", "SELECT customer_id, COUNT(*) FROM orders GROUP BY customer_id"]
)
def test_no_dialect_opens_a_door(dialect: str, sql: str) -> None:
    with pytest.raises(ServiceError):
        ask(sql, dialect)


RENAMED = [
    "SELECT uid, COUNT(*) FROM (SELECT customer_id AS uid FROM orders) s GROUP BY uid",
    "SELECT u, COUNT(*) FROM (SELECT customer_id + 0 AS u FROM orders) s GROUP BY u",
    "SELECT o.a, COUNT(*) FROM (SELECT * FROM visits) AS o(a, b, c) GROUP BY o.a",
    "SELECT CAST(customer_id AS VARCHAR) AS k, COUNT(*) FROM orders GROUP BY k",
    "SELECT CASE WHEN vip THEN customer_id END AS k, COUNT(*) FROM customers GROUP BY k",
    "SELECT COALESCE(o.customer_id, 0), COUNT(*) FROM customers c LEFT JOIN orders o USING (customer_id) GROUP BY 1",
    "SELECT m, COUNT(*) FROM (SELECT customer_id, MAX(customer_id) AS m FROM orders GROUP BY customer_id) s GROUP BY m",
    "SELECT k, COUNT(*) FROM (SELECT visitor AS k FROM visits UNION ALL SELECT customer_id FROM orders) s GROUP BY k",
]


@pytest.mark.parametrize("sql", RENAMED)
def test_the_unit_is_followed_through_names_and_expressions(sql: str) -> None:
    with pytest.raises(ConstructRefused, match="must not be shown"):
        ask(sql)


def test_a_column_that_is_only_called_like_the_unit_does_not_tie_private_rows() -> None:
    with pytest.raises(ConstructRefused, match="other than the unit"):
        ask("SELECT COUNT(*) FROM (SELECT store AS customer_id FROM orders) o JOIN customers c USING (customer_id)")


def test_text_of_the_analyst_never_reaches_the_engine_but_as_a_checked_literal() -> None:
    canary = "zq'; DROP TABLE customers; --"
    doubled = canary.replace("'", "''")
    query = ask(f"SELECT COUNT(*) AS \"{canary}\" FROM customers AS zqalias WHERE name = '{doubled}' /* zqcomment */")
    (plan,) = query.cores
    engine = plan.rows.sql(dialect="duckdb")
    assert "zqalias" not in engine
    assert "zqcomment" not in engine
    (literal,) = plan.rows.find_all(sqlglot.exp.Literal)
    assert literal.this == canary
    assert len(sqlglot.parse(engine, dialect="duckdb")) == 1
    database = prepared(SCHEMA, rows(1))
    database.execute(engine).fetchall()
    assert database.execute("SELECT count(*) FROM customers").fetchall()[0][0] > 0


@pytest.mark.parametrize("value", ["it''s", "\\", "\\''", "%_", "é😀", "' || (SELECT 1) || '", "a\tb"])
def test_strings_come_through_the_generator_unchanged(value: str) -> None:
    written = value if value.count("'") == 2 and "''" in value else value.replace("'", "''")
    (plan,) = ask(f"SELECT COUNT(*) FROM customers WHERE name = '{written}'").cores
    (literal,) = plan.rows.find_all(sqlglot.exp.Literal)
    text = literal.sql(dialect="duckdb")
    assert duckdb.connect().execute(f"SELECT {text}").fetchall()[0][0] == literal.this


def test_every_emitted_name_is_quoted_and_known() -> None:
    (plan,) = ask("SELECT c.country, SUM(o.amount) FROM customers c JOIN orders o USING (customer_id) GROUP BY 1").cores
    names = {node.this for node in plan.rows.find_all(sqlglot.exp.Identifier)}
    assert all(node.args.get("quoted") for node in plan.rows.find_all(sqlglot.exp.Identifier))
    declared = {column for table in SCHEMA.tables.values() for column in table.columns}
    ours = {UNIT_COLUMN, *SCHEMA.tables, *declared, *(f"{column}#" for column in declared)}
    assert all(name in ours or re.fullmatch(r"[tkmdcg]\d+", name) for name in names)


def test_comparing_with_odd_letters_finds_no_other_function_or_table() -> None:
    for sql in (
        "SELECT СOUNT(*) FROM customers",
        "SELECT COUNT(*) FROM сustomers",
        "SELECT COUNT(*) FROM customers\u200b",
    ):
        with pytest.raises(ServiceError):
            ask(sql)
