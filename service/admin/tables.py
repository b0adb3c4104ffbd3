"""Acts on tables: looked at, declared and imported, profiled, deleted."""

from dataclasses import asdict
from typing import Any

from service.admin.acts import Acts
from service.admin.import_queue import Begun
from service.catalog.check import FileColumn, build_table, check_name, check_paths
from service.catalog.declare import SourceDeclaration, TableDeclaration
from service.catalog.profile_shares import profile_again_share, profile_share
from service.core.errors import Conflict, NotFound
from service.core.schema import UnitVia
from service.core.sizes import ReleasedProfile
from service.core.versions import built_together, versions_of
from service.ledger.book import By
from service.upkeep.claiming import TableSource, source_of, stamps_of


class TableActs(Acts):
    """What admins do to one table of a dataset."""

    def inspect(self, name: str, table: str, source: SourceDeclaration, *, actor: str) -> dict[str, Any]:
        """Suggestions from the file, for the admin's eyes; that an admin looked is an entry. The dataset need not be
        declared yet: to declare it well one looks first."""
        found = self._importer.inspect(source_of(source))
        known = name if name in self._catalog.datasets() else None
        self._ledger.note("table.inspect", {"subject": f"{name}.{table}"}, By(actor, ""), dataset=known)
        return {"table": table, **asdict(found)}

    def put_table(self, name: str, table: str, declared: TableDeclaration, *, actor: str) -> str:
        """Check the declaration against the file's columns, claim the source, and start the import.

        A table that is declared already keeps its name, whatever has been reserved since.
        """
        self._catalog.declaration(name)
        if table not in self._catalog.table_declarations(name):
            check_name(table, "table")
        self._queue.refuse_while_importing(name, table)
        share = profile_share(declared)
        source = source_of(declared.source)
        found = self._importer.column_types(source)
        columns = tuple(FileColumn(column, kind) for column, kind in found.items())
        built = build_table(table, declared, columns)
        check_paths({**self._catalog.schema(name).tables, table: built})
        self._carrying.carry()
        self._reconciling.remove_deleted(name, table)
        claims = self._claiming.claims(TableSource(name, table, built.private, source, declared.reason))
        claiming = self._claiming.noted(claims, By(actor, f"import of {name}.{table}"), self._note(actor, name, ""))
        import_id = self._catalog.begin_import(name, table, declared, claiming, run=self._claiming.run_of(claims))
        only = {wanted.table: stamps_of(wanted) for wanted in claims}
        self._queue.start(Begun(import_id, name, built, source, only, share))
        return import_id

    def dependents(self, name: str, table: str) -> dict[str, Any]:
        """What an import of this table would make payable again. Reads what was released, and no row."""
        self._catalog.declaration(name)
        if table not in self._catalog.table_declarations(name):
            raise NotFound(f"no table {table} is declared", {"table": table})
        schema = self._catalog.schema(name)
        rebuilt = built_together(schema, table)
        answers = self._dependents.answers(name, versions_of(schema, schema.tables), rebuilt)
        return {"tables": sorted(rebuilt), "answers": answers, "panels": self._dependents.panels(name, rebuilt)}

    def profile(self, name: str, table: str, share: object, *, actor: str, reason: str) -> ReleasedProfile:
        """Buy a new profile of a table that serves. `share` None: what is declared for its profile, or the default."""
        self._catalog.declaration(name)
        part = profile_again_share(table, self._catalog.table_declarations(name).get(table), share)
        self._queue.refuse_while_importing(name, table)
        if table not in self._catalog.schema(name).tables:
            raise NotFound(f"no table {table} has been imported", {"table": table})
        self._ledger.note("table.profile", {"subject": f"{name}.{table}"}, By(actor, reason), dataset=name)
        return self._sizing.profile(name, table, part, actor=actor)

    def wait(self, name: str, table: str) -> None:
        """Until the import of this table has ended, one way or the other."""
        self._queue.wait(name, table)

    def delete_table(self, name: str, table: str, *, actor: str, reason: str) -> None:
        """Refused with nothing changed while an import of the dataset runs.

        The catalog forgets the table, and which public files it had, before the prepared copy loses it, and nobody
        imports in between. A process that is killed there leaves what no question can reach; a start removes it.
        """
        self._reconciling.reconcile(name)
        served = self._catalog.schema(name)
        users = [t.name for t in served.tables.values() if isinstance(t.unit, UnitVia) and t.unit.table == table]
        if users:
            raise Conflict(f"{', '.join(users)} reach their unit through {table}; delete them first")
        left = {each.id for each in self._reconciling.left_behind(name)}
        note = self._note(actor, name, reason)
        version = self._importer.remove(
            name,
            table,
            above=served.data_version,
            first=lambda: self._catalog.delete_table(name, table, note, left=left),
        )
        if version is not None:
            self._catalog.set_data_version(name, version)
