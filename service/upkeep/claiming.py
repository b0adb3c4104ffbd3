"""From a table's source to the claim that its import makes: which files, and which known files they are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.catalog.acts import Note
from service.catalog.declare import SourceDeclaration
from service.catalog.imports import ImportRun, Imports, PublicFile, refuse_public
from service.catalog.store import Catalog
from service.core.inner_table import qualified
from service.core.schema import UnitVia
from service.engine.file_facts import born_at, facts_of, inode_of
from service.engine.import_base import Importer, Prepared
from service.engine.sources import Source
from service.ledger.book import By, Ledger
from service.ledger.claims import ClaimedFile, SourceFile, Wanted, list_fingerprint
from service.store.transaction import Transaction


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table that is about to be read, with its source and the admin's reason for a copy."""

    dataset: str
    table: str
    private: bool
    source: Source
    reason: str = ""


class Claiming:
    """Looks at files before the transaction that claims them; what it finds is checked inside it."""

    def __init__(self, catalog: Catalog, imports: Imports, ledger: Ledger, importer: Importer) -> None:
        self._catalog = catalog
        self._importer = importer
        self._ledger = ledger
        self._imports = imports

    def claims(self, of: TableSource) -> list[Wanted]:
        """Of a table and of those that are built again with it: the files that lie there now. The table's own first."""
        followers = self.followers(self._importer.prepared(of.dataset), of.dataset, of.table)
        return [self.wanted(each) for each in (of, *followers)]

    def run_of(self, claims: list[Wanted]) -> ImportRun:
        """The import as this process runs it, with the files that it makes public."""
        own = claims[0]
        return ImportRun(self._ledger.owner(), () if own.private else _own(own))

    def noted(self, claims: list[Wanted], by: By, note: Note) -> Note:
        """The journal's note, after the files were bound to the dataset's budget for ever, in the same transaction."""
        private = [(wanted, self._public_names(wanted)) for wanted in claims if wanted.private]

        def claim(tx: Transaction, act: str, subject: str, change: Mapping[str, Any]) -> None:
            for wanted, files in private:
                refuse_public(tx, files, wanted.reason)
            for wanted in claims:
                self._ledger.claim_files(wanted, by, tx)
            note(tx, act, subject, change)

        return claim

    def wanted(self, of: TableSource) -> Wanted:
        """The claim of a table's files, with what they hold: reads every byte of them once."""
        paths = self._importer.files(of.source)
        inner = qualified(of.source.table)
        files = tuple(SourceFile(each.path, each.inode, each.content, inner, each.stamp) for each in facts_of(paths))
        links, strangers = self._same_files({file.inode: file.path for file in files})
        listed = [str(path) for path in paths]
        return Wanted(
            of.dataset,
            of.table,
            of.private,
            files,
            reason=of.reason,
            links=links,
            strangers=strangers,
            first_version=list_fingerprint(listed, of.source.table or "") if of.private else None,
        )

    def _public_names(self, wanted: Wanted) -> tuple[PublicFile, ...]:
        """The claim's files as public tables might name them: under their own path, or under that of a hard link."""
        inodes = {file.inode: file for file in wanted.files}
        known = {file.path for file in self._imports.public_files()} - {file.path for file in wanted.files}
        linked = [(path, inodes.get(inode_of(path))) for path in sorted(known)]
        return (*_own(wanted), *(PublicFile(path, file.inner) for path, file in linked if file is not None))

    def followers(self, prepared: Prepared | None, dataset: str, table: str) -> list[TableSource]:
        """Tables that reach their unit through this one: they are built again with it, for the reasons that they were
        declared with."""
        tables = {} if prepared is None else prepared.tables
        reached = [table]
        found: list[str] = []
        while reached:
            parent = reached.pop(0)
            for name, file in sorted(tables.items()):
                unit = file.table.unit
                if isinstance(unit, UnitVia) and unit.table == parent and name not in (table, *found):
                    found.append(name)
                    reached.append(name)
        reasons = self._reasons(dataset) if found else {}
        return [
            TableSource(dataset, name, True, source, reasons.get((name, source), ""))
            for name, source in ((name, tables[name].source) for name in found)
        ]

    def _reasons(self, dataset: str) -> dict[tuple[str, Source], str]:
        """A reason is about the files that it was given for: by table and source."""
        return {
            (name, source_of(declared.source)): declared.reason
            for name, declared in self._catalog.table_declarations(dataset).items()
        }

    def _same_files(self, inodes: Mapping[str, str]) -> tuple[dict[str, str], frozenset[str]]:
        """Claimed files that these are hard links to, and claimed ones whose inode number went to one of these."""
        links: dict[str, str] = {}
        strangers: set[str] = set()
        for claimed in self._ledger.claimed_files():
            now = inode_of(claimed.path)
            if now in inodes and inodes[now] != claimed.path:
                links[inodes[now]] = claimed.path
            if claimed.inode in inodes and claimed.inode != now and not self._moved(claimed, inodes[claimed.inode]):
                strangers.add(claimed.path)
        return links, frozenset(strangers)

    def _moved(self, claimed: ClaimedFile, path: str) -> bool:
        """Whether the file that has a claimed file's inode number is that file, under another path by now.

        A number that came free goes to a new file soon. But one that was there already when the claimed file was seen
        with that number is it, whatever was written to it since: no two files have a number at once. Where no system
        says when a file was made, the number alone tells nothing.
        """
        born = born_at(path)
        return bool(born) and born <= self._ledger.last_seen(claimed)


def source_of(declared: SourceDeclaration) -> Source:
    return Source(declared.kind, declared.path, declared.table)


def _own(wanted: Wanted) -> tuple[PublicFile, ...]:
    return tuple(PublicFile(file.path, file.inner) for file in wanted.files)


def stamps_of(wanted: Wanted) -> dict[str, str]:
    """The files of a claim, as an import may open them."""
    return {file.path: file.stamp for file in wanted.files}
