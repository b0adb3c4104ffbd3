"""What an admin declared: the only thing about the data that planning and pricing may read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from fractions import Fraction

from service.core.sizes import Size

# A literal value that may be a group key or a member of a declared domain.
Scalar = str | int | bool | float | date | datetime | None

NAME_PATTERN = r"[a-z][a-z0-9_]{0,62}"
TEXT_BYTES = 256  # that a text of a private table keeps where its declaration does not say
TEXT_BYTES_MAX = 65_536  # the most that a declaration may say
RESERVED_TABLES = r"core_[0-9]+"  # what released tables are called in the outer SQL: one would hide the other


@dataclass(frozen=True, slots=True)
class SqlType:
    """BOOLEAN, BIGINT, DOUBLE, DECIMAL(precision, scale), VARCHAR, DATE or TIMESTAMP.

    Narrower integers are declared BIGINT, FLOAT is DOUBLE: a prepared column has one of these seven.
    """

    name: str
    precision: int | None = None
    scale: int | None = None

    @property
    def is_numeric(self) -> bool:
        return self.name in ("BIGINT", "DOUBLE", "DECIMAL")

    def __str__(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})" if self.name == "DECIMAL" else self.name


BOOLEAN, BIGINT, DOUBLE, VARCHAR, DATE, TIMESTAMP = (
    SqlType(name) for name in ("BOOLEAN", "BIGINT", "DOUBLE", "VARCHAR", "DATE", "TIMESTAMP")
)


def byte_count(text: str) -> int:
    """How long a text is to a database: its bytes as UTF-8, not its characters."""
    return len(text.encode("utf-8", "surrogatepass"))


def iso_of(value: Fraction, kind: SqlType) -> str | None:
    """Days or microseconds since 1970 as ISO 8601; None for other types, and beyond the calendar."""
    try:
        if kind == DATE:
            return (date(1970, 1, 1) + timedelta(days=int(value))).isoformat()
        if kind == TIMESTAMP:
            return (datetime(1970, 1, 1) + timedelta(microseconds=int(value))).isoformat()
    except OverflowError:
        pass
    return None


@dataclass(frozen=True, slots=True)
class Column:
    """One declared column.

    `low`, `high` and `step` are the declared outer range and grid of a numeric column, in its own
    unit (dates: days since 1970-01-01; timestamps: microseconds). A numeric column without bounds can
    be grouped and filtered by, not summed. core/prepared.py says what becomes of it in the prepared copy.
    """

    name: str
    type: SqlType
    low: Fraction | None = None
    high: Fraction | None = None
    step: Fraction | None = None
    domain: tuple[Scalar, ...] | None = None
    unique: bool = False
    source_name: str | None = None  # the column's name in the file, where it differs
    max_bytes: int | None = None  # of a text: longer ones are cut when the copy is prepared; None: they are not

    @property
    def low_code(self) -> int:
        assert self.low is not None
        assert self.step is not None
        return round(self.low / self.step)

    @property
    def high_code(self) -> int:
        assert self.high is not None
        assert self.step is not None
        return round(self.high / self.step)


@dataclass(frozen=True, slots=True)
class UnitColumn:
    """The table names its unit directly."""

    column: str


@dataclass(frozen=True, slots=True)
class UnitVia:
    """The table reaches its unit through a declared foreign key: column -> table.key."""

    column: str
    table: str
    key: str


@dataclass(frozen=True, slots=True)
class Table:
    """A declared table. `unit` is None exactly for public tables."""

    name: str
    columns: Mapping[str, Column]
    unit: UnitColumn | UnitVia | None
    expected_rows: int | None = None
    max_rows_per_unit: int | None = None

    @property
    def private(self) -> bool:
        return self.unit is not None


# What a request gets that says nothing, of a dataset that declares nothing and whose size nobody knows.
ROWS_PER_UNIT, GROUPS_PER_UNIT = 20, 5


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a request gets when it does not say. Bounds that are None are fitted to the profile (core/fitted.py)."""

    epsilon: int | None = None  # pico
    delta: int | None = None  # atto, for selecting undeclared keys
    rows_per_unit: int | None = None
    groups_per_unit: int | None = None
    min_units: int = 1
    expected_groups: int | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    """One dataset as declared: tables that share one unit and one budget."""

    dataset: str
    unit: str  # what a unit is called in words: "customer"
    tables: Mapping[str, Table]
    data_version: int = 0
    defaults: Defaults = field(default_factory=Defaults)
    epsilon_per_query_max: int | None = None  # pico
    sizes: Mapping[str, Size] = field(default_factory=dict)  # by table; one that is missing is not known
    versions: Mapping[str, int] = field(default_factory=dict)  # by table: the data version in which it was built
