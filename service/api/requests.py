"""What callers may send: one model per body. Amounts are decimals, never binary floats."""

import re
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, StrictBool, StringConstraints, Tag

from service.catalog.declare import Name, PlainText
from service.core.request import OWN_DIALECT, Role
from service.core.schema import NAME_PATTERN

SQL_CHARACTERS_MAX = 65_536
Dialect = Literal[
    "duckdb", "postgres", "bigquery", "snowflake", "spark", "trino", "presto", "databricks", "redshift",
    "mysql", "sqlite", "clickhouse", "tsql", "oracle", "hive", "athena",
]  # fmt: skip


def _exact(value: Any) -> Any:
    """A number that becomes a Fraction of bounded size; text is read as a decimal."""
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise ValueError("a decimal number is needed")
    try:
        number = Decimal(value)
        if isinstance(value, str) and not value.isascii():  # Python reads digits of every script
            raise ArithmeticError
    except ArithmeticError:
        raise ValueError("a decimal number is needed") from None
    if not number.is_finite() or abs(number.adjusted()) > 30 or len(number.as_tuple().digits) > 40:
        raise ValueError("a finite number of ordinary size is needed")
    return number


def _amount(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise ValueError("a decimal number or a decimal string is needed")
    return value


def _edge(value: Any) -> Any:
    """An end of a column's bounds: a number, or a day or a moment as ISO text."""
    if not isinstance(value, str) or not ISO.match(value):
        return _exact(value)
    try:
        datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("this is no date: write YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS") from None
    return value


ISO = re.compile(r"\d{4}-\d", re.ASCII)
Number = Annotated[Decimal, BeforeValidator(_exact)]
Edge = Annotated[Decimal | Annotated[str, StringConstraints(max_length=40)], BeforeValidator(_edge)]
Amount = Annotated[
    Decimal | Annotated[str, StringConstraints(max_length=40)],
    BeforeValidator(_amount),
    Field(description="A decimal string or number; finer than 1e-12 (delta: 1e-18) is refused."),
]
QualifiedName = Annotated[str, StringConstraints(pattern=rf"^{NAME_PATTERN}\.{NAME_PATTERN}$")]


class Wire(BaseModel):
    """The body of a request: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class AccuracyWire(Wire):
    """How narrow the interval of one output should be; the price follows."""

    output: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    half_width: Number
    confidence: Number = Decimal("0.95")


class BoundsWire(Wire):
    """How much of one unit counts; what is left out comes from the dataset."""

    rows_per_unit: Annotated[int, Field(strict=True, ge=1, le=2**31)] | None = None
    groups_per_unit: Annotated[int, Field(strict=True, ge=1, le=100_000)] | None = None
    columns: Annotated[dict[QualifiedName, tuple[Edge, Edge] | None], Field(max_length=100)] = {}
    unit_sum: Annotated[dict[QualifiedName, Number | None], Field(max_length=100)] = {}
    clip: Literal["l1", "l2"] | None = None
    slots: Literal["pairs", "rows"] | None = None


class QuestionWire(Wire):
    """One question to one dataset, and what may be spent on it."""

    dataset: Name
    sql: Annotated[str, StringConstraints(min_length=1, max_length=SQL_CHARACTERS_MAX)]
    epsilon: Amount | None = None
    delta: Amount | None = None
    rho: Amount | None = None
    share: Amount | None = None
    accuracy: AccuracyWire | None = None
    bounds: BoundsWire | None = None
    min_units: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = None
    weights: Annotated[dict[str, Number], Field(max_length=100)] | None = None
    dialect: Dialect = OWN_DIALECT
    fresh: StrictBool = False


class QueryWire(QuestionWire):
    """A question to be answered. `wait`: seconds after which a 202 with a Location is sent instead of the answer."""

    wait: Annotated[Number, Field(ge=0, le=60)] = Decimal(10)


class PanelWire(QuestionWire):
    """A query with a name. `budget` is in the unit that the query pays in: epsilon, rho, or share of the
    dataset's budget for `accuracy` and `share`."""

    refresh: Annotated[str, Field(max_length=20, examples=["PT1H", "P1D"])] | None = None
    budget: Amount
    title: PlainText = ""
    chart: Annotated[dict[str, Any], Field(max_length=50)] | None = None


class FitWire(Wire):
    """What a list of questions may cost together."""

    epsilon: Amount


class EstimateWire(QueryWire):
    """What would this question cost? `wait` is taken and ignored, so that a query's body can be sent as it is."""


class EstimateListWire(Wire):
    """What would these questions cost together? `fit` spreads one epsilon over them."""

    queries: Annotated[list[QuestionWire], Field(min_length=1, max_length=50)]
    fit: FitWire | None = None


def _one_or_many(value: Any) -> str:
    return "many" if isinstance(value, dict) and "queries" in value else "one"


Estimates = Annotated[
    Annotated[EstimateWire, Tag("one")] | Annotated[EstimateListWire, Tag("many")], Discriminator(_one_or_many)
]


class KeyWire(Wire):
    """A key to make; without `expires_at` it holds until it is revoked."""

    name: Annotated[PlainText, Field(min_length=1)]
    role: Role
    datasets: Annotated[list[Name], Field(max_length=1000)] = []
    expires_at: datetime | None = None
    owner: Annotated[
        PlainText | None,
        Field(
            min_length=1, max_length=200, description="The person: keys of one owner share an allowance of failures."
        ),
    ] = None


class GrantWire(Wire):
    """How much of the ceiling may be used; what is left out stays as it is."""

    epsilon: Amount | None = None
    delta: Amount | None = None
    reason: Annotated[PlainText, Field(min_length=1)]


class QuotaWire(Wire):
    """One key's ration. `share`: how much of the dataset's budget it may use in all, up to 1; null lifts the ration."""

    share: Amount | None
    reason: PlainText = ""


class ReasonWire(Wire):
    """Why; kept in the journal."""

    reason: Annotated[PlainText, Field(min_length=1)]


class ProfileWire(Wire):
    """A new profile of a table. `share`: the part of the ceiling that it may cost; left out: as declared."""

    share: Amount | None = None
    reason: PlainText = ""


class WhomWire(ReasonWire):
    """Why, and whom: one person, by their owner's name or by one of their keys; neither: the whole dataset."""

    owner: Annotated[PlainText | None, Field(min_length=1)] = None
    key: Annotated[PlainText | None, Field(min_length=1, description="A key's prefix: its owner is meant.")] = None
