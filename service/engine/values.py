"""Scalars as DuckDB literals."""

from datetime import date, datetime

from service.core.schema import Scalar, SqlType
from service.engine.names import text


def literal(value: Scalar, kind: SqlType) -> str:
    """A literal of the column's type; a value that is none of that type becomes NULL."""
    if value is None:
        return "NULL"
    if isinstance(value, datetime | date):
        spelled = value.isoformat()
    else:
        spelled = str(value)
    return f"TRY_CAST({text(spelled)} AS {kind})"
