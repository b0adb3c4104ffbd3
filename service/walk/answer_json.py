"""The answer as bytes: the body of docs/api.md, JSON without NaN, numbers without false precision."""

import json
import math
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np

from service.core.boundary import Array

PLAIN_PLACES, PLAIN_BELOW = 6, 1e9
AS_THEY_ARE = {str, int, bool, type(None)}
# What answers call the types of their columns: our words, whatever an engine calls them.
SHOWN = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
    "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "VARCHAR", "DATE", "TIMESTAMP", '"NULL"',
)  # fmt: skip
SIGNIFICANT = 15  # what a double can carry; noise makes all further digits meaningless


def can_show(type_name: str) -> bool:
    """Can a cell of an answer hold this type?"""
    return type_name.split("(")[0] in SHOWN


def to_json(value: Any) -> Any:
    """One cell as JSON: dates as ISO text, decimals as numbers, NaN and infinities as null."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, np.generic):
        return to_json(value.item())
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT}g}") if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return to_json(float(value)) if value != value.to_integral_value() else int(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    raise AssertionError(f"an answer can not hold a {type(value).__name__}")


def column_to_json(cells: Array | list[Any]) -> list[Any]:
    """All cells of a column as JSON, as `to_json` makes them one by one."""
    if isinstance(cells, list):
        return cells if set(map(type, cells)) <= AS_THEY_ARE else [to_json(cell) for cell in cells]
    if cells.dtype.kind in "iu" or (_are_plain(cells) and (np.round(cells, PLAIN_PLACES) == cells).all()):
        plain: list[Any] = cells.tolist()  # whole numbers, or so few digits that 15 hold them
        return plain
    return [to_json(cell) for cell in cells.tolist()]


def ends_to_json(low: Array, high: Array) -> tuple[list[Any], list[Any]]:
    """Both ends of every interval in a column, as `ends` rounds them one by one."""
    if low.dtype.kind == "f" and high.dtype.kind == "f" and low.size:
        with np.errstate(invalid="ignore", divide="ignore"):
            places = 2 - np.floor(np.log10(high - low))
        if (places == places[0]).all() and abs(places[0]) <= PLAIN_PLACES and _are_plain(low, high):
            digits = int(places[0])
            kind = np.int64 if digits <= 0 else np.float64
            return np.round(low, digits).astype(kind).tolist(), np.round(high, digits).astype(kind).tolist()
    pairs = [ends(bottom, top) for bottom, top in zip(low.tolist(), high.tolist(), strict=True)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _are_plain(*columns: Array) -> bool:
    """Finite, and small enough that rounding in floats is rounding in decimals."""
    return all(bool((np.abs(column) < PLAIN_BELOW).all()) for column in columns)


def ends(low: Any, high: Any) -> tuple[Any, Any]:
    """An interval's ends, rounded to a hundredth of its width: more digits would say nothing."""
    bottom, top = to_json(low), to_json(high)
    if not isinstance(bottom, int | float) or not isinstance(top, int | float) or not top > bottom:
        return bottom, top
    digits = 2 - math.floor(math.log10(top - bottom))
    return _rounded(bottom, digits), _rounded(top, digits)


def computed_to_json(cells: Array | list[Any], low: Array, high: Array) -> list[Any]:
    """What the outer SQL computed, rounded to a thousandth of its interval's width, as released values are."""
    shown = column_to_json(cells)
    if not any(isinstance(cell, float) for cell in shown):
        return shown
    return [_computed(cell, to_json(bottom), to_json(top)) for cell, bottom, top in zip(shown, low, high, strict=True)]


def _computed(cell: Any, bottom: Any, top: Any) -> Any:
    if not isinstance(cell, float) or not isinstance(bottom, int | float) or not isinstance(top, int | float):
        return cell
    return round(cell, 3 - math.floor(math.log10(top - bottom))) if top > bottom else cell


def _rounded(value: float, digits: int) -> float | int:
    rounded = round(value, digits)
    return int(rounded) if digits <= 0 else float(rounded)


def encode(body: Mapping[str, Any]) -> bytes:
    """The bytes that are stored, hashed and sent."""
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
