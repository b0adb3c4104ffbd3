"""How DuckDB files hold the prepared copy (service/core/prepared.py): where builds write and what children see.

A table's own file has the tables `rows` and, if it is private, `units`, its index of units. The dataset's dictionary
of units is a file of its own with one table `units`, which also keeps each unit's value; no view shows that.
"""

from collections.abc import Iterable

from service.core.prepared import UNIT_COLUMNS, UNITS_TABLE, index_columns, index_name, row_columns
from service.core.schema import Table
from service.engine.quoting import quoted

ROWS, UNITS = "rows", "units"
VALUE = "value"  # of a unit, in the dictionary


def inside(alias: str, name: str) -> str:
    """A table of the file that is attached as `alias`."""
    return f"{quoted(alias)}.main.{quoted(name)}"


def table_views(table: Table, alias: str) -> dict[str, str]:
    """The views of one prepared table: name to SELECT."""
    views = {table.name: _select(row_columns(table), alias, ROWS)}
    if table.private:
        views[index_name(table.name)] = _select(index_columns(table), alias, UNITS)
    return views


def units_view(alias: str) -> dict[str, str]:
    """The view of the dataset's dictionary of units: name to SELECT."""
    return {UNITS_TABLE: _select(UNIT_COLUMNS, alias, UNITS)}


def _select(columns: Iterable[str], alias: str, name: str) -> str:
    return f"SELECT {', '.join(quoted(column) for column in columns)} FROM {inside(alias, name)}"


# While a table is built: its rows as prepared, and as declared.
BUILT, STAGED = inside("out", ROWS), inside("stage", "s")
