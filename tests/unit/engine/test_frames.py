"""Frames and columns between the service and its children."""

import socket
import time
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.boundary import Array
from service.core.schema import BIGINT, DATE, DOUBLE, TIMESTAMP, SqlType
from service.engine.duckdb.processes import frames


@given(st.lists(st.one_of(st.none(), st.integers(-(10**38) + 1, 10**38 - 1), st.integers(-3, 3)), max_size=20))
def test_wide_integers_survive_exactly(values: list[int | None]) -> None:
    column = pa.chunked_array([pa.array(values, type=pa.decimal128(38, 0))])
    held = frames.integers(frames.unpack_table(frames.pack_table(pa.table({"a": column}))).column("a"))
    expected = [value or 0 for value in values]
    assert held.tolist() == expected
    fits = all(-(2**63) <= value < 2**63 for value in expected)
    assert held.dtype == (np.int64 if fits else object)


def test_sliced_and_chunked_columns_are_read_right() -> None:
    whole = pa.array([1, 2**70, -(2**70), 4], type=pa.decimal128(38, 0))
    assert frames.integers(pa.chunked_array([whole[2:], whole[:1]])).tolist() == [-(2**70), 4, 1]
    assert frames.integers(pa.chunked_array([whole[1:3]])).tolist() == [2**70, -(2**70)]
    assert frames.integers(pa.chunked_array([], type=pa.int64())).tolist() == []


def test_unsigned_integers_beyond_63_bits_stay_exact() -> None:
    assert frames.integers(pa.chunked_array([pa.array([2**64 - 1, 0], type=pa.uint64())])).tolist() == [2**64 - 1, 0]


@pytest.mark.parametrize("kind", [pa.float64(), pa.string(), pa.decimal128(10, 2), pa.bool_()])
def test_only_integers_are_exact_columns(kind: pa.DataType) -> None:
    with pytest.raises(TypeError):
        frames.integers(pa.chunked_array([pa.array([None], type=kind)]))


def test_keys_become_scalars() -> None:
    table = pa.table(
        {
            "text": ["a", None],
            "day": [date(2024, 1, 2), None],
            "time": pa.array([datetime(2024, 1, 2, 3, 4, 5, 6), None], type=pa.timestamp("us")),
            "whole": pa.array([Decimal(7), None], type=pa.decimal128(38, 0)),
            "money": pa.array([Decimal("7.25"), None], type=pa.decimal128(10, 2)),
            "long": pa.array([Decimal("7.25"), None], type=pa.decimal128(38, 2)),
        }
    )
    read = {name: frames.scalars(table.column(name)) for name in table.column_names}
    assert all(column.dtype == object and column[1] is None for column in read.values())
    first = {name: column[0] for name, column in read.items()}
    assert first == {
        "text": "a",
        "day": date(2024, 1, 2),
        "time": datetime(2024, 1, 2, 3, 4, 5, 6),
        "whole": 7,
        "money": 7.25,
        "long": Decimal("7.25"),
    }
    assert type(first["whole"]) is int
    assert type(first["money"]) is float


@pytest.mark.parametrize(
    "values", [["a", None], ["a", "b"], [1, 2], [1, None], [True, False], [0.5, 1.0], [None, 1.5], []]
)
def test_keys_are_python_values_not_numpys(values: list[object]) -> None:
    for chunks in ([values], [values, values]):
        column = pa.chunked_array([pa.array(chunk) for chunk in chunks], type=pa.array(values).type)
        held = frames.scalars(column).tolist()
        assert held == values * len(chunks)
        assert [type(value) for value in held] == [type(value) for value in values] * len(chunks)


def test_columns_that_are_all_null_are_text() -> None:
    """DuckDB casts the text side of a comparison: a NULL that is no number can not make a private text fail."""
    assert frames.arrow_column(np.array([None, None], dtype=object)).type == pa.string()
    assert frames.arrow_column(np.array([], dtype=object)).type == pa.string()


def test_a_frame_arrives_as_it_was_sent() -> None:
    here, there = socket.socketpair()
    frames.send(here, {"a": [1, "ü"]}, b"\0\1")
    header, payload = frames.receive(there)
    assert header == {"a": [1, "ü"]}
    assert bytes(payload) == b"\0\1"


@pytest.mark.parametrize(
    "bytes_sent",
    [
        b"",
        b"\1",
        frames.HEAD.pack(2**31, 0),
        frames.HEAD.pack(2, 2**60) + b"{}",
        frames.HEAD.pack(2, 0) + b"[]",
        frames.HEAD.pack(2, 0) + b"{x",
    ],
)
def test_a_child_that_talks_nonsense_is_a_lost_child(bytes_sent: bytes) -> None:
    here, there = socket.socketpair()
    here.sendall(bytes_sent)
    here.close()
    with pytest.raises(frames.ConnectionLost):
        frames.receive(there)


def test_silence_ends_at_the_deadline() -> None:
    _here, there = socket.socketpair()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        frames.receive(there, began + 0.05)
    assert time.monotonic() - began < 1


DECIMALS = st.integers(1, 15).flatmap(
    lambda digits: st.tuples(st.just(digits), st.integers(0, digits), st.integers(1 - 10**digits, 10**digits - 1))
)


@given(DECIMALS)
def test_a_short_decimal_that_came_as_a_float_or_a_whole_number_is_itself_again(made: tuple[int, int, int]) -> None:
    precision, scale, code = made
    exact = Decimal(code).scaleb(-scale)
    values = np.array([int(exact) if scale == 0 else float(exact), None], dtype=object)
    column = frames.typed_column(values, SqlType("DECIMAL", precision, scale))
    assert column.type == pa.decimal128(precision, scale)
    assert column.to_pylist() == [exact, None]


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (BIGINT, np.array([1, 2]), pa.int64()),
        (DOUBLE, np.array([1, 2], dtype=object), pa.float64()),
        (BIGINT, np.array([2**70], dtype=object), pa.decimal128(38, 0)),  # does not fit: stays what it is
        (BIGINT, np.array([1.5], dtype=object), pa.float64()),
        (BIGINT, np.array(["12"], dtype=object), pa.string()),
        (TIMESTAMP, np.array([date(2024, 1, 2)], dtype=object), pa.timestamp("us")),
        (DATE, np.array([datetime(2024, 1, 2, 3)], dtype=object), pa.timestamp("us")),  # no hour is dropped
    ],
)
def test_a_declared_type_never_changes_a_value(kind: SqlType, values: Array, expected: pa.DataType) -> None:
    column = frames.typed_column(values, kind)
    assert column.type == expected
    assert column.cast(frames.arrow_column(values).type).equals(frames.arrow_column(values))
