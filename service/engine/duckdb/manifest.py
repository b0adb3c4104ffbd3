"""Which files make up version N of a dataset: one small JSON file, replaced in one rename.

Invariant N3: a file that a manifest names is complete, on disk, and never written again. So a
version is either there as a whole or not at all, whenever the machine stops.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from service.core.schema import Column, Scalar, SqlType, Table, UnitColumn, UnitVia
from service.engine.sources import Source

NAME = "_manifest.json"
UNITS = "_units"


@dataclass(frozen=True, slots=True)
class TableFile:
    """A prepared table: what was declared, where it came from, and its file, relative to the dataset's folder."""

    table: Table
    source: Source
    file: str


@dataclass(frozen=True, slots=True)
class Manifest:
    data_version: int = 0
    unit_type: str | None = None
    units_file: str | None = None
    tables: Mapping[str, TableFile] = field(default_factory=dict)

    @property
    def files(self) -> set[str]:
        held = {entry.file for entry in self.tables.values()}
        return held | {self.units_file} if self.units_file else held


def dataset_folder(data_dir: Path, dataset: str) -> Path:
    return data_dir / "prepared" / dataset


def load(folder: Path) -> Manifest | None:
    try:
        raw = json.loads((folder / NAME).read_text())
    except FileNotFoundError:
        return None
    tables = {
        name: TableFile(table_from_json(entry["table"]), Source(**entry["source"]), entry["file"])
        for name, entry in raw["tables"].items()
    }
    return Manifest(raw["data_version"], raw["unit_type"], raw["units_file"], tables)


def save(folder: Path, manifest: Manifest) -> None:
    """Written beside, synced, renamed: readers see the old one or the new one."""
    raw = {
        "data_version": manifest.data_version,
        "unit_type": manifest.unit_type,
        "units_file": manifest.units_file,
        "tables": {
            name: {
                "table": table_to_json(entry.table),
                "source": {"kind": entry.source.kind, "path": entry.source.path, "table": entry.source.table},
                "file": entry.file,
            }
            for name, entry in manifest.tables.items()
        },
    }
    beside = folder / (NAME + ".new")
    with open(beside, "w") as file:
        json.dump(raw, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, folder / NAME)
    sync_folders([folder])


def sync_folders(folders: Iterable[Path]) -> None:
    """Renames reach the disk only with their folder."""
    for folder in folders:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# --- Declarations as JSON --------------------------------------------------------------------------


def table_to_json(table: Table) -> dict[str, Any]:
    unit: dict[str, str] | None = None
    if isinstance(table.unit, UnitColumn):
        unit = {"column": table.unit.column}
    elif isinstance(table.unit, UnitVia):
        unit = {"column": table.unit.column, "table": table.unit.table, "key": table.unit.key}
    return {
        "name": table.name,
        "columns": [_column_to_json(column) for column in table.columns.values()],
        "unit": unit,
        "expected_rows": table.expected_rows,
        "max_rows_per_unit": table.max_rows_per_unit,
    }


def table_from_json(raw: Mapping[str, Any]) -> Table:
    unit: UnitColumn | UnitVia | None = None
    if raw["unit"] is not None:
        unit = UnitVia(**raw["unit"]) if "table" in raw["unit"] else UnitColumn(**raw["unit"])
    columns = {column["name"]: _column_from_json(column) for column in raw["columns"]}
    return Table(raw["name"], columns, unit, raw["expected_rows"], raw["max_rows_per_unit"])


def _column_to_json(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": [column.type.name, column.type.precision, column.type.scale],
        "low": _exact(column.low),
        "high": _exact(column.high),
        "step": _exact(column.step),
        "domain": None if column.domain is None else [_scalar_to_json(value) for value in column.domain],
        "unique": column.unique,
        "source_name": column.source_name,
    }


def _column_from_json(raw: Mapping[str, Any]) -> Column:
    low, high, step = (None if raw[name] is None else Fraction(raw[name]) for name in ("low", "high", "step"))
    domain = None if raw["domain"] is None else tuple(_scalar_from_json(value) for value in raw["domain"])
    kind = SqlType(*raw["type"])
    return Column(raw["name"], kind, low, high, step, domain, raw["unique"], raw["source_name"])


def _exact(value: Fraction | None) -> str | None:
    return None if value is None else str(value)


def _scalar_to_json(value: Scalar) -> Any:
    if isinstance(value, datetime):
        return {"timestamp": value.isoformat()}
    if isinstance(value, date):
        return {"date": value.isoformat()}
    return value


def _scalar_from_json(raw: Any) -> Scalar:
    if isinstance(raw, dict):
        if "date" in raw:
            return date.fromisoformat(raw["date"])
        return datetime.fromisoformat(raw["timestamp"])
    held: Scalar = raw
    return held
