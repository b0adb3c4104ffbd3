"""Declarations as preparation relies on them: units, dictionaries, and tables that hang on others."""

import os
from collections.abc import Collection, Iterable

from service.core.errors import CatalogRefused, Conflict, SourceRefused
from service.core.schema import Table, UnitColumn, UnitVia
from service.engine.duckdb.importing.coding import check_grid
from service.engine.duckdb.manifest import Manifest
from service.engine.file_facts import stamp_of
from service.engine.import_base import Claimed


def check_table(table: Table) -> None:
    """What preparation itself relies on; the catalog checks more."""
    if "rowid" in table.columns:
        raise CatalogRefused("a column can not be declared as rowid; give it another name", {"column": "rowid"})
    for column in table.columns.values():
        check_grid(column)
    if table.unit is not None and table.unit.column not in table.columns:
        raise CatalogRefused(f"the unit's column {table.unit.column} is not declared", {"column": table.unit.column})
    if table.unit is not None and table.columns[table.unit.column].type.name == "DOUBLE":
        raise CatalogRefused(
            "a unit is named by text, a whole number or a date, not by a DOUBLE", {"table": table.name}
        )
    if table.max_rows_per_unit is not None and table.max_rows_per_unit < 1:
        raise CatalogRefused("max_rows_per_unit must be at least 1", {"table": table.name})


def fresh_dictionary(before: Manifest, table: Table) -> bool:
    """Whether this table may start the dataset's dictionary anew: nobody else holds its codes.

    A dataset has one kind of unit. Tables that name it with another type would never meet.
    """
    if not isinstance(table.unit, UnitColumn) or before.units_file is None:
        return False
    others = [
        entry
        for name, entry in before.tables.items()
        if name != table.name and isinstance(entry.table.unit, UnitColumn)
    ]
    if str(table.columns[table.unit.column].type) == before.unit_type:
        return False
    if others:
        raise CatalogRefused(
            f"units of this dataset are named by {before.unit_type}; declare {table.unit.column} so",
            {"column": table.unit.column},
        )
    return True


def followers(manifest: Manifest, table: str) -> list[str]:
    """Tables that reach their unit through this one, nearest first."""
    found: list[str] = []
    reached = [table]
    while reached:
        parent = reached.pop(0)
        for name, entry in sorted(manifest.tables.items()):
            unit = entry.table.unit
            if isinstance(unit, UnitVia) and unit.table == parent and name not in found and name != table:
                found.append(name)
                reached.append(name)
    return found


def only_claimed(only: Claimed | None, before: Manifest, table: str, listed: list[str]) -> list[str]:
    """Of the files that lie there now, those that were claimed: what joined a folder since then waits for the
    table's own next import."""
    if only is None:
        return listed
    entry = before.tables.get(table)
    claimed: Collection[str] | None = only.get(table, None if entry is None else entry.files)
    if claimed is None:
        raise Conflict("the tables of this dataset have changed meanwhile; import again", {"table": table})
    allowed = set(claimed)
    files = [file for file in listed if file in allowed]
    if not files:
        raise SourceRefused("the files of this source are no longer there", {"table": table})
    return files


def refuse_changed(only: Claimed | None, table: str, files: Iterable[str]) -> None:
    """Files that were written to or replaced since they were hashed for their claim: what they hold now was compared
    with nothing. A table that came since the claim has no stamps; its own import had them."""
    stamps = (only or {}).get(table, {})
    changed = [file for file in files if file in stamps and stamp_of(file) != stamps[file]]
    if changed:
        raise SourceRefused(
            "a file of this source changed while it was being imported; import again when nobody writes to it",
            {"table": table, "file": os.path.basename(changed[0])},
        )
