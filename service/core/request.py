"""A request after the wire: amounts exact, names still unresolved."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Literal

from service.core.plan import Loss

Role = Literal["admin", "analyst", "viewer"]

# Who asks for profiles: nobody's key, with an allowance of failures of its own.
IMPORT: Final = "import"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. `prefix` is the public part of the key and names the analyst's quota account."""

    prefix: str
    name: str
    role: Role
    datasets: frozenset[str]  # what the key may read; admins read all
    owner: str = ""  # the person behind the key, whose keys share allowances, limits and turns; empty: the key alone

    @property
    def person(self) -> str:
        return self.owner or self.prefix


@dataclass(frozen=True, slots=True)
class AskedBounds:
    """Bounds as the request gives them; None takes the dataset's default.

    `columns`: "table.column" to (low, high), or None to have them found privately.
    `dated`: the same with days or moments as ISO text, for columns that hold such; settled into `columns`
    when the schema is known (service/walk/question.py).
    `unit_sum`: "table.column" to a cap, or None to have it found privately.
    """

    rows_per_unit: int | None = None
    groups_per_unit: int | None = None
    columns: Mapping[str, tuple[Fraction, Fraction] | None] = field(default_factory=dict)
    dated: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    unit_sum: Mapping[str, Fraction | None] = field(default_factory=dict)
    clip: Literal["l1", "l2"] | None = None
    slots: Literal["pairs", "rows"] | None = None


# The SQL that a question is read in unless it names another; types of plans are named in it.
OWN_DIALECT: Final = "duckdb"


@dataclass(frozen=True, slots=True)
class Ask:
    """One question to one dataset. `loss` None: the dataset's default."""

    dataset: str
    sql: str
    loss: Loss | None = None
    bounds: AskedBounds = field(default_factory=AskedBounds)
    min_units: int | None = None
    dialect: str = OWN_DIALECT
    fresh: bool = False
