"""The wire models of API requests, and how they become an Ask. Amounts are decimals, never binary floats."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, StrictBool, StringConstraints, Tag

from service.api.json_body import read_exact
from service.catalog.declare import Name
from service.catalog.declare import Words as Words
from service.core.amounts import parse_delta, parse_epsilon, parse_share
from service.core.errors import LossOutOfRange, placed
from service.core.plan import Accuracy, Loss
from service.core.request import Ask, AskedBounds, Role
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


ISO = re.compile(r"\d{4}-\d")
Number = Annotated[Decimal, BeforeValidator(_exact)]
Edge = Annotated[Decimal | Annotated[str, StringConstraints(max_length=40)], BeforeValidator(_edge)]
Amount = Annotated[
    Decimal | Annotated[str, StringConstraints(max_length=40)],
    BeforeValidator(_amount),
    Field(description="A decimal string or number; finer than 1e-12 (delta: 1e-18) is refused."),
]
QualifiedName = Annotated[str, StringConstraints(pattern=rf"^{NAME_PATTERN}\.{NAME_PATTERN}$")]


class Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AccuracyWire(Wire):
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
    dialect: Dialect = "duckdb"
    fresh: StrictBool = False


class QueryWire(QuestionWire):
    """`wait`: seconds after which a 202 with a Location is sent instead of the answer."""

    wait: Annotated[Decimal, Field(ge=0, le=60)] = Decimal(10)


class FitWire(Wire):
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
    name: Annotated[Words, Field(min_length=1)]
    role: Role
    datasets: Annotated[list[Name], Field(max_length=1000)] = []
    expires_at: datetime | None = None


class GrantWire(Wire):
    epsilon: Amount | None = None
    delta: Amount | None = None
    reason: Annotated[Words, Field(min_length=1)]


class QuotaWire(Wire):
    """`share`: how much of the dataset's budget this key may use in all, up to 1; null lifts the ration."""

    share: Amount | None
    reason: Words = ""


class ReasonWire(Wire):
    reason: Annotated[Words, Field(min_length=1)]


def loss_of(wire: QuestionWire) -> Loss | None:
    """What is offered; None, or an epsilon of 0 beside a delta or weights, takes the dataset's default."""
    amounts = {"epsilon": wire.epsilon, "rho": wire.rho, "share": wire.share, "accuracy": wire.accuracy}
    given = [name for name, value in amounts.items() if value is not None]
    if len(given) > 1:
        raise LossOutOfRange(
            f"{' and '.join(given)} can not be combined", {"remedy": "give one of epsilon, rho, accuracy and share"}
        )
    delta = 0 if wire.delta is None else parse_delta(wire.delta)
    weights = _weights(wire.weights or {})
    if not given:
        return Loss("epsilon", 0, delta, None, weights) if delta or weights else None
    if wire.accuracy is not None:
        return Loss("accuracy", 0, delta, _accuracy(wire.accuracy), weights)
    kind = cast(Literal["epsilon", "rho", "share"], given[0])
    amount = parse_share(amounts[kind]) if kind == "share" else parse_epsilon(amounts[kind], kind)
    return Loss(kind, amount, delta, None, weights)


def _accuracy(wire: AccuracyWire) -> Accuracy:
    if wire.half_width <= 0:
        raise LossOutOfRange("accuracy.half_width must be above zero", {"field": "accuracy.half_width"})
    if not Decimal("0.5") <= wire.confidence <= Decimal("0.999999"):
        raise LossOutOfRange("accuracy.confidence must be between 0.5 and 0.999999", {"field": "accuracy.confidence"})
    return Accuracy(wire.output, Fraction(wire.half_width), Fraction(wire.confidence))


def _weights(given: Mapping[str, Decimal]) -> dict[str, Fraction]:
    for name, weight in given.items():
        if weight <= 0 or weight > 1_000_000:
            raise LossOutOfRange("a weight must be above 0 and at most 1000000", {"field": f"weights.{name[:64]}"})
    return {name: Fraction(weight) for name, weight in given.items()}


def ask_of(wire: QuestionWire) -> Ask:
    """The request with exact amounts; names are resolved later, against the catalog."""
    bounds = wire.bounds or BoundsWire()
    return Ask(
        dataset=wire.dataset,
        sql=wire.sql,
        loss=loss_of(wire),
        bounds=AskedBounds(
            rows_per_unit=bounds.rows_per_unit,
            groups_per_unit=bounds.groups_per_unit,
            **_columns(bounds),
            unit_sum={name: None if cap is None else Fraction(cap) for name, cap in bounds.unit_sum.items()},
            clip=bounds.clip,
            slots=bounds.slots,
        ),
        min_units=wire.min_units,
        dialect=wire.dialect,
        fresh=wire.fresh,
    )


def _columns(bounds: BoundsWire) -> dict[str, Any]:
    """Ends that are numbers, and ends that are dates: which number a date is, the column's type says."""
    columns: dict[str, tuple[Fraction, Fraction] | None] = {}
    dated: dict[str, tuple[str, str]] = {}
    for name, pair in bounds.columns.items():
        if pair is None or not any(isinstance(end, str) for end in pair):
            columns[name] = None if pair is None else (Fraction(pair[0]), Fraction(pair[1]))
        else:
            dated[name] = (str(pair[0]), str(pair[1]))
    return {"columns": columns, "dated": dated}


def fitted(wire: EstimateListWire) -> list[Ask]:
    """The questions of a list; with `fit`, that epsilon is divided over them, rounded down to the grid: in
    proportion to the epsilons that they give themselves, or equally."""
    asks = []
    for at, question in enumerate(wire.queries):
        with placed(f"body.queries.{at}"):
            asks.append(ask_of(question))
    if wire.fit is None:
        return asks
    total = parse_epsilon(wire.fit.epsilon, "fit.epsilon")
    own = [ask.loss.amount if ask.loss is not None and ask.loss.kind == "epsilon" else 0 for ask in asks]
    parts = own if all(own) else [1] * len(asks)
    amounts = [total * part // sum(parts) for part in parts]
    if not all(amounts):
        raise LossOutOfRange("fit.epsilon is too little for so many queries", {"field": "fit.epsilon"})
    return [replace(ask, loss=_refitted(ask.loss, amount)) for ask, amount in zip(asks, amounts, strict=True)]


def _refitted(loss: Loss | None, amount: int) -> Loss:
    return Loss("epsilon", amount) if loss is None else Loss("epsilon", amount, loss.delta, None, loss.weights)


def stored_ask(text: str) -> Ask:
    """A question that was stored as JSON, read as the API reads a body."""
    return ask_of(QuestionWire.model_validate(read_exact(text.encode())))
