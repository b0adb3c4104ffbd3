"""Imports as rows: which run, which files public tables come from, and what a start finds to be set right."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from service.catalog.acts import now_ms
from service.catalog.tables import dataset, imports, public_file, table
from service.core.errors import Conflict
from service.core.inner_table import may_be_same
from service.core.schema import Table
from service.core.schema_codec import table_to_text
from service.core.sizes import Size, size_to_text
from service.store.database import Store
from service.store.transaction import Transaction

AT_ONCE = 500  # values in one IN (…)


@dataclass(frozen=True, slots=True)
class PublicFile:
    """A file behind a public table that serves or is being imported; `inner` is the table of a DuckDB file."""

    path: str
    inner: str
    dataset: str = ""
    table: str = ""


@dataclass(frozen=True, slots=True)
class ImportRun:
    """Which process runs an import, and the files that it makes public."""

    owner: str
    public: tuple[PublicFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An import that has not ended; `owner` is the process that began it, None where that was not written down."""

    id: str
    dataset: str
    table: str
    owner: str | None


@dataclass(frozen=True, slots=True)
class Served:
    """A table as the catalog has it: deleted, or served in a version."""

    deleted: bool
    serving: bool
    version: int | None


@dataclass(frozen=True, slots=True)
class Built:
    """A table as it is prepared: its declaration, the version that it was built in, and what is public of its size."""

    table: Table
    version: int
    size: Size | None


class Imports:
    """What a start reads and sets right."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def unfinished(self) -> list[Unfinished]:
        chosen = sa.select(imports.c.id, imports.c.dataset, imports.c.table, imports.c.owner)
        with self._store.read() as tx:
            rows = tx.execute(chosen.where(imports.c.state == "running").order_by(imports.c.started_ms, imports.c.id))
            return [Unfinished(*row) for row in rows]

    def served(self, name: str) -> dict[str, Served]:
        """Every table that was ever declared in the dataset."""
        columns = (table.c.name, table.c.deleted_ms, table.c.serving, table.c.data_version)
        with self._store.read() as tx:
            rows = tx.execute(sa.select(*columns).where(table.c.dataset == name)).all()
        return {row.name: Served(row.deleted_ms is not None, row.serving is not None, row.data_version) for row in rows}

    def declared(self, name: str) -> dict[str, Any]:
        """The last declaration of every live table as it was written down, also where it no longer fits."""
        chosen = sa.select(table.c.name, table.c.declaration).where(table.c.dataset == name)
        with self._store.read() as tx:
            rows = tx.execute(chosen.where(table.c.deleted_ms.is_(None)).order_by(table.c.name))
            return {row.name: json.loads(row.declaration) for row in rows}

    def serve(self, name: str, tables: Mapping[str, Built], gone: Iterable[str], data_version: int) -> None:
        """Serve what is prepared: these tables, in the versions that they were built in, without those that are gone.

        What was known of their sizes was of another version: it is that of this one, or not known any more."""

        def work(tx: Transaction) -> None:
            for each, built in tables.items():
                mine = (table.c.dataset == name) & (table.c.name == each) & table.c.deleted_ms.is_(None)
                size = built.size and size_to_text(built.size)
                values = {"serving": table_to_text(built.table), "data_version": built.version, "size": size}
                tx.execute(table.update().where(mine).values(values))
            for each in gone:
                tx.execute(table.update().where(table.c.dataset == name, table.c.name == each).values(serving=None))
            advance(tx, name, {}, data_version)

        self._store.write(work)

    def end(self, import_id: str, state: str, detail: str) -> None:
        def work(tx: Transaction) -> None:
            row = tx.execute(sa.select(imports).where(imports.c.id == import_id)).one()
            if state == "done":
                tx.execute(ended(import_id, state, detail))
                keep_public(tx, row.dataset, row.table, import_id)
            else:
                fail(tx, import_id, detail)

        self._store.write(work)

    def public_files(self) -> list[PublicFile]:
        columns = (public_file.c.path, public_file.c.inner_table, public_file.c.dataset, public_file.c.table)
        with self._store.read() as tx:
            return [PublicFile(*row) for row in tx.execute(sa.select(*columns))]

    def carry_public(self, import_id: str, files: tuple[PublicFile, ...]) -> None:
        """Files of a public table that was imported before they were written down."""
        first = files[0]
        self._store.write(lambda tx: note_public(tx, import_id, first.dataset, first.table, files))


def refuse_running(tx: sa.Connection, name: str, left: Collection[str]) -> None:
    """In the transaction that deletes: an import that ends later would bring back what was deleted."""
    running = sa.select(imports.c.id).where(imports.c.dataset == name, imports.c.state == "running")
    if any(each not in left for each in tx.execute(running).scalars()):
        raise Conflict("an import of this dataset is running; wait until it is done", {"dataset": name})


def refuse_public(tx: sa.Connection, files: Iterable[PublicFile], reason: str) -> None:
    """In the transaction that claims them: files that are about to be private must not serve as public."""
    wanted = {file.path: file.inner for file in files}
    paths = list(wanted)
    for at in range(0, len(paths), AT_ONCE):
        for row in tx.execute(sa.select(public_file).where(public_file.c.path.in_(paths[at : at + AT_ONCE]))):
            name = "/".join(row.path.split("/")[-2:])
            if may_be_same(row.inner_table, wanted[row.path]):
                raise Conflict(
                    f"{name} is public in {row.dataset}.{row.table}, and what is private anywhere is public nowhere",
                    {"dataset": row.dataset, "table": row.table, "remedy": _deletion(tx, row.dataset)},
                )
            if not reason:
                raise Conflict(
                    f"another table of {name} is public in {row.dataset}.{row.table}",
                    {
                        "dataset": row.dataset,
                        "table": row.table,
                        "remedy": 'say in "reason" why that other table is about nobody; the journal keeps it',
                    },
                )


def _deletion(tx: sa.Connection, name: str) -> str:
    """How that public table is deleted: a deleted dataset comes back with its tables, so it still has it."""
    if tx.execute(sa.select(dataset.c.deleted_ms).where(dataset.c.name == name)).scalar() is None:
        return "delete that table first"
    return f"{name!r} is deleted and would come back with that table: declare it again, delete the table, then it"


def note_public(tx: Transaction, import_id: str, name: str, table_name: str, files: Iterable[PublicFile]) -> None:
    rows = [
        {"import_id": import_id, "path": file.path, "inner_table": file.inner, "dataset": name, "table": table_name}
        for file in files
    ]
    if rows:
        tx.execute(public_file.insert(), rows)


def keep_public(tx: Transaction, name: str, table_name: str, import_id: str | None) -> None:
    """The table serves what this import read, and nothing else; None: it no longer serves."""
    where = (public_file.c.dataset == name) & (public_file.c.table == table_name)
    tx.execute(
        public_file.delete().where(where if import_id is None else where & (public_file.c.import_id != import_id))
    )


def fail(tx: Transaction, import_id: str, detail: str) -> None:
    tx.execute(ended(import_id, "failed", detail))
    tx.execute(public_file.delete().where(public_file.c.import_id == import_id))


def ended(import_id: str, state: str, detail: str) -> sa.Update:
    values: dict[str, object] = {"state": state, "detail": detail, "finished_ms": now_ms()}
    if state == "done":
        values["percent"] = 100
    return imports.update().where(imports.c.id == import_id).values(**values)


def advance(tx: Transaction, name: str, versions: Mapping[str, int], data_version: int) -> None:
    """Versions only grow: what came later stays, whoever commits last."""
    for each, version in versions.items():
        older = sa.or_(table.c.data_version.is_(None), table.c.data_version < version)
        mine = (table.c.dataset == name) & (table.c.name == each) & older
        tx.execute(table.update().where(mine).values(data_version=version))
    newer = (dataset.c.name == name) & (dataset.c.data_version < data_version)
    tx.execute(dataset.update().where(newer).values(data_version=data_version))
