"""Data versions of tables: what a question depends on, and what makes a stored release of use to it.

Every import builds its table, and the tables that hang on it, in a new version of the dataset; that number is theirs
until they are built again. Numbers only grow, so a table that was deleted and added never has an old one.

Invariant V3: a stored release serves only while every table that it was made from has the version that it had then.
"""

import json
from collections.abc import Iterable, Mapping

from service.core.schema import Schema, UnitVia

NEVER = -1  # no dataset has this version


def versions_of(schema: Schema, tables: Iterable[str]) -> dict[str, int]:
    """The version of each declared table; one without a number of its own is of its dataset's."""
    return {name: schema.versions.get(name, schema.data_version) for name in sorted(tables) if name in schema.tables}


def built_together(schema: Schema, table: str) -> frozenset[str]:
    """What an import of the table builds anew: it, and those that reach their unit through it, near or far."""
    found, reached = {table}, [table]
    while reached:
        parent = reached.pop()
        for each in schema.tables.values():
            if isinstance(each.unit, UnitVia) and each.unit.table == parent and each.name not in found:
                found.add(each.name)
                reached.append(each.name)
    return frozenset(found)


def versions_to_text(versions: Mapping[str, int]) -> str:
    """One text for the same versions of the same tables."""
    return json.dumps(dict(versions), sort_keys=True, separators=(",", ":"))


def common_version(versions: Mapping[str, int]) -> int:
    """The one version that all of these tables have; NEVER where they differ or there are none."""
    numbers = set(versions.values())
    return numbers.pop() if len(numbers) == 1 else NEVER
