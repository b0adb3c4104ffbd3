"""Declarations in the store: what planning may read, and what an admin may change.

Invariant D2: planning sees a table only as the declaration of the version that is prepared and
serving. A new declaration waits until its import is done, and both change in one transaction.
"""

import json
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from service.catalog import imports as imports_of
from service.catalog.acts import Note, now_ms
from service.catalog.declare import DatasetDeclaration, TableDeclaration
from service.catalog.declared_budget import budget_of
from service.catalog.imports import ImportRun
from service.catalog.kept_bounds import KeptBounds
from service.catalog.keys import may_read
from service.catalog.profiles import read_profiles
from service.catalog.tables import dataset, imports, table
from service.core.amounts import parse_delta, parse_epsilon
from service.core.errors import DatasetUnknown, NotFound
from service.core.ids import new_id
from service.core.request import Principal
from service.core.schema import Defaults, Schema, Table
from service.core.schema_codec import table_from_text, table_to_text
from service.core.sizes import ReleasedProfile, Size, size_from_text, size_to_text
from service.store.database import Store
from service.store.transaction import Transaction


def defaults_of(declared: DatasetDeclaration) -> Defaults:
    given = declared.defaults
    return Defaults(
        epsilon=None if given.epsilon is None else parse_epsilon(given.epsilon, "defaults.epsilon"),
        delta=None if given.delta is None else parse_delta(given.delta, "defaults.delta"),
        rows_per_unit=given.rows_per_unit,
        groups_per_unit=given.groups_per_unit,
        min_units=given.min_units,
        expected_groups=given.expected_groups,
    )


def declaration_text(declared: DatasetDeclaration | TableDeclaration) -> str:
    """One text for one declaration: what is stored, and what a diff compares."""
    return json.dumps(declared.model_dump(mode="json", exclude_defaults=True), sort_keys=True)


_BUILT = table.c.data_version.label("built_version")
_SERVING = (
    sa.select(dataset.c.declaration, dataset.c.data_version, table.c.name, table.c.serving, table.c.size, _BUILT)
    .select_from(
        dataset.outerjoin(
            table,
            (table.c.dataset == dataset.c.name) & table.c.deleted_ms.is_(None) & table.c.serving.is_not(None),
        )
    )
    .where(dataset.c.name == sa.bindparam("dataset_name"), dataset.c.deleted_ms.is_(None))
    .order_by(table.c.name)
)


@lru_cache(maxsize=256)
def _read_declaration(text: str) -> DatasetDeclaration:
    """Declarations never change in place, and every query reads one."""
    return DatasetDeclaration.model_validate_json(text)


@lru_cache(maxsize=1024)
def _read_table(text: str) -> Table:
    return table_from_text(text)


@lru_cache(maxsize=1024)
def _read_size(text: str) -> Size:
    return size_from_text(text)


def _unknown() -> DatasetUnknown:
    return DatasetUnknown(
        "there is no such dataset, or this key may not read it",
        {"remedy": "GET /v1/datasets or `halftone dataset list` names those there are"},
    )


class Catalog:
    """Datasets, tables and imports of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.kept_bounds = KeptBounds(store)

    # --- Reading ---

    def datasets(self, principal: Principal | None = None) -> list[str]:
        """Names of live datasets that the principal may read (None: all)."""
        with self._store.read() as connection:
            rows = connection.execute(
                sa.select(dataset.c.name).where(dataset.c.deleted_ms.is_(None)).order_by(dataset.c.name)
            ).scalars()
            return [name for name in rows if principal is None or may_read(principal, name)]

    def schema(self, name: str, principal: Principal | None = None) -> Schema:
        """The dataset as declared and serving. Absent and not yours are the same answer.

        One statement, so that declarations and data version are of one moment on either store: bounds and
        step of a column are what its codes were made with.
        """
        if principal is not None and not may_read(principal, name):
            raise _unknown()
        with self._store.read() as connection:
            rows = connection.execute(_SERVING, {"dataset_name": name}).all()
        if not rows:
            raise _unknown()
        declared = _read_declaration(rows[0].declaration)
        tables = [_read_table(row.serving) for row in rows if row.serving is not None]
        sizes = {row.name: _read_size(row.size) for row in rows if row.serving is not None and row.size is not None}
        most = declared.epsilon_per_query_max
        return Schema(
            name,
            declared.unit,
            {each.name: each for each in tables},
            data_version=int(rows[0].data_version),
            defaults=defaults_of(declared),
            epsilon_per_query_max=None if most is None else parse_epsilon(most, "epsilon_per_query_max"),
            sizes=sizes,
            versions={row.name: int(row.built_version) for row in rows if row.built_version is not None},
        )

    def declaration(self, name: str, principal: Principal | None = None) -> DatasetDeclaration:
        return self._dataset(name, principal)[0]

    def table_declarations(self, name: str) -> dict[str, TableDeclaration]:
        """What was last asked for, per live table."""
        with self._store.read() as connection:
            rows = connection.execute(
                sa.select(table.c.name, table.c.declaration)
                .where(table.c.dataset == name, table.c.deleted_ms.is_(None))
                .order_by(table.c.name)
            ).all()
        return {row.name: TableDeclaration.model_validate_json(row.declaration) for row in rows}

    def profiles(self, name: str) -> dict[str, ReleasedProfile]:
        with self._store.read() as connection:
            return read_profiles(connection, name)

    def _dataset(self, name: str, principal: Principal | None) -> tuple[DatasetDeclaration, int]:
        with self._store.read() as connection:
            row = connection.execute(
                sa.select(dataset).where(dataset.c.name == name, dataset.c.deleted_ms.is_(None))
            ).first()
        if row is None or (principal is not None and not may_read(principal, name)):
            raise _unknown()
        return _read_declaration(row.declaration), int(row.data_version)

    # --- Changing ---

    def put_dataset(self, name: str, declared: DatasetDeclaration, note: Note) -> bool:
        """Declare, or declare again; True when it is new. Deleted ones come back with their old budget."""
        budget_of(declared), defaults_of(declared)

        def work(tx: Transaction) -> bool:
            row = tx.execute(sa.select(dataset).where(dataset.c.name == name)).first()
            text = declaration_text(declared)
            if row is None:
                tx.execute(dataset.insert().values(name=name, declaration=text, data_version=0, created_ms=now_ms()))
            elif row.declaration == text and row.deleted_ms is None:
                return False
            else:
                tx.execute(dataset.update().where(dataset.c.name == name).values(declaration=text, deleted_ms=None))
            before = None if row is None else json.loads(row.declaration)
            note(tx, "dataset.put", name, {"before": before, "after": json.loads(text)})
            return row is None

        return self._store.write(work)

    def delete_dataset(self, name: str, note: Note) -> None:
        self._dataset(name, None)

        def work(tx: Transaction) -> None:
            tx.execute(dataset.update().where(dataset.c.name == name).values(deleted_ms=now_ms()))
            note(tx, "dataset.delete", name, {})

        self._store.write(work)

    def delete_table(self, name: str, table_name: str, note: Note, *, left: Collection[str] = ()) -> None:
        """Refused while an import of the dataset runs; `left` are those whose process is gone."""
        if table_name not in self.table_declarations(name):
            raise NotFound("there is no such table")

        def work(tx: Transaction) -> None:
            imports_of.refuse_running(tx, name, left)
            mine = (table.c.dataset == name) & (table.c.name == table_name)
            tx.execute(table.update().where(mine).values(deleted_ms=now_ms(), serving=None))
            imports_of.keep_public(tx, name, table_name, None)
            note(tx, "table.delete", f"{name}.{table_name}", {})

        self._store.write(work)

    def set_data_version(self, name: str, data_version: int) -> None:
        self._store.write(lambda tx: imports_of.advance(tx, name, {}, data_version))

    def begin_import(
        self, name: str, table_name: str, declared: TableDeclaration, note: Note, *, run: ImportRun | None = None
    ) -> str:
        """Note what is wanted and that its import runs; the old version keeps serving, unless it was deleted."""
        import_id = new_id("i")

        def work(tx: Transaction) -> None:
            mine = (table.c.dataset == name) & (table.c.name == table_name)
            row = tx.execute(sa.select(table).where(mine)).first()
            text = declaration_text(declared)
            if row is None:
                tx.execute(table.insert().values(dataset=name, name=table_name, declaration=text))
            else:
                kept = row.serving if row.deleted_ms is None else None
                tx.execute(table.update().where(mine).values(declaration=text, deleted_ms=None, serving=kept))
            tx.execute(imports.insert().values(
                id=import_id, dataset=name, table=table_name, state="running", percent=0, detail="",
                started_ms=now_ms(), owner=None if run is None else run.owner,
            ))  # fmt: skip
            imports_of.note_public(tx, import_id, name, table_name, () if run is None else run.public)
            before = None if row is None else json.loads(row.declaration)
            change = {"before": before, "after": json.loads(text), "import": import_id}
            note(tx, "table.put", f"{name}.{table_name}", change)

        self._store.write(work)
        return import_id

    def note_progress(self, import_id: str, percent: int) -> None:
        running = (imports.c.id == import_id) & (imports.c.state == "running")
        self._store.write(lambda tx: tx.execute(imports.update().where(running).values(percent=percent)))

    def finish_import(
        self,
        import_id: str,
        built: Table,
        *,
        data_version: int,
        detail: str,
        sizes: Callable[[Mapping[str, ReleasedProfile]], Mapping[str, Size | None]],
        versions: Mapping[str, int] | None = None,
    ) -> None:
        """Serve the prepared table from now on. `sizes` and `versions` are also of tables that hang on it and were
        built with it; sizes are made from the profiles of this moment, so that one which was bought since the copy was
        ready is not taken back. A version that came later, and is served already, stays, and what was deleted
        meanwhile does not come back."""

        def work(tx: Transaction) -> None:
            row = tx.execute(sa.select(imports).where(imports.c.id == import_id)).one()
            mine = (table.c.dataset == row.dataset) & (table.c.name == row.table)
            if tx.execute(sa.select(table.c.deleted_ms).where(mine)).scalar() is not None:
                imports_of.fail(tx, import_id, "the table was deleted while it was being imported")
                return
            older = sa.or_(table.c.data_version.is_(None), table.c.data_version <= data_version)
            tx.execute(table.update().where(mine, older).values(serving=table_to_text(built)))
            for name, each in sizes(read_profiles(tx, row.dataset)).items():
                its = (table.c.dataset == row.dataset) & (table.c.name == name)
                tx.execute(table.update().where(its, older).values(size=each and size_to_text(each)))
            tx.execute(imports_of.ended(import_id, "done", detail))
            imports_of.keep_public(tx, row.dataset, row.table, import_id)
            imports_of.advance(tx, row.dataset, {**(versions or {}), row.table: data_version}, data_version)

        self._store.write(work)

    def fail_import(self, import_id: str, detail: str) -> None:
        self._store.write(lambda tx: imports_of.fail(tx, import_id, detail))

    def find_import(self, import_id: str) -> dict[str, Any]:
        with self._store.read() as connection:
            row = connection.execute(sa.select(imports).where(imports.c.id == import_id)).mappings().first()
        if row is None:
            raise NotFound("there is no such import")
        return {name: value for name, value in row.items() if name != "owner"}
