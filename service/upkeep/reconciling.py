"""Prepared files and catalog brought together after a process was killed between the two.

The manifest's rename is what makes a version serve (N3), and the catalog's commit comes after it. A process that was
killed between them left a catalog that plans with the version before, and questions about that table would be refused
for ever. So the catalog follows the manifest: it holds the declaration that the files were made with. Only a deletion
goes the other way, because the catalog's commit comes first there.
"""

import logging
from collections.abc import Sequence

from service.catalog.imports import Built, Imports, PublicFile, Served, Unfinished
from service.catalog.store import Catalog
from service.core.errors import Conflict, ServiceError
from service.core.ids import new_id
from service.core.inner_table import may_be_same
from service.core.sizes import ReleasedProfile, Size, private_size
from service.engine.file_facts import inode_of
from service.engine.import_base import Importer, Prepared, PreparedFile
from service.ledger.book import Ledger

log = logging.getLogger("halftone")

FINISHED = "the service stopped right after the new version was ready; it was put into service at the next start"
FAILED = "the service stopped in mid-import; import the table again"


class Reconciling:
    """Runs at a start for every dataset, and before each import for its own."""

    def __init__(self, catalog: Catalog, imports: Imports, importer: Importer, ledger: Ledger) -> None:
        self._catalog = catalog
        self._imports = imports
        self._importer = importer
        self._ledger = ledger

    def start(self) -> None:
        """Imports of processes that are gone ended one way or the other; those of others run on."""
        left = self.left_behind()
        for dataset in self._catalog.datasets():
            served = self.reconcile(dataset)
            self._end([each for each in left if each.dataset == dataset], served)
        known = set(self._catalog.datasets())
        self._end([each for each in left if each.dataset not in known], set())

    def left_behind(self, dataset: str | None = None) -> list[Unfinished]:
        """Imports that have not ended, and whose process is gone; None: of all datasets."""
        found = [each for each in self._imports.unfinished() if dataset in (None, each.dataset)]
        return [each for each in found if each.owner is None or self._ledger.is_gone(each.owner)]

    def remove_deleted(self, dataset: str, table: str) -> None:
        """Before a table that was deleted is declared again: what a killed process left of it goes, so that it comes
        back by its own import or not at all. Raises Conflict while an import of the dataset is in the way."""
        known, prepared = self._imports.served(dataset).get(table), self._importer.prepared(dataset)
        if known is not None and known.deleted and prepared is not None and table in prepared.tables:
            self._remove(dataset, table)

    def reconcile(self, dataset: str) -> set[str]:
        """The tables that are served as prepared since just now. Nothing is done while somebody imports."""
        with self._importer.still(dataset) as still:
            prepared = self._importer.prepared(dataset)
            if not still or prepared is None:
                return set()
            served = self._imports.served(dataset)
            changed = self._follow(dataset, prepared, served)
        for table in sorted(prepared.tables):
            if table in served and served[table].deleted:
                try:
                    self._remove(dataset, table)
                except ServiceError as refused:
                    log.warning("a deleted table is still prepared", extra={"dataset": dataset, "why": refused.detail})
        return changed

    def _follow(self, dataset: str, prepared: Prepared, served: dict[str, Served]) -> set[str]:
        profiles = self._catalog.profiles(dataset)
        ahead = {name for name, file in prepared.tables.items() if name in served and _is_ahead(file, served[name])}
        private = {name for name in ahead if self._is_private_by_now(prepared.tables[name])}
        behind = {
            name: Built(file.table, file.version, _size(file, profiles.get(name)))
            for name, file in prepared.tables.items()
            if name in ahead - private
        }
        there = prepared.tables.keys() - private
        gone = [name for name, table in served.items() if table.serving and name not in there]
        if private:
            log.warning(
                "public tables are not served: files of them are private by now",
                extra={"dataset": dataset, "tables": sorted(private)},
            )
        if behind or gone or self._catalog.schema(dataset).data_version < prepared.data_version:
            log.warning(
                "the catalog was brought to the prepared data", extra={"dataset": dataset, "tables": sorted(behind)}
            )
            self._imports.serve(dataset, behind, gone, prepared.data_version)
        for name in behind:
            self._note_public(dataset, name, prepared)
        return set(behind)

    def _note_public(self, dataset: str, name: str, prepared: Prepared) -> None:
        file = prepared.tables[name]
        if not file.table.private and file.files:
            public = tuple(PublicFile(path, file.source.table or "", dataset, name) for path in file.files)
            self._imports.carry_public(new_id("i"), public)

    def _is_private_by_now(self, file: PreparedFile) -> bool:
        """Whether a file of a public table was claimed since, under its path or that of a hard link."""
        if file.table.private:
            return False
        paths = set(self._files(file))
        inodes = {inode_of(path) for path in paths} - {""}
        return any(
            may_be_same(claimed.inner, file.source.table or "")
            and (claimed.path in paths or inode_of(claimed.path) in inodes)
            for claimed in self._ledger.claimed_files()
        )

    def _files(self, file: PreparedFile) -> Sequence[str]:
        """The real files behind it; where they were not written down, those that lie there now."""
        if file.files is not None:
            return file.files
        try:
            return [str(path) for path in self._importer.files(file.source)]
        except ServiceError:
            return ()

    def _remove(self, dataset: str, table: str) -> None:
        def still_deleted() -> None:
            if not self._imports.served(dataset)[table].deleted:
                raise Conflict("the table was declared again meanwhile", {"table": table})

        above = self._catalog.schema(dataset).data_version
        version = self._importer.remove(dataset, table, above=above, first=still_deleted)
        if version is None:
            return
        self._catalog.set_data_version(dataset, version)
        log.warning("a table that was deleted is no longer prepared", extra={"dataset": dataset, "tables": [table]})

    def _end(self, left: list[Unfinished], served: set[str]) -> None:
        """Of several imports of one table that were left, the last one made what is prepared."""
        last = {each.table: each.id for each in left}
        for each in left:
            if each.table in served and last[each.table] == each.id:
                self._imports.end(each.id, "done", FINISHED)
            else:
                self._imports.end(each.id, "failed", FAILED)
            log.warning("an import was left behind", extra={"dataset": each.dataset, "tables": [each.table]})


def _is_ahead(file: PreparedFile, known: Served) -> bool:
    """Whether the catalog has yet to follow. A table that has a version and does not serve was deleted, or its files
    were gone: what is prepared of it from then stays out of service, and only what an import built since comes in."""
    if known.deleted or known.serving:
        return not known.deleted and known.version != file.version
    return known.version is None or known.version < file.version


def _size(file: PreparedFile, released: ReleasedProfile | None) -> Size | None:
    """What the import that was killed would have written down: a public table's is with its files, a private one's
    follows from its profile, which was stored with its charge, and from what its units keep."""
    if not file.table.private:
        return file.size
    return private_size(released, file.most, file.table.expected_rows)
