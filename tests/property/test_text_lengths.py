"""No row's text is longer than was inferred before any row was read (invariant R2)."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlglot import exp

from service.core.errors import ConstructRefused
from service.core.request import Ask
from service.core.schema import BIGINT, BOOLEAN, DATE, TIMESTAMP, VARCHAR, Column, Schema, SqlType, Table, UnitColumn
from service.core.sizes import PrivateSize, PublicSize, Size
from service.engine.worst_case import lengths as counted_lengths
from service.engine.worst_case.rows import bounded_rows
from service.sql.expr import lengths
from service.sql.understand import understand
from tests.fixtures.prepared import prepared

COLUMNS = (
    Column("person", BIGINT),
    Column("a", VARCHAR, max_bytes=12),
    Column("b", VARCHAR, max_bytes=40),
    Column("day", DATE),
    Column("moment", TIMESTAMP),
    Column("n", BIGINT),
    Column("m", SqlType("DECIMAL", 38, 38)),
    Column("flag", BOOLEAN),
)
NOTES = Table("notes", {column.name: column for column in COLUMNS}, UnitColumn("person"))
PLACES = Table("places", {"name": Column("name", VARCHAR)}, None)
SCHEMA = Schema("d", "person", {"notes": NOTES, "places": PLACES}, sizes={"places": PublicSize(3, {}, {"name": 9})})
SIZES: dict[str, Size] = {"notes": PrivateSize(1_000, 2, 1_000), "places": PublicSize(3, {}, {"name": 9})}

# Each fills its column to the last byte with one kind of character, or is one that letter case makes longer.
LONGEST = ["a" * 12, "ß" * 6, "Ⱥ" * 6, "ɐ" * 6, "€" * 4, "🎉" * 3, " " * 12, "aß€ 🎉", "", None]
WILD = "(SELECT unnest($1) a), (SELECT unnest($2) b), (SELECT unnest([true, false, NULL]) flag)"
EDGES = (
    "(SELECT unnest(['infinity'::DATE, DATE '5881580-07-10', DATE '5877642-06-25 (BC)', DATE '2020-12-31']) AS day,"
    " unnest(['-infinity'::TIMESTAMP, TIMESTAMP '294247-01-10 04:00:54.775806', TIMESTAMP '2020-02-02 02:02:02.000001',"
    " TIMESTAMP '290309-12-22 (BC) 00:00:00.123456']) AS moment,"
    " unnest([-9223372036854775808, 9223372036854775807, 0, NULL]) AS n,"
    f" unnest(['-0.{'9' * 38}', '0', NULL, '0.5']::DECIMAL(38,38)[]) AS m)"
)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = prepared(SCHEMA, {"places": [{"name": "x" * 9}, {"name": "€€€"}, {"name": None}]})
    tall = [None if text is None else (text * 8).encode()[:40].decode(errors="ignore") for text in LONGEST]
    connection.execute(
        f'INSERT INTO notes BY NAME SELECT 1 AS person, *, 0 AS "#unit", 0 AS "#rank" FROM {WILD}, {EDGES}',
        [LONGEST, tall],
    )
    connection.execute('INSERT INTO notes BY NAME SELECT 2 AS person, \'\' AS a, 1 AS "#unit", 0 AS "#rank"')
    yield connection
    connection.close()


LEAVES = st.sampled_from(
    [
        "a", "b", "name", "'x'", "'ß€'", "''", "CAST(n AS VARCHAR)", "CAST(day AS VARCHAR)", "CAST(m AS VARCHAR)",
        "CAST(moment AS VARCHAR)", "CAST(flag AS VARCHAR)", "CAST(12345 AS VARCHAR)", "CAST(-0.25 AS VARCHAR)",
        "STRFTIME(day, '%Y-%m-%d %j')", "STRFTIME(moment, '%H:%M:%S %y')", "CAST(NULL AS VARCHAR)",
    ]
)  # fmt: skip
ONE = st.sampled_from(
    [
        "UPPER({})", "LOWER({})", "TRIM({})", "LTRIM({})", "RTRIM({})", "LEFT({}, 3)", "RIGHT({}, 2)", "LEFT({}, 0)",
        "SUBSTRING({}, 2, 5)", "SUBSTRING({}, 3)", "REPLACE({}, 'a', '€')", "REPLACE({}, ' ', '🎉')",
        "REPLACE({}, 'ßß', 'ßa')", "REPLACE({}, '€', '')", "SPLIT_PART({}, 'a', 1)", "NULLIF({}, 'a')",
        "COALESCE({}, 'none')", "CAST({} AS VARCHAR)",
    ]
)  # fmt: skip
TWO = st.sampled_from(
    [
        "({}) || ({})", "CONCAT({}, {})", "CASE WHEN flag THEN {} ELSE {} END",
        "CASE WHEN flag THEN {} WHEN n > 0 THEN {} END",
        "COALESCE({}, {})", "IF(flag, {}, {})", "GREATEST({}, {})", "LEAST({}, {})", "CONCAT({0}, {1}, {0}, '€', {1})",
    ]
)  # fmt: skip


def combine(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    one = st.builds(lambda form, part: form.format(part), ONE, inner)
    return one | st.builds(lambda form, left, right: form.format(left, right), TWO, inner, inner)


TEXTS = st.recursive(LEAVES, combine, max_leaves=6)
SHAPES = [
    "SELECT {}, COUNT(*) FROM notes CROSS JOIN places GROUP BY 1",
    "SELECT COUNT(DISTINCT {}) FROM notes CROSS JOIN places",
    "SELECT x, COUNT(*) FROM (SELECT person, MAX({}) AS x FROM notes CROSS JOIN places GROUP BY person) GROUP BY x",
    "SELECT UPPER(x), COUNT(*) FROM (SELECT person, {} AS x, COUNT(*) AS c FROM notes CROSS JOIN places"
    " GROUP BY person, {}) GROUP BY 1",
    "SELECT COUNT(DISTINCT x) FROM (SELECT person, {} AS x FROM notes CROSS JOIN places"
    " UNION ALL SELECT person, a FROM notes)",
]


def excess(database: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[str, int, int]]:
    """Keys and attributes of which some row has more bytes than inferred: (name, found, inferred)."""
    (plan,) = understand(Ask("d", sql), SCHEMA).cores
    beyond = []
    for part in (*plan.keys, *plan.attributes):
        if part.type == VARCHAR:
            assert part.max_bytes is not None, "every length here is declared, measured or written"
            (found,) = database.execute(
                f'SELECT max(strlen("{part.name}")) FROM ({plan.rows.sql(dialect="duckdb")})'
            ).fetchall()[0]
            if found is not None and found > part.max_bytes:
                beyond.append((part.name, found, part.max_bytes))
    return beyond


def within(max_bytes: int) -> st.SearchStrategy[str]:
    return st.text(max_size=max_bytes).map(lambda text: text.encode()[:max_bytes].decode(errors="ignore"))


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(expression=TEXTS, shape=st.sampled_from(SHAPES), a=within(12), b=within(40))
def test_no_text_is_longer_than_was_inferred(
    database: duckdb.DuckDBPyConnection, expression: str, shape: str, a: str, b: str
) -> None:
    database.execute("UPDATE notes SET a = $1, b = $2 WHERE person = 2", [a, b])
    with suppress(ConstructRefused):  # too long, or a type that does not fit
        assert excess(database, shape.replace("{}", expression)) == []


def longer_than_counted(database: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[str, int, int]]:
    """The same of what the worst case reads off the tree: (name, found, counted)."""
    (plan,) = understand(Ask("d", sql), SCHEMA).cores
    columns = bounded_rows(plan, SIZES).shape.columns
    beyond = []
    for part in (*plan.keys, *plan.attributes):
        if part.type == VARCHAR:
            text = f'SELECT max(strlen("{part.name}")) FROM ({plan.rows.sql(dialect="duckdb")})'
            (found,) = database.execute(text).fetchall()[0]
            counted = columns["", part.name].text
            if found is not None and found > counted:
                beyond.append((part.name, found, counted))
    return beyond


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(expression=TEXTS, shape=st.sampled_from(SHAPES), a=within(12), b=within(40))
def test_nor_longer_than_the_worst_case_counts(
    database: duckdb.DuckDBPyConnection, expression: str, shape: str, a: str, b: str
) -> None:
    database.execute("UPDATE notes SET a = $1, b = $2 WHERE person = 2", [a, b])
    with suppress(ConstructRefused):
        assert longer_than_counted(database, shape.replace("{}", expression)) == []


def test_a_count_that_takes_joined_texts_for_numbers_is_caught(
    database: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = "SELECT COUNT(DISTINCT CONCAT(a, b, 'x')) FROM notes"
    assert longer_than_counted(database, joined) == []
    monkeypatch.setattr(counted_lengths, "NUMBERS", (*counted_lengths.NUMBERS, exp.DPipe))
    assert longer_than_counted(database, joined)


TWINS: list[tuple[str, str, Callable[..., int | None]]] = [
    ("UPPER(a)", "other_case", lambda value: value.max_bytes),
    ("REPLACE(a, 'a', '€')", "replaced", lambda value, old, new: value.max_bytes),
    ("a || b", "joined", lambda values: max(value.max_bytes for value in values)),
    ("LEFT(a, 3)", "beginning", lambda value, characters: min(value.max_bytes, characters)),
]


@pytest.mark.parametrize(("expression", "rule", "broken"), TWINS)
def test_a_rule_that_forgets_how_texts_grow_is_caught(
    database: duckdb.DuckDBPyConnection,
    monkeypatch: pytest.MonkeyPatch,
    expression: str,
    rule: str,
    broken: Callable[..., int | None],
) -> None:
    sql = SHAPES[0].replace("{}", expression)
    assert excess(database, sql) == []
    monkeypatch.setattr(f"service.sql.expr.texts.{rule}", broken)
    assert excess(database, sql) != []


@pytest.mark.parametrize("turn", ["upper", "lower"])
def test_letter_case_makes_no_character_more_than_half_as_long_again(turn: str) -> None:
    """Every code point there is, and one text of all of them: no character's neighbours matter."""
    points = "(SELECT chr(i::INTEGER) AS c, i FROM range(1, 1114112) r(i) WHERE i NOT BETWEEN 55296 AND 57343)"
    worst, whole, parts = duckdb.execute(
        f"SELECT max(2 * strlen({turn}(c)) - 3 * strlen(c)), {turn}(string_agg(c, '' ORDER BY i)),"
        f" string_agg({turn}(c), '' ORDER BY i) FROM {points}"
    ).fetchall()[0]
    assert worst == 0
    assert whole == parts


def test_a_text_that_would_grow_too_long_is_refused_before_anything_is_charged() -> None:
    doubled = "SELECT person, x || x AS x FROM ({})"
    sql = "SELECT person, b AS x FROM notes"
    for _ in range(12):
        sql = doubled.format(sql)
    with pytest.raises(ConstructRefused, match=f"texts are computed up to {lengths.MADE_BYTES}") as refusal:
        understand(Ask("d", f"SELECT COUNT(DISTINCT x) FROM ({sql})"), SCHEMA)
    assert "LEFT(x, 1000)" in str(refusal.value.extra["remedy"])


def test_where_a_length_is_not_known_nothing_is_made_up() -> None:
    """Tables that were prepared before texts were cut, and public ones that were not measured."""
    columns = {name: replace(column, max_bytes=None) for name, column in NOTES.columns.items()}
    old = replace(SCHEMA, tables={"notes": replace(NOTES, columns=columns), "places": PLACES}, sizes={})
    for expression, known in (("a", None), ("name", None), ("a || 'x'", None), ("UPPER(LEFT(a, 10))", 60)):
        (plan,) = understand(Ask("d", SHAPES[0].replace("{}", expression)), old).cores
        assert plan.keys[0].max_bytes == known
