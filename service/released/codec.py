"""Arrays and a small JSON head as bytes, without pickle: what the store keeps of a release."""

import io
import json
import struct
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from service.core.boundary import Array

LENGTH = struct.Struct(">Q")
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def pack(head: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """One blob: the JSON head, then every array as an Arrow stream."""
    parts: list[bytes] = []
    names: list[list[str]] = []
    for name, array in arrays.items():
        kind, column = _to_arrow(array)
        names.append([name, kind])
        sink = io.BytesIO()
        table = pa.table({"v": column})
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        parts.append(sink.getvalue())
    header = json.dumps({"head": head, "arrays": names}, separators=(",", ":")).encode()
    return b"".join(LENGTH.pack(len(part)) + part for part in [header, *parts])


def unpack(blob: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    """The inverse of pack."""
    parts, at = [], 0
    while at < len(blob):
        (length,) = LENGTH.unpack_from(blob, at)
        at += LENGTH.size
        parts.append(blob[at : at + length])
        at += length
    header = json.loads(parts[0])
    arrays = {
        name: _from_arrow(kind, pa.ipc.open_stream(part).read_all().column("v").combine_chunks())
        for (name, kind), part in zip(header["arrays"], parts[1:], strict=True)
    }
    return header["head"], arrays


def _to_arrow(array: Array) -> tuple[str, Any]:
    if array.dtype != object:
        return "plain", pa.array(array)
    values = array.tolist()
    present = [value for value in values if value is not None]
    if present and all(type(value) is int for value in present):
        if all(INT64_MIN <= value <= INT64_MAX for value in present):
            return "object", pa.array(values, pa.int64())
        return "bigint", pa.array([None if value is None else str(value) for value in values], pa.string())
    if any(isinstance(value, datetime) for value in present):
        return "object", pa.array(values, pa.timestamp("us"))
    if any(isinstance(value, date) for value in present):
        return "object", pa.array(values, pa.date32())
    return "object", pa.array(values)


def _from_arrow(kind: str, column: Any) -> Array:
    if kind == "plain":
        plain: Array = column.to_numpy(zero_copy_only=False)
        return plain
    values = column.to_pylist()
    if kind == "bigint":
        values = [None if value is None else int(value) for value in values]
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made
