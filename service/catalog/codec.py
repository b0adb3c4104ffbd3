"""Tables as JSON and back, exactly: bounds and steps as fractions, domain values with their type."""

import json
from datetime import date, datetime
from fractions import Fraction
from typing import Any

from service.catalog.check import parse_type
from service.core.schema import Column, Scalar, Table, UnitColumn, UnitVia


def dump_table(table: Table) -> str:
    return json.dumps({
        "name": table.name,
        "unit": _dump_unit(table.unit),
        "expected_rows": table.expected_rows,
        "max_rows_per_unit": table.max_rows_per_unit,
        "columns": [_dump_column(column) for column in table.columns.values()],
    })  # fmt: skip


def load_table(text: str) -> Table:
    stored = json.loads(text)
    columns = [_load_column(column) for column in stored["columns"]]
    return Table(
        stored["name"],
        {column.name: column for column in columns},
        _load_unit(stored["unit"]),
        expected_rows=stored["expected_rows"],
        max_rows_per_unit=stored["max_rows_per_unit"],
    )


def _dump_unit(unit: UnitColumn | UnitVia | None) -> list[str] | None:
    match unit:
        case UnitColumn(column):
            return [column]
        case UnitVia(column, table, key):
            return [column, table, key]
    return None


def _load_unit(stored: list[str] | None) -> UnitColumn | UnitVia | None:
    if stored is None:
        return None
    return UnitColumn(stored[0]) if len(stored) == 1 else UnitVia(*stored)


def _dump_column(column: Column) -> dict[str, Any]:
    def exact(value: Fraction | None) -> str | None:
        return None if value is None else str(value)

    return {
        "name": column.name,
        "type": str(column.type),
        "low": exact(column.low),
        "high": exact(column.high),
        "step": exact(column.step),
        "domain": None if column.domain is None else [dump_scalar(value) for value in column.domain],
        "unique": column.unique,
        "source_name": column.source_name,
    }


def _load_column(stored: dict[str, Any]) -> Column:
    def exact(value: str | None) -> Fraction | None:
        return None if value is None else Fraction(value)

    return Column(
        stored["name"],
        parse_type(stored["type"]),
        low=exact(stored["low"]),
        high=exact(stored["high"]),
        step=exact(stored["step"]),
        domain=None if stored["domain"] is None else tuple(load_scalar(value) for value in stored["domain"]),
        unique=stored["unique"],
        source_name=stored["source_name"],
    )


def dump_scalar(value: Scalar) -> Any:
    """JSON's own types as they are, others tagged: {"date": "2024-01-31"}."""
    if isinstance(value, datetime):
        return {"timestamp": value.isoformat()}
    if isinstance(value, date):
        return {"date": value.isoformat()}
    return value


def load_scalar(stored: Any) -> Scalar:
    if isinstance(stored, dict):
        [(kind, text)] = stored.items()
        return datetime.fromisoformat(text) if kind == "timestamp" else date.fromisoformat(text)
    assert stored is None or isinstance(stored, str | int | bool | float)
    return stored
