"""Frames between the service and its children: a JSON header and raw bytes, nothing that executes.

No pickle: a child that a hostile file has taken over must not be able to run code in the service.
Tables travel as Arrow streams.
"""

import json
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from service.core.boundary import Array
from service.core.schema import SqlType

HEAD = struct.Struct("<IQ")
LARGEST_HEADER = 64 * 2**20
LARGEST_PAYLOAD = 4 * 2**30
PLAIN = {
    "BOOLEAN": pa.bool_(), "BIGINT": pa.int64(), "DOUBLE": pa.float64(), "VARCHAR": pa.string(),
    "DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us"),
}  # fmt: skip

Header = dict[str, Any]


class ConnectionLost(Exception):
    """The other side is gone, or did not keep to the frame format."""


def send(channel: socket.socket, header: Header, payload: bytes | memoryview = b"") -> None:
    text = json.dumps(header).encode()
    try:
        channel.sendall(HEAD.pack(len(text), len(payload)) + text)
        if len(payload):
            channel.sendall(payload)
    except OSError as error:
        if isinstance(error, TimeoutError):
            raise
        raise ConnectionLost from None


def receive(channel: socket.socket, deadline: float | None = None) -> tuple[Header, memoryview]:
    """The next frame. `deadline` is a time.monotonic() value; TimeoutError when it passes."""
    header_size, payload_size = HEAD.unpack(_exactly(channel, HEAD.size, deadline))
    if header_size > LARGEST_HEADER or payload_size > LARGEST_PAYLOAD:
        raise ConnectionLost
    try:
        header = json.loads(bytes(_exactly(channel, header_size, deadline)))
    except ValueError:
        raise ConnectionLost from None
    if not isinstance(header, dict):
        raise ConnectionLost
    return header, _exactly(channel, payload_size, deadline)


def _exactly(channel: socket.socket, size: int, deadline: float | None) -> memoryview:
    held = memoryview(bytearray(size))
    filled = 0
    while filled < size:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            channel.settimeout(left)
        try:
            got = channel.recv_into(held[filled:])
        except TimeoutError:
            raise
        except OSError:
            raise ConnectionLost from None
        if got == 0:
            raise ConnectionLost
        filled += got
    return held


def pack_table(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def unpack_table(payload: bytes | memoryview) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(payload)).read_all()


def arrow_column(values: Array) -> pa.Array:
    """An Arrow column of the type that the values have.

    Only NULLs, or no values: text, because DuckDB casts the text side of a comparison; any other type
    would have the private side cast, and a cast may raise. Integers beyond 64 bits: DECIMAL(38, 0).
    """
    if values.dtype != object:
        return pa.array(values)
    listed = values.tolist()
    try:
        column = pa.array(listed)
    except (pa.ArrowInvalid, OverflowError):
        column = pa.array(listed, type=pa.decimal128(38, 0))
    return column.cast(pa.string()) if pa.types.is_null(column.type) else column


def typed_column(values: Array, kind: SqlType) -> pa.Array:
    """The values as a column of a declared type, also where they are all NULL or none are there.

    For released values only: a key table that private rows are compared with keeps the type of its values
    (see arrow_column), so that no private column is ever cast because of what somebody declared. Values that
    the declared type can not hold keep theirs too.
    """
    column, wanted = arrow_column(values), arrow_type(kind)
    try:
        if column.null_count == len(column):
            return pa.nulls(len(column), wanted)
        if _is_number(column.type) and _is_number(wanted):
            wide = pa.decimal128(38, wanted.scale) if pa.types.is_decimal(wanted) else wanted
            return column.cast(wide).cast(wanted)  # whole numbers do not become a short decimal in one step
        return column.cast(wanted) if pa.types.is_date(column.type) and pa.types.is_timestamp(wanted) else column
    except pa.ArrowInvalid:
        return column


def arrow_type(kind: SqlType) -> pa.DataType:
    """What DuckDB reads as exactly this type."""
    if kind.name == "DECIMAL":
        return pa.decimal128(kind.precision or 38, kind.scale or 0)
    return PLAIN[kind.name]


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def arrow_table(columns: Mapping[str, Array | pa.Array]) -> pa.Table:
    made = {name: values if isinstance(values, pa.Array) else arrow_column(values) for name, values in columns.items()}
    return pa.table(made)


def integers(column: pa.ChunkedArray) -> Array:
    """An exact integer column: int64 where all values fit, else Python integers.

    HUGEINT arrives as decimal128(38, 0), two's complement in two little-endian words. NULL is 0: a sum
    over nothing, and an error here would be an error that depends on rows.
    """
    flat = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if pa.types.is_decimal128(flat.type) and flat.type.scale == 0:
        return _wide_integers(flat)
    if not pa.types.is_integer(flat.type):
        raise TypeError("an exact column must hold integers")
    if flat.null_count:
        flat = flat.fill_null(0)
    held = flat.to_numpy(zero_copy_only=False)
    if held.dtype == np.uint64 and held.size and int(held.max()) > np.iinfo(np.int64).max:
        return np.asarray(held, dtype=object)
    return np.asarray(held, dtype=np.int64)


def _wide_integers(flat: pa.Array) -> Array:
    size = len(flat)
    if size == 0:
        return np.empty(0, dtype=np.int64)
    words = np.frombuffer(flat.buffers()[1], dtype="<u8", count=2 * size, offset=16 * flat.offset).reshape(-1, 2)
    low, high = words[:, 0], words[:, 1].view(np.int64)
    if flat.null_count:
        missing = flat.is_null().to_numpy(zero_copy_only=False)
        low, high = np.where(missing, np.uint64(0), low), np.where(missing, 0, high)
    narrow = low.view(np.int64) if low.flags.c_contiguous else np.ascontiguousarray(low).view(np.int64)
    if np.array_equal(high, narrow >> 63):
        return narrow.copy()
    return np.asarray(high.astype(object) * 2**64 + low.astype(object), dtype=object)


def scalars(column: pa.ChunkedArray) -> Array:
    """A key column as an object array of Scalar. A DECIMAL comes back as int (scale 0), as float (at
    most 15 digits: then float and decimal name each other), else as Decimal."""
    kind = column.type
    plain = pa.types.is_int64(kind) or pa.types.is_boolean(kind) or pa.types.is_float64(kind)
    if pa.types.is_string(kind) or (plain and not column.null_count):
        return np.asarray(column.to_numpy(), dtype=object)  # Python values, ten times faster than one by one
    listed = column.to_pylist()
    if pa.types.is_decimal(kind) and kind.scale == 0:
        listed = [None if value is None else int(value) for value in listed]
    elif pa.types.is_decimal(kind) and kind.precision <= 15:
        listed = [None if value is None else float(value) for value in listed]
    held = np.empty(len(listed), dtype=object)
    held[:] = listed
    return held
