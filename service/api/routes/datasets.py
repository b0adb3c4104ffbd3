"""What a caller may know about datasets: declarations and budget, never anything measured from the data."""

import json
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response

from service.api.auth import Analyst, Viewer, Wired
from service.api.formats import JSON
from service.api.json_body import ExactRoute
from service.core.amounts import show_atto, show_fraction, show_pico
from service.core.schema import NAME_PATTERN, Column, Schema, Table, UnitColumn, UnitVia, iso_of

router = APIRouter(prefix="/v1/datasets", tags=["datasets"], route_class=ExactRoute)

DatasetName = Annotated[str, Path(pattern=f"^{NAME_PATTERN}$", max_length=63)]


@router.get("", response_model=list[dict[str, Any]])
def list_datasets(viewer: Viewer, parts: Wired) -> Response:
    """The datasets that this key may read."""
    names = parts.catalog.datasets(viewer)
    found = [{"name": name, "unit": parts.catalog.declaration(name).unit} for name in names]
    return Response(json.dumps(found), media_type=JSON)


@router.get("/{dataset}", response_model=dict[str, Any])
def get_dataset(dataset: DatasetName, viewer: Viewer, parts: Wired) -> Response:
    """Tables, columns, types, declared bounds and domains, and the defaults that a query gets."""
    return Response(json.dumps(show_schema(parts.catalog.schema(dataset, viewer)), default=str), media_type=JSON)


@router.get("/{dataset}/budget", response_model=dict[str, Any])
def get_budget(
    dataset: DatasetName,
    analyst: Analyst,
    parts: Wired,
    detail: Annotated[Literal["orders"] | None, Query()] = None,
) -> Response:
    """Granted, spent and remaining as epsilon at delta, and this key's own quota."""
    parts.catalog.schema(dataset, analyst)
    budget = parts.answerer.budget(dataset, analyst, detail is not None)
    return Response(json.dumps(budget, allow_nan=False), media_type=JSON)


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
