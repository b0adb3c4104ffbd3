"""Values and types in DuckDB's SQL."""

from datetime import date, datetime

from service.core.schema import Scalar, SqlType
from service.engine.names import text

# Beyond these no calendar of an answer reaches: Python, JSON readers and spreadsheets end here.
FIRST, LAST = "0001-01-01", "9999-12-31"


def cast(value: str, kind: SqlType) -> str:
    """The SQL expression as the declared type; NULL for what does not fit, infinite days included.

    A group key must come back as a Python date: a day that has none would fail the whole query, and
    whether somebody has such a day is nobody's business."""
    tried = f"TRY_CAST({value} AS {kind})"
    if kind.name == "DATE":
        return f"CASE WHEN {tried} BETWEEN DATE '{FIRST}' AND DATE '{LAST}' THEN {tried} END"
    if kind.name == "TIMESTAMP":
        last = f"TIMESTAMP '{LAST} 23:59:59.999999'"
        return f"CASE WHEN {tried} BETWEEN TIMESTAMP '{FIRST} 00:00:00' AND {last} THEN {tried} END"
    return tried


def literal(value: Scalar, kind: SqlType) -> str:
    """A literal of the column's type; a value that is none of that type becomes NULL."""
    if value is None:
        return "NULL"
    if isinstance(value, datetime | date):
        spelled = value.isoformat()
    else:
        spelled = str(value)
    return f"TRY_CAST({text(spelled)} AS {kind})"
