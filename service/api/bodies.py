"""Declarations and keys in words: what routes answer and the command line prints."""

from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from service.core.amounts import show_atto, show_fraction, show_pico
from service.core.schema import Column, Schema, Table, UnitColumn, UnitVia, iso_of


def show_schema(schema: Schema) -> dict[str, Any]:
    """Declarations in words; counters and amounts exact. No path, no size, no count."""
    given = schema.defaults
    return {
        "name": schema.dataset,
        "unit": schema.unit,
        "data_version": schema.data_version,
        "tables": {name: show_table(table) for name, table in schema.tables.items()},
        "defaults": {
            "epsilon": None if given.epsilon is None else show_pico(given.epsilon),
            "delta": None if given.delta is None else show_atto(given.delta),
            "rows_per_unit": given.rows_per_unit,
            "groups_per_unit": given.groups_per_unit,
            "min_units": given.min_units,
        },
        "epsilon_per_query_max": None
        if schema.epsilon_per_query_max is None
        else show_pico(schema.epsilon_per_query_max),
    }


def show_table(table: Table) -> dict[str, Any]:
    unit: dict[str, Any] | None = None
    match table.unit:
        case UnitColumn(column):
            unit = {"column": column}
        case UnitVia(column, target, key):
            unit = {"via": {"column": column, "references": f"{target}.{key}"}}
    return {
        "private": table.private,
        "unit": unit,
        "columns": {name: show_column(column) for name, column in table.columns.items()},
    }


def show_column(column: Column) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": str(column.type)}
    if column.low is not None and column.high is not None and column.step is not None:
        shown["bounds"] = [iso_of(end, column.type) or show_bound(end) for end in (column.low, column.high)]
        shown["step"] = show_bound(column.step)
    if column.domain is not None:
        shown["domain"] = list(column.domain)
    if column.unique:
        shown["unique"] = True
    return shown


def show_bound(value: Fraction) -> int | float | str:
    """A JSON number where it is exact, else a decimal string."""
    if value.denominator == 1 and abs(value.numerator) < 2**53:
        return int(value)
    text = show_fraction(value)
    return float(text) if Decimal(text) == Decimal(repr(float(text))) else text


def moment(ms: int | None) -> str | None:
    """ISO 8601 in UTC."""
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")


def show_key(key: dict[str, Any]) -> dict[str, Any]:
    """Without the secret, which is not kept."""
    return {
        "prefix": key["prefix"],
        "name": key["name"],
        "role": key["role"],
        "datasets": key["datasets"],
        "created_at": moment(key["created_ms"]),
        "expires_at": moment(key["expires_ms"]),
        "revoked_at": moment(key["revoked_ms"]),
        "last_used_at": moment(key["used_ms"]),
    }
