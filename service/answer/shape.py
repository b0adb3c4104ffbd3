"""The answer as bytes: API.md's body, JSON without NaN, numbers without false precision."""

import json
import math
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np

SIGNIFICANT = 15  # what a double can carry; noise makes all further digits meaningless


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


def ends(low: Any, high: Any) -> tuple[Any, Any]:
    """An interval's ends, rounded to a hundredth of its width: more digits would say nothing."""
    bottom, top = to_json(low), to_json(high)
    if not isinstance(bottom, int | float) or not isinstance(top, int | float) or not top > bottom:
        return bottom, top
    digits = 2 - math.floor(math.log10(top - bottom))
    return _rounded(bottom, digits), _rounded(top, digits)


def _rounded(value: float, digits: int) -> float | int:
    rounded = round(value, digits)
    return int(rounded) if digits <= 0 else float(rounded)


def encode(body: Mapping[str, Any]) -> bytes:
    """The bytes that are stored, hashed and sent."""
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
