"""Which version of a dataset serves now, and what a child must open to serve it."""

import os
import threading
from pathlib import Path

from service.core.errors import Conflict
from service.engine.duckdb import manifest as manifests
from service.engine.duckdb.manifest import Manifest
from service.engine.duckdb.prepared_file import table_views, units_view
from service.engine.duckdb.processes.pool import Binding


class KnownVersions:
    """The manifest of each dataset, read again when its file changes."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._lock = threading.Lock()
        self._held: dict[str, tuple[tuple[int, int], Manifest]] = {}

    def current(self, dataset: str) -> Manifest:
        folder = manifests.dataset_folder(self._data_dir, dataset)
        try:
            status = os.stat(folder / manifests.NAME)
        except FileNotFoundError:
            raise _no_data(dataset) from None
        stamp = (status.st_mtime_ns, status.st_ino)
        with self._lock:
            held = self._held.get(dataset)
            if held is not None and held[0] == stamp:
                return held[1]
        manifest = manifests.load_manifest(folder)
        if manifest is None:
            raise _no_data(dataset)
        with self._lock:
            self._held[dataset] = (stamp, manifest)
        return manifest

    def binding(self, dataset: str, manifest: Manifest, *, private: bool) -> Binding:
        """Files and views of a version; only its public tables for the scratch engine."""
        folder = manifests.dataset_folder(self._data_dir, dataset).resolve()
        files: dict[str, str] = {}
        views: dict[str, str] = {}
        for number, entry in enumerate(manifest.tables[name] for name in sorted(manifest.tables)):
            if private or not entry.table.private:
                alias = f"#d{number}"
                files[alias] = str(folder / entry.file)
                views |= table_views(entry.table, alias)
        if private and manifest.units_file:
            files["#du"] = str(folder / manifest.units_file)
            views |= units_view("#du")
        return Binding(dataset, manifest.data_version, files, views)


def _no_data(dataset: str) -> Conflict:
    return Conflict("no table of this dataset has been imported yet", {"dataset": dataset})
