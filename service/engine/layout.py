"""How a prepared table looks, in its file and as a view: one place that build and bind agree on.

rows    raw columns under their declared names, "x#" for each column with bounds, and for private
        tables "#unit" and "#rank"
units   (private tables) "#unit", "rows", and "x#abs" = Σ|code| for each column with bounds
"""

from service.core.schema import UNIT_COLUMN, Column, Table, code_name
from service.engine.names import quoted

ROWS, UNITS = "rows", "units"
RANK_COLUMN = "#rank"
ROW_COUNT = "rows"


def coded(table: Table) -> list[Column]:
    """The columns that have an integer code beside the raw value."""
    return [column for column in table.columns.values() if column.low is not None]


def total_name(column: str) -> str:
    return f"{column}#abs"


def index_name(table: str) -> str:
    return f"{table}#units"


def row_columns(table: Table) -> list[str]:
    hidden = [UNIT_COLUMN, RANK_COLUMN] if table.private else []
    return [*table.columns, *(code_name(column.name) for column in coded(table)), *hidden]


def index_columns(table: Table) -> list[str]:
    return [UNIT_COLUMN, ROW_COUNT, *(total_name(column.name) for column in coded(table))]


def views_of(table: Table, alias: str) -> dict[str, str]:
    """Views of one prepared table whose file is attached as `alias`."""
    views = {table.name: _select(row_columns(table), alias, ROWS)}
    if table.private:
        views[index_name(table.name)] = _select(index_columns(table), alias, UNITS)
    return views


def _select(columns: list[str], alias: str, name: str) -> str:
    return f"SELECT {', '.join(quoted(column) for column in columns)} FROM {quoted(alias)}.main.{quoted(name)}"
