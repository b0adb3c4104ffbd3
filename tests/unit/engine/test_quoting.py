"""The fence: whatever is quoted comes back as it went in, and nothing of it is read as SQL."""

from collections.abc import Iterator
from datetime import date, datetime
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from service.core.schema import BIGINT, BOOLEAN, DATE, DOUBLE, TIMESTAMP, VARCHAR, Scalar, SqlType
from service.engine.emit.spelling import tree_sql
from service.engine.quoting import exact_literal, quoted, string_literal, tried_literal

# Signs that end, escape or comment somewhere, mixed with any others.
SLY = st.text(st.sampled_from("'\"\\;-/*$\n\0 E`[]{}ü\ue000") | st.characters(codec="utf-8"), max_size=30)
INJECTIONS = [
    "'; DROP TABLE t; --",
    '"; DROP TABLE t; --',
    "\\'; SELECT 1; --",
    "$$ SELECT",
    "/*",
    "it's",
    '"',
    "'",
    "",
]


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def value_of(database: duckdb.DuckDBPyConnection, sql: str) -> Any:
    """The one value of the one statement that `SELECT sql` must be, read as the engine's children read it."""
    statements = database.extract_statements(f"SELECT {sql}")
    assert len(statements) == 1
    ((value,),) = database.execute(statements[0]).fetchall()
    return value


@given(text=SLY)
@settings(max_examples=300, deadline=None)
def test_any_text_comes_back_and_is_never_sql(database: duckdb.DuckDBPyConnection, text: str) -> None:
    assert value_of(database, string_literal(text)) == text
    assert value_of(database, exact_literal(text, VARCHAR)) == text
    assert value_of(database, tried_literal(text, VARCHAR)) == text


@pytest.mark.parametrize("text", INJECTIONS)
def test_texts_that_look_like_an_end_of_text_are_texts(database: duckdb.DuckDBPyConnection, text: str) -> None:
    assert value_of(database, string_literal(text)) == text
    assert value_of(database, f"{string_literal(text)} || {string_literal('!')}") == text + "!"


@given(name=SLY.filter(lambda name: name != "" and "\0" not in name))
@settings(max_examples=300, deadline=None)
def test_any_name_is_one_name(database: duckdb.DuckDBPyConnection, name: str) -> None:
    assert value_of(database, f"{quoted(name)} FROM (SELECT 7 AS {quoted(name)})") == 7


def test_a_name_with_a_null_character_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        quoted("a\0b")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, VARCHAR),
        (True, BOOLEAN),
        (-3, BIGINT),
        (2**63 - 1, BIGINT),
        (0.1, DOUBLE),
        (date(2024, 2, 29), DATE),
        (datetime(2024, 2, 29, 1, 2, 3, 4), TIMESTAMP),
    ],
)
def test_a_value_comes_back_as_it_went_in(database: duckdb.DuckDBPyConnection, value: Scalar, kind: SqlType) -> None:
    assert value_of(database, exact_literal(value, kind)) == value
    assert value_of(database, tried_literal(value, kind)) == value


@pytest.mark.parametrize(("value", "kind"), [("many", BIGINT), ("2024-02-30", DATE), (2**70, BIGINT)])
def test_what_is_none_of_its_type_fails_if_exact_and_is_null_if_tried(
    database: duckdb.DuckDBPyConnection, value: Scalar, kind: SqlType
) -> None:
    with pytest.raises(duckdb.ConversionException):
        value_of(database, exact_literal(value, kind))
    assert value_of(database, tried_literal(value, kind)) is None


@pytest.mark.parametrize("text", INJECTIONS)
def test_names_and_texts_in_a_tree_are_quoted_too(database: duckdb.DuckDBPyConnection, text: str) -> None:
    name = text or "empty"
    column = exp.column(exp.to_identifier(name), table="t")
    inner = exp.select(exp.Literal.string(text).as_(name)).subquery("t")
    statements = database.extract_statements(tree_sql(exp.select(column).from_(inner)))
    assert len(statements) == 1
    assert database.execute(statements[0]).fetchall() == [(text,)]
