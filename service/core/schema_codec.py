"""Declared tables as JSON and back, exactly: bounds and steps as fractions, domain values with their type.

Two places keep tables, each in the spelling that it has always written: an import's manifest as an object with named
fields (`table_to_json`), the catalog as one line of text (`table_to_text`). They differ in the order of fields and in
how types and units are spelled; one reader understands both. `max_bytes` is written where there is one: a table that
was prepared before texts were cut has none, and its texts may have any length.
"""

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime
from fractions import Fraction
from typing import Any

from service.core.schema import Column, Scalar, SqlType, Table, UnitColumn, UnitVia

PREPARED_TYPES = ("BOOLEAN", "BIGINT", "DOUBLE", "DECIMAL", "VARCHAR", "DATE", "TIMESTAMP")
TAGGED: dict[str, Callable[[str], Scalar]] = {"timestamp": datetime.fromisoformat, "date": date.fromisoformat}


def table_to_json(table: Table) -> dict[str, Any]:
    """With types as [name, precision, scale] and the unit by field names."""
    unit: dict[str, str] | None = None
    match table.unit:
        case UnitColumn(column):
            unit = {"column": column}
        case UnitVia(column, target, key):
            unit = {"column": column, "table": target, "key": key}
    return {
        "name": table.name,
        "columns": [_column_to_json(column, _type_parts(column.type)) for column in table.columns.values()],
        "unit": unit,
        "expected_rows": table.expected_rows,
        "max_rows_per_unit": table.max_rows_per_unit,
    }


def table_to_text(table: Table) -> str:
    """With types as SQL writes them and the unit as a list of one name or three."""
    unit: list[str] | None = None
    match table.unit:
        case UnitColumn(column):
            unit = [column]
        case UnitVia(column, target, key):
            unit = [column, target, key]
    fields = {
        "name": table.name,
        "unit": unit,
        "expected_rows": table.expected_rows,
        "max_rows_per_unit": table.max_rows_per_unit,
        "columns": [_column_to_json(column, str(column.type)) for column in table.columns.values()],
    }
    return json.dumps(fields)


def table_from_json(stored: Mapping[str, Any]) -> Table:
    """A table in either spelling."""
    columns = [_column_from_json(column) for column in stored["columns"]]
    return Table(
        stored["name"],
        {column.name: column for column in columns},
        _unit(stored["unit"]),
        expected_rows=stored["expected_rows"],
        max_rows_per_unit=stored["max_rows_per_unit"],
    )


def table_from_text(text: str) -> Table:
    return table_from_json(json.loads(text))


def _unit(stored: Mapping[str, str] | list[str] | None) -> UnitColumn | UnitVia | None:
    if stored is None:
        return None
    if isinstance(stored, list):
        return UnitColumn(stored[0]) if len(stored) == 1 else UnitVia(*stored)
    return UnitVia(**stored) if "table" in stored else UnitColumn(**stored)


def _type_parts(kind: SqlType) -> list[str | int | None]:
    return [kind.name, kind.precision, kind.scale]


def _type(stored: str | list[Any]) -> SqlType:
    """The inverse of both spellings: DECIMAL(10,2) is the only one with parameters."""
    if isinstance(stored, list):
        found = SqlType(*stored)
    else:
        name, _, parameters = stored.rstrip(")").partition("(")
        found = SqlType(name, *(int(each) for each in parameters.split(","))) if parameters else SqlType(name)
    assert found.name in PREPARED_TYPES, f"{found} is no type of a prepared column"
    return found


def _column_to_json(column: Column, kind: str | list[str | int | None]) -> dict[str, Any]:
    limit = {} if column.max_bytes is None else {"max_bytes": column.max_bytes}
    return {
        "name": column.name,
        "type": kind,
        "low": _exact(column.low),
        "high": _exact(column.high),
        "step": _exact(column.step),
        "domain": None if column.domain is None else [_scalar_to_json(value) for value in column.domain],
        "unique": column.unique,
        "source_name": column.source_name,
        **limit,
    }


def _column_from_json(stored: Mapping[str, Any]) -> Column:
    low, high, step = (None if stored[name] is None else Fraction(stored[name]) for name in ("low", "high", "step"))
    return Column(
        stored["name"],
        _type(stored["type"]),
        low=low,
        high=high,
        step=step,
        domain=None if stored["domain"] is None else tuple(_scalar_from_json(value) for value in stored["domain"]),
        unique=stored["unique"],
        source_name=stored["source_name"],
        max_bytes=stored.get("max_bytes"),
    )


def _exact(value: Fraction | None) -> str | None:
    return None if value is None else str(value)


def _scalar_to_json(value: Scalar) -> Any:
    """JSON's own types as they are, others tagged: {"date": "2024-01-31"}."""
    if isinstance(value, datetime):
        return {"timestamp": value.isoformat()}
    if isinstance(value, date):
        return {"date": value.isoformat()}
    return value


def _scalar_from_json(stored: Any) -> Scalar:
    if isinstance(stored, dict):
        [(kind, text)] = stored.items()
        return TAGGED[kind](text)
    assert stored is None or isinstance(stored, str | int | bool | float)
    return stored
