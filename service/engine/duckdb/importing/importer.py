"""Importing tables: sources in, a new version of the dataset out, in one step or not at all.

An import builds new files beside the serving ones in a limited child process, makes them durable,
moves them into place and then replaces the manifest. Until that last rename nothing has changed for
anyone; after it, new queries see the new version and running ones finish on the old files.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from service.core.errors import CatalogRefused, Conflict, NotFound
from service.core.schema import Table, UnitColumn, UnitVia
from service.core.schema_codec import table_to_json
from service.core.sizes import PublicSize, size_from_text
from service.engine.duckdb import manifest as manifests
from service.engine.duckdb.importing.build_folders import build_folder, sweep
from service.engine.duckdb.importing.count_jobs import count_units, cut_when_counted
from service.engine.duckdb.importing.declared import (
    check_table,
    followers,
    fresh_dictionary,
    only_claimed,
    refuse_changed,
)
from service.engine.duckdb.importing.import_child import ImportChild, ImportOptions
from service.engine.duckdb.manifest import Manifest, TableFile
from service.engine.import_base import Claimed, Counting, Prepared, Told, Truncation
from service.engine.reports import ColumnSuggestion, Inspection, PreparedTable, Progress
from service.engine.sources import Source, find_files, plain_places

LOCK = "_lock"
T = TypeVar("T")


@dataclass(slots=True)
class Draft:
    """The version under construction: files still in the build folder, by their final name. `most` rows of a unit are
    kept, by table; None: all, until they have been counted."""

    manifest: Manifest
    folder: Path
    most: Mapping[str, int | None]
    only: Claimed | None = None
    built: dict[str, Path] = field(default_factory=dict)

    def path(self, dataset_folder: Path, file: str) -> Path:
        return self.built.get(file, dataset_folder / file)

    def keep_most(self, table: str, most: int | None) -> None:
        """What was decided about a table once its rows were counted."""
        entry = replace(self.manifest.tables[table], most=most)
        self.manifest = replace(self.manifest, tables={**self.manifest.tables, table: entry})


class DuckDBImporter:
    """Builds and removes prepared DuckDB files under `data_dir`, from files below `roots`."""

    def __init__(self, data_dir: Path, roots: Sequence[Path], options: ImportOptions | None = None) -> None:
        self._data_dir = data_dir.resolve()
        self._roots = tuple(roots)
        self._options = options or ImportOptions()
        self._child = ImportChild(self._options)

    def files(self, source: Source) -> tuple[Path, ...]:
        return find_files(source, self._roots)

    def inspect(self, source: Source) -> Inspection:
        with tempfile.TemporaryDirectory(prefix="inspect-", dir=self._made(self._data_dir)) as folder:
            job = {"do": "inspect", "folder": folder, **self._source_fields(source)}
            answer = self._child.run(job, None)
        columns = tuple(
            ColumnSuggestion(**{**column, "domain": None if column["domain"] is None else tuple(column["domain"])})
            for column in answer["columns"]
        )
        return Inspection(answer["rows"], answer["complete"], columns)

    def column_types(self, source: Source) -> dict[str, str | None]:
        with tempfile.TemporaryDirectory(prefix="inspect-", dir=self._made(self._data_dir)) as folder:
            job = {"do": "describe", "folder": folder, **self._source_fields(source)}
            types: dict[str, str | None] = self._child.run(job, None)["types"]
        return types

    def prepare(
        self,
        dataset: str,
        table: Table,
        source: Source,
        progress: Told | None = None,
        truncation: Truncation | None = None,
        *,
        only: Claimed | None = None,
        above: int = 0,
    ) -> PreparedTable:
        check_table(table)
        began, cut = time.monotonic(), truncation or Truncation()
        folder = self._dataset_folder(dataset)
        with self._alone(folder), build_folder(folder) as work:
            before = manifests.load_manifest(folder) or Manifest()
            version = max(before.data_version, above) + 1
            most = {**cut.most, table.name: None} if cut.profiled else cut.most
            draft = Draft(replace(before, data_version=version), work, most, only)
            answer = self._build(draft, folder, table, source, progress)
            if cut.profiled is not None:
                self._options.wait_for_rung(began)  # a charge comes next
                answer = cut_when_counted(self._child.run, answer, work / table.name, table, cut.profiled)
                draft.keep_most(table.name, answer["most"])
            hanging = {}
            for name in followers(before, table.name):
                entry = before.tables[name]
                hanging[name] = self._build(draft, folder, entry.table, entry.source, progress)["rows"]
            self._options.wait_for_rung(began)
            self._publish(draft, folder, before)
        versions = {name: version for name, entry in draft.manifest.tables.items() if entry.version == version}
        size = draft.manifest.tables[table.name].size
        told = tuple(answer["warnings"])
        return PreparedTable(dataset, table.name, version, answer["rows"], told, hanging, versions, size)

    def counted(self, dataset: str, table: str, use: Callable[[Counting], T]) -> T:
        folder = manifests.dataset_folder(self._data_dir, dataset)
        if manifests.load_manifest(folder) is None:
            raise _not_there(table)
        with self._alone(folder):
            held = manifests.load_manifest(folder) or Manifest()
            if table not in held.tables:
                raise _not_there(table)
            with build_folder(folder) as work:
                return use(lambda: count_units(self._child.run, work, folder / held.tables[table].file))

    def remove(
        self, dataset: str, table: str, *, above: int = 0, first: Callable[[], None] | None = None
    ) -> int | None:
        folder = self._dataset_folder(dataset)
        with self._alone(folder):
            before = manifests.load_manifest(folder) or Manifest()
            if followers(before, table):
                raise Conflict("other tables reach their unit through this one; remove them first", {"table": table})
            if first is not None:
                first()
            if table not in before.tables:
                return None
            kept = {name: entry for name, entry in before.tables.items() if name != table}
            after = replace(before, data_version=max(before.data_version, above) + 1, tables=kept)
            manifests.save_manifest(folder, after)
            sweep(folder, keep=after.files | before.files)
        return after.data_version

    def places(self, source: Source) -> tuple[Path, ...]:
        return plain_places(source, self._roots)

    def prepared_datasets(self) -> list[str]:
        return sorted(folder.name for folder in (self._data_dir / "prepared").glob("*/"))

    def prepared(self, dataset: str) -> Prepared | None:
        return manifests.prepared_of(manifests.load_manifest(manifests.dataset_folder(self._data_dir, dataset)))

    @contextlib.contextmanager
    def still(self, dataset: str) -> Iterator[bool]:
        folder = manifests.dataset_folder(self._data_dir, dataset)
        if not folder.is_dir():
            yield True
            return
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self._alone(folder))
                free = True
            except Conflict:
                free = False
            yield free

    def clean(self) -> None:
        for folder in sorted((self._data_dir / "prepared").glob("*/")):
            with contextlib.suppress(Conflict), self._alone(folder):
                held = manifests.load_manifest(folder)
                sweep(folder, keep=held.files if held else set())
        for left in self._data_dir.glob("inspect-*"):
            shutil.rmtree(left, ignore_errors=True)

    def _build(self, draft: Draft, folder: Path, table: Table, source: Source, progress: Told | None) -> dict[str, Any]:
        """One table into the draft."""
        before, version = draft.manifest, draft.manifest.data_version
        work = draft.folder / table.name
        work.mkdir()
        fresh = fresh_dictionary(before, table)
        most = draft.most.get(table.name, table.max_rows_per_unit)
        units_in = None if fresh or before.units_file is None else str(draft.path(folder, before.units_file))
        job = {
            "do": "build",
            "table": table_to_json(table),
            "folder": str(work),
            "units_in": units_in,
            "parent": self._parent(draft, folder, table),
            "most": most,
            **self._source_fields(source),
        }
        job["files"] = files = only_claimed(draft.only, before, table.name, job["files"])
        refuse_changed(draft.only, table.name, files)
        answer = self._child.run(job, _teller(progress))
        refuse_changed(draft.only, table.name, files)  # what was read in between is then what was hashed
        file = f"{table.name}/v{version}.duckdb"
        draft.built[file] = work / "rows.duckdb"
        size = None if answer["size"] is None else size_from_text(answer["size"])
        assert size is None or isinstance(size, PublicSize)
        entry = TableFile(table, source, file, version, tuple(files), size, most if table.private else None)
        tables = {**before.tables, table.name: entry}
        unit_type, units_file = before.unit_type, before.units_file
        if isinstance(table.unit, UnitColumn):
            unit_type = str(table.columns[table.unit.column].type)
            if answer["new_units"] or units_in is None:
                units_file = f"{manifests.UNITS}/u{version}.duckdb"
                draft.built[units_file] = work / "units.duckdb"
        draft.manifest = replace(before, tables=tables, unit_type=unit_type, units_file=units_file)
        return answer

    def _parent(self, draft: Draft, folder: Path, table: Table) -> str | None:
        """The prepared file through which a foreign key leads to the unit."""
        if not isinstance(table.unit, UnitVia):
            return None
        entry = draft.manifest.tables.get(table.unit.table)
        names: dict[str, str | int] = {"table": table.unit.table, "column": table.unit.key}
        if entry is None or not entry.table.private:
            raise CatalogRefused(f"{table.unit.table} must be a private table, imported before {table.name}", names)
        key = entry.table.columns.get(table.unit.key)
        if key is None or not key.unique:
            raise CatalogRefused(f"{table.unit.table}.{table.unit.key} must be declared unique", names)
        if key.type != table.columns[table.unit.column].type:
            raise CatalogRefused(f"{table.unit.column} and {table.unit.table}.{table.unit.key} differ in type", names)
        return str(draft.path(folder, entry.file))

    def _publish(self, draft: Draft, folder: Path, before: Manifest) -> None:
        """Files first, durable and in place; the manifest last. Files of the previous version stay until
        the next import, for queries that are just being bound to it."""
        touched = {folder}
        for file, built in draft.built.items():
            target = folder / file
            self._made(target.parent)
            manifests.sync_file(built)
            os.replace(built, target)
            touched.add(target.parent)
        manifests.sync_folders(sorted(touched))
        manifests.save_manifest(folder, draft.manifest)
        sweep(folder, keep=draft.manifest.files | before.files, builds=False)

    def _source_fields(self, source: Source) -> dict[str, Any]:
        files = [str(path) for path in self.files(source)]
        return {"kind": source.kind, "files": files, "source_table": source.table}

    def _dataset_folder(self, dataset: str) -> Path:
        self._made(self._data_dir / "prepared")
        return self._made(manifests.dataset_folder(self._data_dir, dataset))

    def _made(self, folder: Path) -> Path:
        """Prepared files are as private as their sources: for this user alone."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    @contextlib.contextmanager
    def _alone(self, folder: Path) -> Iterator[None]:
        """One import per dataset at a time, also between processes."""
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Conflict("another import of this dataset is running", {"dataset": folder.name}) from None
            try:
                yield
            finally:
                # Closing alone is not enough: a child that is just being forked holds the file a moment longer.
                fcntl.flock(handle, fcntl.LOCK_UN)
        finally:
            os.close(handle)


def _not_there(table: str) -> NotFound:
    return NotFound(f"no table {table} has been imported", {"table": table})


def _teller(progress: Told | None) -> Callable[[dict[str, Any]], None] | None:
    if progress is None:
        return None
    counts = ("step", "steps", "part", "parts")
    return lambda frame: progress(Progress(*(int(frame[name]) for name in counts)))
