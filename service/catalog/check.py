"""Do bounds, steps, domains and paths to the unit make sense? Pure; every refusal names what to change."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Literal

from service.catalog.declare import ColumnDeclaration, TableDeclaration
from service.core.errors import CatalogRefused
from service.core.schema import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    NAME_PATTERN,
    RESERVED_TABLES,
    TIMESTAMP,
    VARCHAR,
    Column,
    Scalar,
    SqlType,
    Table,
    UnitColumn,
    UnitVia,
)

CODE_MAX = 2**31  # codes beyond 32 bits would not fit beside the weight
EPOCH = datetime(1970, 1, 1)
DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)\((\d{1,2}),\s*(\d{1,2})\)")
TYPE_SPELLINGS = {
    "BOOLEAN": BOOLEAN, "BOOL": BOOLEAN,
    "BIGINT": BIGINT, "INTEGER": BIGINT, "INT": BIGINT, "SMALLINT": BIGINT, "TINYINT": BIGINT,
    "UINTEGER": BIGINT, "USMALLINT": BIGINT, "UTINYINT": BIGINT, "LONG": BIGINT,
    "DOUBLE": DOUBLE, "FLOAT": DOUBLE, "REAL": DOUBLE,
    "VARCHAR": VARCHAR, "TEXT": VARCHAR, "STRING": VARCHAR,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP, "DATETIME": TIMESTAMP,
}  # fmt: skip


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


def parse_type(text: str) -> SqlType:
    """One of the seven prepared types; narrower spellings are widened."""
    upper = text.strip().upper()
    if upper in TYPE_SPELLINGS:
        return TYPE_SPELLINGS[upper]
    found = DECIMAL.fullmatch(upper)
    if found:
        precision, scale = int(found[1]), int(found[2])
        if 1 <= precision <= 38 and scale <= precision:
            return SqlType("DECIMAL", precision, scale)
    raise CatalogRefused(
        f"the type {text[:40]!r} is not kept in a prepared table",
        {"remedy": "declare BOOLEAN, BIGINT, DOUBLE, DECIMAL(p,s), VARCHAR, DATE or TIMESTAMP"},
    )


def bound_value(value: Decimal | str, kind: SqlType, where: str) -> Fraction:
    """A bound in the column's own unit: numbers as they are, dates in days, timestamps in microseconds."""
    try:
        if kind.name == "DATE" and isinstance(value, str):
            return Fraction((date.fromisoformat(value) - EPOCH.date()).days)
        if kind.name == "TIMESTAMP" and isinstance(value, str):
            return Fraction(_naive(datetime.fromisoformat(value)) // timedelta(microseconds=1))
        return Fraction(Decimal(value)) if -400 < Decimal(value).adjusted() < 400 else _refuse_bound(where)
    except (ValueError, ArithmeticError):
        return _refuse_bound(where)


def _naive(moment: datetime) -> timedelta:
    return (moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment) - EPOCH


def _refuse_bound(where: str) -> Fraction:
    raise CatalogRefused(f"a bound of {where} is no finite value of the column's type", {"column": where})


def default_step(kind: SqlType, low: Fraction, high: Fraction) -> Fraction:
    """The finest grid on which codes keep to 32 bits: 1, 10^-scale, or a power of two for floats."""
    reach = max(abs(low), abs(high))
    if kind.name == "DOUBLE":
        step = Fraction(1, 2**20)
        while reach / step >= CODE_MAX // 2:
            step *= 2
        return step
    step = Fraction(1, 10 ** (kind.scale or 0)) if kind.name == "DECIMAL" else Fraction(1)
    while reach / step >= CODE_MAX:
        step *= 10
    return step


def build_column(name: str, declared: ColumnDeclaration, kind: SqlType, *, table: str) -> Column:
    """A core Column from a declaration whose type is known."""
    where = f"{table}.{name}"
    low = high = step = None
    if declared.bounds is not None:
        if kind.name in ("VARCHAR", "BOOLEAN"):
            raise CatalogRefused(
                f"{where} is {kind}, and only numbers, dates and timestamps have bounds", {"column": where}
            )
        low, high = (bound_value(bound, kind, where) for bound in declared.bounds)
        if low > high:
            raise CatalogRefused(f"the bounds of {where} are the wrong way round", {"column": where})
        step = default_step(kind, low, high)
        if declared.step is not None:
            step = bound_value(declared.step, SqlType("DOUBLE"), where)
            if step <= 0:
                raise CatalogRefused(f"the step of {where} must be above zero", {"column": where})
        if max(abs(low), abs(high)) / step >= 2 * CODE_MAX:
            raise CatalogRefused(
                f"{where} would need more than 32 bits on this step",
                {"column": where, "remedy": "narrow the bounds or declare a larger step"},
            )
    elif declared.step is not None:
        raise CatalogRefused(f"{where} has a step but no bounds", {"column": where, "remedy": "declare bounds"})
    domain = None
    if declared.domain is not None:
        domain = tuple(domain_value(value, kind, where) for value in declared.domain)
        if not domain or len(set(domain)) != len(domain):
            raise CatalogRefused(f"the domain of {where} must list each value once", {"column": where})
    return Column(
        name, kind, low=low, high=high, step=step, domain=domain, unique=declared.unique,
        source_name=declared.source_name,
    )  # fmt: skip


def domain_value(value: object, kind: SqlType, where: str) -> Scalar:
    """A member of a declared domain as the type that the prepared column holds."""
    if value is None:
        return None
    refusal = CatalogRefused(f"the domain of {where} holds a value that is no {kind}", {"column": where})
    try:
        match kind.name:
            case "BOOLEAN" if isinstance(value, bool):
                return value
            case "BIGINT" if isinstance(value, int) and not isinstance(value, bool):
                return value
            case "BIGINT" if isinstance(value, Decimal) and value == value.to_integral_value():
                return int(value)
            case "DOUBLE" if isinstance(value, int | Decimal | float) and not isinstance(value, bool):
                return float(value) + 0.0
            case "VARCHAR" if isinstance(value, str):
                return value
            case "DATE" if isinstance(value, date) and not isinstance(value, datetime):
                return value
            case "DATE" if isinstance(value, str):
                return date.fromisoformat(value)
            case "TIMESTAMP" if isinstance(value, datetime):
                return EPOCH + _naive(value)
            case "TIMESTAMP" if isinstance(value, str):
                return EPOCH + _naive(datetime.fromisoformat(value))
    except ValueError:
        raise refusal from None
    raise refusal


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
        columns[column] = build_column(column, wish, parse_type(kind_text), table=name)
        taken.add(source)
    needed = {unit_column_name(declared)} if declared.unit else set()
    for found in file_columns:
        wanted = declared.rest == "include" or found.name in needed
        if found.name not in taken and found.type and wanted and re.fullmatch(NAME_PATTERN, found.name):
            columns[found.name] = build_column(found.name, ColumnDeclaration(), parse_type(found.type), table=name)
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
