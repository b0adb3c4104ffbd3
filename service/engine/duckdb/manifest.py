"""Which files make up version N of a dataset: one small JSON file, replaced in one rename.

Invariant N3: a file that a manifest names is complete, on disk, and never written again. So a
version is either there as a whole or not at all, whenever the machine stops.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from service.core.schema import Table
from service.core.schema_codec import table_from_json, table_to_json
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
    """Which prepared files make up a version of a dataset."""

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


def load_manifest(folder: Path) -> Manifest | None:
    try:
        raw = json.loads((folder / NAME).read_text())
    except FileNotFoundError:
        return None
    tables = {
        name: TableFile(table_from_json(entry["table"]), Source(**entry["source"]), entry["file"])
        for name, entry in raw["tables"].items()
    }
    return Manifest(raw["data_version"], raw["unit_type"], raw["units_file"], tables)


def save_manifest(folder: Path, manifest: Manifest) -> None:
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
