"""The prepared copy: names and types of what an import makes of an admin's files, stated once.

Plans read these tables, importers build them, engines keep them. '#' can not occur in a declared name, so that no
hidden name ever meets a declared one.

    t           the rows: every declared column under its name, "x#" with the code of each column that has bounds,
                and in a private table UNIT_COLUMN and RANK_COLUMN, never NULL
    t#units     of a private table, one row per unit that has rows in it: UNIT_COLUMN, ROW_COUNT, and "x#abs", the
                sum of |code|, for each column that has bounds
    #units      one row per unit of the dataset: UNIT_COLUMN, UNIT_KEY
    #keys       made for one question and gone with it: its public keys k0, k1, … and POSITION

Unit codes are dense and the same in all tables of a dataset, whichever foreign keys they were reached through
(docs/decisions/0008). A unit's key is a hash of its own value: what every choice about the unit is keyed on.

Invariant N4: a code is a function of the one value, lies within the declared codes whatever the value, and computing
it never raises. code = floor(value / step + 1/2), clamped to [low_code, high_code]; NULL for NULL and NaN. Rounding
half up is the same for all types and signs.
Invariant N5: a unit's ranks in a table are 0, 1, 2, … in an order that is drawn anew for every version and has the
same law whoever else is in the table: a uniform permutation of that unit's rows.
Invariant N6: a prepared text is a function of the one value and has at most its column's max_bytes bytes: the longest
beginning of the value that fits and ends between two characters. A key is never cut: it is the whole value, or NULL
where that does not fit, so two people's keys never become one (docs/decisions/0042). Computing it never raises.
"""

from service.core.schema import BIGINT, Column, SqlType, Table

UNIT_COLUMN = "#unit"
RANK_COLUMN = "#rank"
ROW_COUNT = "rows"
UNITS_TABLE = "#units"
UNIT_KEY = "key"
KEYS_TABLE = "#keys"
POSITION = "#pos"

# Integers that nobody declares: they are added up and compared in the engine and never leave it by themselves.
UINT64 = SqlType("UBIGINT")
INT128 = SqlType("HUGEINT")  # 128 bits


def code_name(column: str) -> str:
    """Where a table keeps a column's clamped integer code."""
    return f"{column}#"


def is_code(name: str) -> bool:
    return name.endswith("#")


def total_name(code: str) -> str:
    """Where the index of units keeps the sum of the absolute codes of the column `code`."""
    return f"{code}abs"


def index_name(table: str) -> str:
    return f"{table}#units"


def coded(table: Table) -> list[Column]:
    """The columns that have an integer code beside the raw value."""
    return [column for column in table.columns.values() if column.low is not None]


def row_columns(table: Table) -> dict[str, SqlType]:
    """Every column of a prepared table, in order."""
    declared = {column.name: column.type for column in table.columns.values()}
    codes = {code_name(column.name): BIGINT for column in coded(table)}
    hidden = {UNIT_COLUMN: BIGINT, RANK_COLUMN: BIGINT} if table.private else {}
    return declared | codes | hidden


def index_columns(table: Table) -> dict[str, SqlType]:
    """Every column of a private table's index of units, in order."""
    totals = {total_name(code_name(column.name)): INT128 for column in coded(table)}
    return {UNIT_COLUMN: BIGINT, ROW_COUNT: BIGINT} | totals


UNIT_COLUMNS = {UNIT_COLUMN: BIGINT, UNIT_KEY: UINT64}  # of UNITS_TABLE


def is_key(table: Table, column: Column) -> bool:
    """Whether rows are told apart, or found, by this column: the unit, a foreign key to it, or a unique column."""
    return column.unique or (table.unit is not None and table.unit.column == column.name)
