"""Claims that were made of lists of paths, carried over to one claim per file.

The first version claimed a hash of the list of a source's files. From such a hash no file can be read, but the journal
has every declaration that was ever accepted, and its claim with it. So the files behind each of them are claimed now,
in the order of the journal: first those whose list is still the one that was claimed, then what else lies there. A
source that named one file is claimed also when that file is gone. A folder or pattern whose files are gone can only
be refused as the list that it was, which it still is.

What is prepared is claimed too: it was imported, whatever a restored ledger remembers of it.
"""

import logging
from pathlib import Path
from typing import Any

from service.catalog.imports import Imports, PublicFile
from service.catalog.store import Catalog
from service.core.errors import ServiceError
from service.core.ids import new_id
from service.engine.file_facts import inode_of
from service.engine.import_base import Importer
from service.engine.sources import ENDINGS, Source
from service.ledger.book import By, Ledger
from service.ledger.claims import SourceFile, Wanted, list_fingerprint
from service.upkeep.claiming import TableSource

log = logging.getLogger("halftone")

ACT = "source.carry"
SERVICE = By("service", "files of a claim that was made before claims were per file")
FOUND = By("service", "files of a table that is prepared")


class Carrying:
    """Runs at a start, and before a claim in a process that had no start."""

    def __init__(self, catalog: Catalog, imports: Imports, ledger: Ledger, importer: Importer) -> None:
        self._catalog = catalog
        self._imports = imports
        self._ledger = ledger
        self._importer = importer
        self._done = False

    def carry(self) -> None:
        """Once per process; does nothing on a store that never had such claims, or whose claims were carried."""
        if self._done:
            return
        lists = self._ledger.list_claims(unless=ACT)
        if lists:
            self._carry_lists(lists)
            self._carry_public()
            self._ledger.note(ACT, {"subject": f"{len(lists)} claims"}, SERVICE)
        self._done = True

    def claim_prepared(self) -> None:
        """Private files behind what is prepared, as far as nobody has claimed them."""
        known = {file.path for file in self._ledger.claimed_files()}
        for dataset in self._importer.prepared_datasets():
            prepared = self._importer.prepared(dataset)
            for name, file in ({} if prepared is None else prepared.tables).items():
                paths = [path for path in file.files or () if path not in known]
                if file.table.private and paths:
                    self._claim(TableSource(dataset, name, True, file.source), paths, FOUND)

    def _carry_lists(self, lists: dict[str, str]) -> None:
        sources = self._declared()
        exact = [(of, paths) for of in sources for paths in self._as_claimed(of, lists)]
        others = [(of, self._now(of.source)) for of in sources]
        for of, paths in [*exact, *others]:
            if paths:
                self._claim(of, [str(path) for path in paths], SERVICE)

    def _declared(self) -> list[TableSource]:
        """Every private source that was ever accepted, oldest first."""
        found = []
        for dataset, subject, declaration in self._ledger.declared_tables():
            of = table_source(dataset, subject.partition(".")[2], declaration)
            if of is not None and of.private:
                found.append(of)
        return found

    def _as_claimed(self, of: TableSource, lists: dict[str, str]) -> list[list[Path]]:
        """The list that was claimed, as far as it can be told from the source: all files, or one that may be gone."""
        candidates = [self._now(of.source), *([place] for place in self._importer.places(of.source))]
        return [
            list(paths)
            for paths in candidates
            if lists.get(list_fingerprint([str(path) for path in paths], of.source.table or "")) == of.dataset
        ]

    def _now(self, source: Source) -> list[Path]:
        try:
            return list(self._importer.files(source))
        except ServiceError:
            return []

    def _claim(self, of: TableSource, paths: list[str], by: By) -> None:
        files = tuple(SourceFile(path, inode_of(path), "", of.source.table or "") for path in paths)
        taken = self._ledger.carry_over(Wanted(of.dataset, of.table, True, files), by)
        if taken:
            log.warning(
                "files of a table belong to another dataset's budget and can not be imported here again",
                extra={"dataset": of.dataset, "table": of.table, "files": len(taken)},
            )

    def _carry_public(self) -> None:
        """Files of public tables that serve, so that nobody makes them private beside."""
        private = {file.path for file in self._ledger.claimed_files()}
        for dataset in self._catalog.datasets():
            for name, declaration in self._imports.declared(dataset).items():
                of = table_source(dataset, name, declaration)
                paths = [] if of is None or of.private else [str(path) for path in self._now(of.source)]
                if of is None or not paths:
                    continue
                files = tuple(PublicFile(path, of.source.table or "", dataset, name) for path in paths)
                self._imports.carry_public(new_id("i"), files)
                if private & set(paths):
                    log.warning(
                        "a table is public, and a file of it is private elsewhere: delete the table",
                        extra={"dataset": dataset, "table": name},
                    )


def table_source(dataset: str, table: str, declaration: Any) -> TableSource | None:
    """What an old declaration says of its source, whatever else of it no longer fits: a start must not stop over it,
    and its files must not come free. One that does not say that it is public counts as private. None, and a line in
    the log, where no source can be read: the claim of its list stays and refuses that list, as before."""
    try:
        source = Source(
            declaration["source"]["kind"], declaration["source"]["path"], declaration["source"].get("table")
        )
        if source.kind in ENDINGS and isinstance(source.path, str) and isinstance(source.table, str | None):
            return TableSource(dataset, table, declaration.get("private") is not False, source)
    except (KeyError, TypeError, AttributeError):
        pass
    log.warning(
        "a declaration of before can not be read: its files are claimed only as the list that they were",
        extra={"dataset": dataset, "table": table},
    )
    return None
