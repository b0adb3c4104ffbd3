"""Files are people: which budget a real file belongs to, for ever.

One claim per real file, however it was reached: a folder, a pattern and a single file that overlap are the same
people. A DuckDB file is claimed as a whole, because two of its tables can be about the same people. What is checked
here is checked in the transaction that claims, so of two admins at once one is refused.

A file is the same file by its real path, and by its device and inode (a hard link). A copy is another file with the
same content: that is pointed out, and goes through with a reason, which the journal keeps.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from service.core.errors import Conflict
from service.core.inner_table import may_be_same
from service.ledger.grants import By
from service.ledger.journal import Journal, canonical_json
from service.ledger.tables import entry, source, source_content, source_file
from service.store.transaction import Transaction

AT_ONCE = 500  # values in one IN (…): both stores take more


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was found: real path, "device:inode" and SHA-256. `inner` is the table of a DuckDB file. `stamp` is
    for the import that follows, and not kept."""

    path: str
    inode: str
    content: str
    inner: str = ""
    stamp: str = ""


@dataclass(frozen=True, slots=True)
class ClaimedFile:
    """A file that belongs to a dataset's budget."""

    path: str
    inner: str
    dataset: str
    inode: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """Files that a table is about to be imported from.

    `links`: claimed paths that are now the same file as one of these. `strangers`: claimed paths whose old inode
    number belongs to another file by now. `first_version`: what the source was called when claims were of lists.
    """

    dataset: str
    table: str
    private: bool
    files: tuple[SourceFile, ...]
    reason: str = ""
    links: Mapping[str, str] = field(default_factory=dict)
    strangers: frozenset[str] = frozenset()
    first_version: str | None = None


def list_fingerprint(paths: Sequence[str], inner: str) -> str:
    """What the first version claimed: the list of real paths, hashed."""
    listed = "\n".join(paths)
    return hashlib.sha256(f"{listed}\n{inner}".encode()).hexdigest()


def claim_files(tx: Transaction, wanted: Wanted, by: By) -> None:
    """Bind private files to the dataset's budget; note what public ones hold. Raises Conflict with nothing changed."""
    journal = Journal.lock(tx)
    known = _known(tx, wanted)
    if wanted.private:
        _refuse_other_owner(tx, wanted, known)
    else:
        _refuse_private(wanted, known)
    if not wanted.reason:
        _refuse_copies(tx, wanted)
    held = {(file.path, file.inner) for file in known}
    fresh = [file for file in wanted.files if wanted.private and (file.path, file.inner) not in held]
    noted = set(_insert_contents(tx, wanted.dataset, wanted.files, private=wanted.private))
    if fresh:
        rows = [
            {"path": file.path, "inner_table": file.inner, "dataset": wanted.dataset, "inode": file.inode}
            for file in fresh
        ]
        tx.execute(source_file.insert(), rows)
    changed = [file for file in wanted.files if file in fresh or file.path in noted]
    if changed:
        _append(journal, wanted, changed, by)


def _append(journal: Journal, wanted: Wanted, changed: Iterable[SourceFile], by: By) -> None:
    listed = [
        {"path": file.path, "inner": file.inner, "inode": file.inode, "content": file.content} for file in changed
    ]
    body = {"private": wanted.private, "table": wanted.table, "files": listed, "why": wanted.reason or by.why}
    journal.append("source", body, who=by.who, dataset=wanted.dataset)


def claimed_files(tx: sa.Connection) -> list[ClaimedFile]:
    """Every file that is somebody's."""
    columns = (source_file.c.path, source_file.c.inner_table, source_file.c.dataset, source_file.c.inode)
    return [ClaimedFile(*row) for row in tx.execute(sa.select(*columns).order_by(source_file.c.path))]


def last_seen(tx: sa.Connection, file: ClaimedFile) -> str:
    """The time of the last entry that found a claimed file with the inode of its claim; empty where none did."""
    named = canonical_json({"inode": file.inode})[1:-1]
    found = sa.select(entry.c.at, entry.c.body).where(
        entry.c.kind == "source", entry.c.dataset == file.dataset, entry.c.body.contains(named, autoescape=True)
    )
    for row in tx.execute(found.order_by(entry.c.number.desc())):
        listed = json.loads(row.body).get("files", ())
        if any((each["path"], each["inode"]) == (file.path, file.inode) for each in listed):
            return str(row.at)
    return ""


def list_claims(tx: sa.Connection, unless: str) -> dict[str, str]:
    """Claims of the first version: fingerprint to dataset. None where the journal has the act `unless`."""
    if next(_notes(tx, unless), None) is not None:
        return {}
    return {row.fingerprint: row.dataset for row in tx.execute(sa.select(source.c.fingerprint, source.c.dataset))}


def carry_over(tx: Transaction, wanted: Wanted, by: By) -> list[str]:
    """Claim files that the first version claimed in lists; the paths that are another dataset's already.

    Nothing is refused: a folder in one dataset and one of its files in another went through then. The first claim
    keeps the file, and the other dataset can not import it again.
    """
    journal = Journal.lock(tx)
    owners = {file.path: file.dataset for file in _rows(tx, source_file.c.path, [file.path for file in wanted.files])}
    taken = [file.path for file in wanted.files if owners.get(file.path, wanted.dataset) != wanted.dataset]
    known = {(file.path, file.inner) for file in _rows(tx, source_file.c.path, list(owners))}
    fresh = [file for file in wanted.files if file.path not in taken and (file.path, file.inner) not in known]
    for file in fresh:
        row = {"path": file.path, "inner_table": file.inner, "dataset": wanted.dataset, "inode": file.inode}
        tx.execute(source_file.insert(), row)
    if fresh:
        _append(journal, wanted, fresh, by)
    return taken


def declared_tables(tx: sa.Connection) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Dataset, subject and declaration of every table that was put, oldest first."""
    for made in _notes(tx, "table.put"):
        what = json.loads(made.body)["what"]
        yield made.dataset, what["subject"], what["after"]


def _notes(tx: sa.Connection, act: str) -> Iterator[Any]:
    """Entries of one act. Bodies are canonical JSON, so the act comes first in each."""
    begins = entry.c.body.startswith(canonical_json({"act": act})[:-1], autoescape=True)
    yield from tx.execute(sa.select(entry).where(entry.c.kind == "note", begins).order_by(entry.c.number))


# --- What refuses ----------------------------------------------------------------------------------


def _refuse_other_owner(tx: Transaction, wanted: Wanted, known: Iterable[ClaimedFile]) -> None:
    owner = tx.execute(sa.select(source.c.dataset).where(source.c.fingerprint == wanted.first_version)).scalar()
    owners = [(file.path, file.dataset) for file in known] + ([(wanted.files[0].path, owner)] if owner else [])
    for path, dataset in owners:
        if dataset != wanted.dataset:
            raise Conflict(
                f"{_short(path)} belongs to the budget of {dataset!r}: a second dataset over the same rows would be a"
                f" second budget for the same people. Add the table to {dataset!r} instead",
                {"dataset": dataset, "file": _short(path)},
            )


def _refuse_private(wanted: Wanted, known: Iterable[ClaimedFile]) -> None:
    for file in known:
        if any(may_be_same(file.inner, mine.inner) for mine in wanted.files):
            raise Conflict(
                f"{_short(file.path)} is private in {file.dataset!r}, and what is private anywhere is public nowhere",
                {"dataset": file.dataset, "file": _short(file.path), "remedy": "declare the table private, there"},
            )
        if not wanted.reason:
            raise Conflict(
                f"other tables of {_short(file.path)} are private in {file.dataset!r}",
                {"dataset": file.dataset, "file": _short(file.path), "remedy": REASON},
            )


REASON = 'say in "reason" why this table is about nobody, or about the people of no other budget; the journal keeps it'


def _refuse_copies(tx: Transaction, wanted: Wanted) -> None:
    """The same content under another path: under another budget, or once private and once public."""
    hashes = {file.content: file.path for file in wanted.files if file.content}
    for row in _rows_of(tx, source_content, source_content.c.content, list(hashes)):
        path = hashes[row.content]
        mine = {file.path for file in wanted.files if file.content == row.content}
        if row.path in mine or not _matters(wanted, row.dataset, private=bool(row.private)):
            continue
        kind = "private" if row.private else "public"
        raise Conflict(
            f"{_short(path)} is a copy of {_short(row.path)}, which is {kind} in {row.dataset!r}",
            {"dataset": row.dataset, "file": _short(path), "copy_of": _short(row.path), "remedy": REASON},
        )


def _matters(wanted: Wanted, dataset: str, *, private: bool) -> bool:
    if wanted.private and private:
        return dataset != wanted.dataset
    return wanted.private != private


# --- Rows ------------------------------------------------------------------------------------------


def _known(tx: sa.Connection, wanted: Wanted) -> list[ClaimedFile]:
    """Claims of these files: by path, by what they are linked to, and by their inode."""
    paths = [file.path for file in wanted.files]
    found = _rows(tx, source_file.c.path, [*paths, *wanted.links.values()])
    inodes = {file.inode for file in wanted.files if file.inode}
    linked = _rows(tx, source_file.c.inode, sorted(inodes))
    own = set(paths)
    found += [file for file in linked if file.path not in wanted.strangers and file.path not in own]
    return found


def _rows(tx: sa.Connection, column: sa.Column[str], values: list[str]) -> list[ClaimedFile]:
    return [
        ClaimedFile(row.path, row.inner_table, row.dataset, row.inode)
        for row in _rows_of(tx, source_file, column, values)
    ]


def _rows_of(
    tx: sa.Connection, table: sa.Table, column: sa.Column[str], values: list[str]
) -> Iterator[sa.Row[tuple[str, ...]]]:
    for at in range(0, len(values), AT_ONCE):
        yield from tx.execute(sa.select(table).where(column.in_(values[at : at + AT_ONCE])))


def _insert_contents(tx: Transaction, dataset: str, files: Iterable[SourceFile], *, private: bool) -> Iterator[str]:
    """What these files hold, as far as it was not known; the paths with something new."""
    dialect = sqlite if tx.dialect.name == "sqlite" else postgresql
    insert = dialect.insert(source_content).on_conflict_do_nothing().returning(source_content.c.path)
    for file in files:
        if file.content:
            row = {"content": file.content, "path": file.path, "dataset": dataset, "private": int(private)}
            if tx.execute(insert.values(**row)).first() is not None:
                yield file.path


def _short(path: str) -> str:
    """Enough of a path for an admin to know the file."""
    return "/".join(path.split("/")[-2:])
