"""Which files make up version N of a dataset: one small JSON file, replaced in one rename.

Invariant N3: a file that a manifest names is complete, on disk, and never written again. So a
version is either there as a whole or not at all, whenever the machine stops.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.core.schema import Table
from service.core.schema_codec import table_from_json, table_to_json
from service.core.sizes import PublicSize, size_from_text, size_to_text
from service.engine.import_base import Prepared, PreparedFile
from service.engine.sources import Source

NAME = "_manifest.json"
UNITS = "_units"


@dataclass(frozen=True, slots=True)
class TableFile:
    """A prepared table: what was declared, where it came from, and its file, relative to the dataset's folder.

    `version` is the data version that it was built in. `files` are the real files that it was built from: the ones
    that were claimed; None where that was not written down yet. `size` is a public table's, and `most` how many rows of
    a unit a private one kept (None: all); neither was written down always.
    """

    table: Table
    source: Source
    file: str
    version: int = 0
    files: tuple[str, ...] | None = None
    size: PublicSize | None = None
    most: int | None = None


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


def prepared_of(manifest: Manifest | None) -> Prepared | None:
    """What others than the engine may know of it."""
    if manifest is None:
        return None
    tables = {
        name: PreparedFile(entry.table, entry.source, entry.version, entry.files, entry.size, entry.most)
        for name, entry in manifest.tables.items()
    }
    return Prepared(manifest.data_version, tables)


def dataset_folder(data_dir: Path, dataset: str) -> Path:
    return data_dir / "prepared" / dataset


def load_manifest(folder: Path) -> Manifest | None:
    try:
        raw = json.loads((folder / NAME).read_text())
    except FileNotFoundError:
        return None
    tables = {name: _table_file(entry, raw["data_version"]) for name, entry in raw["tables"].items()}
    return Manifest(raw["data_version"], raw["unit_type"], raw["units_file"], tables)


def _table_file(entry: dict[str, Any], data_version: int) -> TableFile:
    """Before tables had versions, each was of its dataset's: that is the version its stored releases have."""
    table, files, size = table_from_json(entry["table"]), entry.get("files"), entry.get("size")
    known = None if size is None else size_from_text(size)
    assert known is None or isinstance(known, PublicSize)
    return TableFile(
        table,
        Source(**entry["source"]),
        entry["file"],
        entry.get("version", data_version),
        None if files is None else tuple(files),
        known,
        entry.get("most", table.max_rows_per_unit),  # what was declared was always cut, before that was written down
    )


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
                "version": entry.version,
                "files": entry.files,
                "size": None if entry.size is None else size_to_text(entry.size),
                "most": entry.most,
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


def sync_file(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folders(folders: Iterable[Path]) -> None:
    """Renames reach the disk only with their folder."""
    for folder in folders:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
