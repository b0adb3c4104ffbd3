"""Codes, on any value: the nearest step, clamped, exact, and never an error (invariant N4)."""

import math
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.schema import BIGINT, BOOLEAN, DATE, DOUBLE, TIMESTAMP, Column, SqlType
from service.engine.duckdb.importing.coding import check_grid, code_expression, outside_bounds

EXACT = Context(prec=60)
EPOCH = date(1970, 1, 1)


def codes(column: Column, spelled: list[str | None]) -> list[tuple[int | None, bool | None]]:
    """Code and outside-or-not of each value, through the SQL that preparation runs."""
    check_grid(column)
    listed = ", ".join(f"({i}, {'NULL' if value is None else value})" for i, value in enumerate(spelled))
    return duckdb.execute(
        f'SELECT "x#", {outside_bounds(column)} FROM (SELECT *, {code_expression(column)} AS "x#" FROM'
        f' (SELECT i, CAST(v AS {column.type}) AS "x" FROM (VALUES {listed}) t(i, v))) ORDER BY i'
    ).fetchall()


def expected(value: Fraction, column: Column) -> int:
    assert column.step is not None
    nearest = math.floor(value / column.step + Fraction(1, 2))
    return max(column.low_code, min(column.high_code, nearest))


def is_outside(value: Fraction, column: Column) -> bool:
    assert column.low is not None
    assert column.high is not None
    return value < column.low or value > column.high


@st.composite
def grids(draw: st.DrawFn, kind: SqlType, *, steps: st.SearchStrategy[Fraction], largest: int) -> Column:
    step = draw(steps)
    low, high = sorted((draw(st.integers(-largest, largest)), draw(st.integers(-largest, largest))))
    shift = draw(st.sampled_from([Fraction(0), step / 3]))  # bounds need not lie on the grid
    return Column("x", kind, low * step + shift, high * step + shift, step)


rational_steps = st.builds(Fraction, st.integers(1, 1000), st.sampled_from([1, 2, 3, 7, 10, 100, 1024]))
INT64 = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-2000, 2000))


@given(grids(BIGINT, steps=rational_steps, largest=10**6), st.lists(INT64, min_size=1, max_size=8))
def test_integers(column: Column, values: list[int]) -> None:
    found = codes(column, [f"({value})::HUGEINT" for value in values])
    assert found == [(expected(Fraction(v), column), is_outside(Fraction(v), column)) for v in values]


@given(
    st.sampled_from([(10, 2), (18, 4), (18, 18), (19, 1), (30, 10), (38, 2), (38, 18), (38, 37), (38, 0), (4, 3)]),
    st.data(),
)
def test_decimals_of_every_width_never_pass_through_doubles(width: tuple[int, int], data: st.DataObject) -> None:
    kind = SqlType("DECIMAL", *width)
    own = Fraction(1, 10 ** width[1])
    steps = st.sampled_from([own, own * 5, own * 10**3, own / 2, Fraction(1, 100)])
    column = data.draw(grids(kind, steps=steps, largest=2**60 if width[0] > 18 else 10**5))
    edge = 10 ** width[0] - 1
    near = [
        int(bound / own) + shift for bound in (column.low, column.high) if bound is not None for shift in (-1, 0, 1)
    ]
    unscaled = st.one_of(st.integers(-edge, edge), st.integers(-1000, 1000), st.sampled_from(near))
    values = [max(-edge, min(edge, value)) for value in data.draw(st.lists(unscaled, min_size=1, max_size=8))]
    spelled = [f"'{EXACT.scaleb(Decimal(value), -width[1]):f}'" if value else "'0'" for value in values]
    exact = [Fraction(value) * own for value in values]
    assert codes(column, spelled) == [(expected(v, column), is_outside(v, column)) for v in exact]


@given(
    grids(DOUBLE, steps=st.integers(-20, 10).map(lambda power: Fraction(2) ** power), largest=10**6),
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=8),
    st.lists(st.integers(-4000, 4000), max_size=4),
)
def test_doubles_on_steps_of_two(column: Column, wild: list[float], quarters: list[int]) -> None:
    assert column.step is not None
    values = wild + [float(column.step * Fraction(quarter, 4)) for quarter in quarters]
    found = codes(column, [f"'{value!r}'::DOUBLE" for value in values])
    for value, (code, outside) in zip(values, found, strict=True):
        if math.isnan(value):
            assert code is None
        elif math.isinf(value):
            assert code == (column.high_code if value > 0 else column.low_code)
        else:
            exact = Fraction(value)
            close = Fraction(2) ** -50 * (abs(exact / column.step) + 1)  # where x / step + 1/2 rounds
            assert code in {
                expected(exact, column),
                expected(exact - close * column.step, column),
                expected(exact + close * column.step, column),
            }
            assert column.low_code <= code <= column.high_code
            if column.low == column.step * column.low_code:
                assert outside == is_outside(exact, column)


days = st.one_of(st.integers(-700_000, 2_900_000), st.integers(-400, 400))


@given(
    grids(DATE, steps=st.sampled_from([Fraction(1), Fraction(7), Fraction(1, 2)]), largest=30_000),
    st.lists(days, min_size=1),
)
def test_dates_are_days(column: Column, values: list[int]) -> None:
    found = codes(column, [f"DATE '1970-01-01' + ({value})::INTEGER" for value in values])
    assert found == [(expected(Fraction(v), column), is_outside(Fraction(v), column)) for v in values]


micros = st.integers(-(10**17), 10**17)


@given(
    grids(TIMESTAMP, steps=st.sampled_from([Fraction(1), Fraction(10**6), Fraction(3600 * 10**6)]), largest=10**7),
    st.lists(micros, min_size=1),
)
def test_timestamps_are_microseconds(column: Column, values: list[int]) -> None:
    found = codes(column, [f"make_timestamp(({value})::BIGINT)" for value in values])
    assert found == [(expected(Fraction(v), column), is_outside(Fraction(v), column)) for v in values]


@pytest.mark.parametrize(
    ("column", "value", "code"),
    [
        (Column("x", DATE, Fraction(0), Fraction(9), Fraction(1)), "'infinity'", 9),
        (Column("x", DATE, Fraction(0), Fraction(9), Fraction(1)), "'-infinity'", 0),
        (Column("x", DATE, Fraction(0), Fraction(9), Fraction(1)), "'5881580-07-10'", 9),
        (Column("x", TIMESTAMP, Fraction(0), Fraction(9), Fraction(1)), "'infinity'", 9),
        (Column("x", TIMESTAMP, Fraction(0), Fraction(9), Fraction(1)), "'-infinity'", 0),
        (Column("x", TIMESTAMP, Fraction(0), Fraction(9), Fraction(1)), "'290309-12-22 (BC) 00:00:00'", 0),
        (Column("x", BOOLEAN, Fraction(0), Fraction(1), Fraction(1)), "true", 1),
        (Column("x", BOOLEAN, Fraction(0), Fraction(1), Fraction(1)), "false", 0),
        (Column("x", BIGINT, Fraction(-(2**60)), Fraction(2**60), Fraction(1)), str(2**63 - 1), 2**60),
        (Column("x", BIGINT, Fraction(0), Fraction(10**30), Fraction(10**15)), str(2**63 - 1), 9223),
        (Column("x", BIGINT, Fraction(10**19), Fraction(10**20), Fraction(10**10)), "7", 10**9),
        (Column("x", BIGINT, Fraction(-(10**20)), Fraction(-(10**19)), Fraction(10**10)), "7", -(10**9)),
        (Column("x", BOOLEAN, Fraction(5), Fraction(9), Fraction(1)), "true", 5),
        (Column("x", BOOLEAN, Fraction(-9), Fraction(-5), Fraction(1)), "false", -5),
        (Column("x", SqlType("DECIMAL", 4, 3), Fraction(10), Fraction(20), Fraction(1, 1000)), "1.5", 10_000),
        (Column("x", DATE, Fraction(3 * 10**9), Fraction(4 * 10**9), Fraction(1)), "'2024-01-01'", 3 * 10**9),
        (Column("x", TIMESTAMP, -Fraction(10**20), -Fraction(10**19), Fraction(10**6)), "'2024-01-01'", -(10**13)),
        (Column("x", DOUBLE, Fraction(0), Fraction(9), Fraction(1)), "'-0.0'", 0),
        (Column("x", DOUBLE, Fraction(0), Fraction(9), Fraction(1, 10)), "0.3", 3),
    ],
)
def test_extremes(column: Column, value: str, code: int) -> None:
    assert codes(column, [value, None])[0][0] == code
    assert codes(column, [value, None])[1][0] is None


def test_missing_values_have_no_code_where_a_bare_clamp_would_make_one_up() -> None:
    """DuckDB's LEAST skips NULL: a bare clamp would turn every missing value into the upper bound."""
    column = Column("x", BIGINT, Fraction(0), Fraction(10), Fraction(1))
    assert duckdb.execute("SELECT greatest(0, least(10, NULL::BIGINT))").fetchall() == [(10,)]
    assert [code for code, _ in codes(column, [None, "10"])] == [None, 10]


def test_a_day_is_the_same_day_in_python() -> None:
    column = Column("x", DATE, Fraction(0), Fraction(10**5), Fraction(1))
    today: Any = date(2026, 11, 16)
    assert codes(column, [f"DATE '{today}'"])[0][0] == (today - EPOCH).days
    column = Column("x", TIMESTAMP, Fraction(0), Fraction(10**17), Fraction(1))
    moment = datetime(2026, 11, 16, 3, 4, 5, 6)
    micro = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    assert codes(column, [f"TIMESTAMP '{moment}'"])[0][0] == micro
