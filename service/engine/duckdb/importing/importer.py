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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from service.core.errors import CatalogRefused, Conflict, NotFound, ServiceError, SourceRefused
from service.core.schema import Table, UnitColumn, UnitVia
from service.core.schema_codec import table_to_json
from service.engine.base import Told
from service.engine.duckdb import manifest as manifests
from service.engine.duckdb.importing.declared import check_table, followers, fresh_dictionary
from service.engine.duckdb.manifest import Manifest, TableFile
from service.engine.duckdb.processes.child import Child, ChildLost
from service.engine.reports import ColumnSuggestion, Inspection, PreparedTable, Progress
from service.engine.sources import Source, find_files

MODULE = "service.engine.duckdb.importing.build"
BUILD_PREFIX = "_build-"
LOCK = "_lock"


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What one import may use; `threads` None: all cores."""

    memory_bytes: int = 4 * 2**30
    threads: int | None = None
    seconds: float = 6 * 3600.0


@dataclass(slots=True)
class Draft:
    """The version under construction: files still in the build folder, by their final name."""

    manifest: Manifest
    folder: Path
    built: dict[str, Path] = field(default_factory=dict)

    def path(self, dataset_folder: Path, file: str) -> Path:
        return self.built.get(file, dataset_folder / file)


class DuckDBImporter:
    """Builds and removes prepared DuckDB files under `data_dir`, from files below `roots`."""

    def __init__(self, data_dir: Path, roots: Sequence[Path], options: ImportOptions | None = None) -> None:
        self._data_dir = data_dir.resolve()
        self._roots = tuple(roots)
        self._options = options or ImportOptions()

    def files(self, source: Source) -> tuple[Path, ...]:
        return find_files(source, self._roots)

    def inspect(self, source: Source) -> Inspection:
        with tempfile.TemporaryDirectory(prefix="inspect-", dir=self._made(self._data_dir)) as folder:
            job = {"do": "inspect", "folder": folder, **self._source_fields(source)}
            answer = self._work(job, None)
        columns = tuple(
            ColumnSuggestion(**{**column, "domain": None if column["domain"] is None else tuple(column["domain"])})
            for column in answer["columns"]
        )
        return Inspection(answer["rows"], answer["complete"], columns)

    def column_types(self, source: Source) -> dict[str, str | None]:
        with tempfile.TemporaryDirectory(prefix="inspect-", dir=self._made(self._data_dir)) as folder:
            job = {"do": "describe", "folder": folder, **self._source_fields(source)}
            types: dict[str, str | None] = self._work(job, None)["types"]
        return types

    def prepare(self, dataset: str, table: Table, source: Source, progress: Told | None = None) -> PreparedTable:
        check_table(table)
        self._made(self._data_dir / "prepared")
        folder = self._made(manifests.dataset_folder(self._data_dir, dataset))
        with self._alone(folder), _build_folder(folder) as work:
            before = manifests.load_manifest(folder) or Manifest()
            version = before.data_version + 1
            draft = Draft(replace(before, data_version=version), work)
            answer = self._build(draft, folder, table, source, progress)
            for name in followers(before, table.name):
                entry = before.tables[name]
                self._build(draft, folder, entry.table, entry.source, progress)
            self._publish(draft, folder, before)
        return PreparedTable(dataset, table.name, version, answer["rows"], tuple(answer["warnings"]))

    def remove(self, dataset: str, table: str) -> int:
        folder = manifests.dataset_folder(self._data_dir, dataset)
        before = manifests.load_manifest(folder)
        if before is None or table not in before.tables:
            raise NotFound(f"no table {table} has been imported", {"table": table})
        with self._alone(folder):
            before = manifests.load_manifest(folder) or Manifest()
            if followers(before, table):
                raise Conflict("other tables reach their unit through this one; remove them first", {"table": table})
            kept = {name: entry for name, entry in before.tables.items() if name != table}
            after = replace(before, data_version=before.data_version + 1, tables=kept)
            manifests.save_manifest(folder, after)
            _sweep(folder, keep=after.files | before.files)
        return after.data_version

    def clean(self) -> None:
        for folder in sorted((self._data_dir / "prepared").glob("*/")):
            with contextlib.suppress(Conflict), self._alone(folder):
                held = manifests.load_manifest(folder)
                _sweep(folder, keep=held.files if held else set())
        for left in self._data_dir.glob("inspect-*"):
            shutil.rmtree(left, ignore_errors=True)

    def _build(self, draft: Draft, folder: Path, table: Table, source: Source, progress: Told | None) -> dict[str, Any]:
        """One table into the draft."""
        before, version = draft.manifest, draft.manifest.data_version
        work = draft.folder / table.name
        work.mkdir()
        fresh = fresh_dictionary(before, table)
        units_in = None if fresh or before.units_file is None else str(draft.path(folder, before.units_file))
        job = {
            "do": "build",
            "table": table_to_json(table),
            "folder": str(work),
            "units_in": units_in,
            "parent": self._parent(draft, folder, table),
            **self._source_fields(source),
        }
        answer = self._work(job, _teller(progress))
        file = f"{table.name}/v{version}.duckdb"
        draft.built[file] = work / "rows.duckdb"
        tables = {**before.tables, table.name: TableFile(table, source, file)}
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
            _sync_file(built)
            os.replace(built, target)
            touched.add(target.parent)
        manifests.sync_folders(sorted(touched))
        manifests.save_manifest(folder, draft.manifest)
        _sweep(folder, keep=draft.manifest.files | before.files, builds=False)

    def _work(self, job: dict[str, Any], tell: Callable[[dict[str, Any]], None] | None) -> dict[str, Any]:
        threads = self._options.threads or os.cpu_count() or 1
        child = Child(MODULE, memory_bytes=self._options.memory_bytes, threads=threads)
        try:
            child.wait_ready()
            answer, _ = child.call(job, b"", self._options.seconds, tell)
        except ChildLost as lost:
            raise _lost(late=lost.late) from None
        finally:
            child.kill()
        if "refused" in answer:
            raise SourceRefused(answer["refused"], answer["extra"])
        if answer.get("error") == "memory":
            raise SourceRefused("the import needs more memory or spill space than it may use", _REMEDY)
        if "error" in answer:
            raise SourceRefused("the source could not be prepared", {"kind": str(answer["error"])})
        return answer

    def _source_fields(self, source: Source) -> dict[str, Any]:
        files = [str(path) for path in self.files(source)]
        return {"kind": source.kind, "files": files, "source_table": source.table}

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


_REMEDY: dict[str, str | int] = {"remedy": "raise HALFTONE_ENGINE_MEMORY or import fewer columns"}


def _teller(progress: Told | None) -> Callable[[dict[str, Any]], None] | None:
    if progress is None:
        return None
    counts = ("step", "steps", "part", "parts")
    return lambda frame: progress(Progress(*(int(frame[name]) for name in counts)))


@contextlib.contextmanager
def _build_folder(folder: Path) -> Iterator[Path]:
    work = Path(tempfile.mkdtemp(prefix=BUILD_PREFIX, dir=folder))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _sweep(folder: Path, keep: set[str], *, builds: bool = True) -> None:
    for file in folder.glob("*/*.duckdb*"):
        if not file.parent.name.startswith(BUILD_PREFIX) and str(file.relative_to(folder)) not in keep:
            file.unlink(missing_ok=True)
    if builds:
        for left in folder.glob(BUILD_PREFIX + "*"):
            shutil.rmtree(left, ignore_errors=True)


def _sync_file(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _lost(*, late: bool) -> ServiceError:
    if late:
        return SourceRefused("the import took longer than it may", {})
    return SourceRefused("the import was stopped by its memory limit or from outside", _REMEDY)
