"""Do names, tables and paths to the unit make sense? Pure; every refusal names what to change."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from service.catalog.check_columns import build_column, parse_type
from service.catalog.declare import ColumnDeclaration, TableDeclaration
from service.core.errors import CatalogRefused
from service.core.schema import NAME_PATTERN, RESERVED_TABLES, Column, Table, UnitColumn, UnitVia


def check_name(name: str, kind: Literal["dataset", "table"]) -> None:
    """Whether a new dataset or table may be called so. Names of our own begin with # or _ and never fit."""
    if not re.fullmatch(NAME_PATTERN, name):
        remedy = "a name has lower-case letters, digits and _, begins with a letter, and is at most 63 long"
        raise CatalogRefused(f"{name[:63]!r} can not be the name of a {kind}", {"remedy": remedy})
    if kind == "table" and re.fullmatch(RESERVED_TABLES, name):
        raise CatalogRefused(
            f"{name} can not be the name of a table: released results are called core_0, core_1, … and would hide it",
            {"table": name, "remedy": "declare it under another name; the file keeps its own"},
        )


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column as the file has it: the name there, and the type in words (None: can not be prepared)."""

    name: str
    type: str | None


def build_table(name: str, declared: TableDeclaration, file_columns: tuple[FileColumn, ...]) -> Table:
    """A core Table from a declaration and the file's own column names and types.

    Columns that the declaration does not mention are taken with the file's type (`rest: include`):
    they can be filtered and grouped by, not summed. A name outside the pattern is left out unless it
    is declared with `source_name`.
    """
    by_source = {column.name: column for column in file_columns}
    columns: dict[str, Column] = {}
    taken = set()
    for column, wish in declared.columns.items():
        source = wish.source_name or column
        found = by_source.get(source)
        if found is None:
            raise CatalogRefused(
                f"{name}.{column} is declared, but the file has no column of that name", {"column": column}
            )
        kind_text = wish.type or found.type
        if kind_text is None:
            raise CatalogRefused(f"{name}.{column} has a type that can not be prepared", {"column": column})
        columns[column] = build_column(column, wish, parse_type(kind_text), table=name, private=declared.private)
        taken.add(source)
    needed = {unit_column_name(declared)} if declared.unit else set()
    for found in file_columns:
        wanted = declared.rest == "include" or found.name in needed
        if found.name not in taken and found.type and wanted and re.fullmatch(NAME_PATTERN, found.name):
            columns[found.name] = build_column(
                found.name, ColumnDeclaration(), parse_type(found.type), table=name, private=declared.private
            )
    missing = needed - columns.keys()
    if missing:
        raise CatalogRefused(f"the unit column {name}.{missing.pop()} is not in the file", {"table": name})
    if not columns:
        raise CatalogRefused(f"{name} would have no columns", {"table": name})
    return Table(
        name, columns, build_unit(declared),
        expected_rows=declared.expected_rows, max_rows_per_unit=declared.max_rows_per_unit,
    )  # fmt: skip


def unit_column_name(declared: TableDeclaration) -> str:
    assert declared.unit is not None
    name = declared.unit.column or (declared.unit.via and declared.unit.via.column)
    assert name
    return name


def build_unit(declared: TableDeclaration) -> UnitColumn | UnitVia | None:
    if declared.unit is None:
        return None
    if declared.unit.column is not None:
        return UnitColumn(declared.unit.column)
    assert declared.unit.via is not None
    table, key = declared.unit.via.references.split(".")
    return UnitVia(declared.unit.via.column, table, key)


def check_paths(tables: Mapping[str, Table]) -> None:
    """Every private table reaches the unit through verified unique keys, without going round in circles."""
    for table in tables.values():
        seen = {table.name}
        step = table
        while isinstance(step.unit, UnitVia):
            target = tables.get(step.unit.table)
            where = f"{step.name}.{step.unit.column}"
            if target is None:
                raise CatalogRefused(
                    f"{where} references {step.unit.table}, which is not registered yet", {"table": step.name}
                )
            if not target.private:
                raise CatalogRefused(
                    f"{where} references the public table {target.name}; the unit is not there", {"table": step.name}
                )
            key = target.columns.get(step.unit.key)
            if key is None or not key.unique:
                raise CatalogRefused(
                    f"{where} references {target.name}.{step.unit.key}, which is not declared unique",
                    {"table": step.name, "remedy": f'declare {target.name}.{step.unit.key} with "unique": true'},
                )
            if target.name in seen:
                raise CatalogRefused(
                    f"the path from {table.name} to its unit goes round in a circle", {"table": table.name}
                )
            seen.add(target.name)
            step = target
