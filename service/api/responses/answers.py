"""Answers, queries on their way, and an analyst's history."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from service.api.formats import ARROW, CSV, JSON
from service.api.responses.values import (
    ETAG,
    NOT_CHANGED,
    AmountText,
    Cell,
    Digest,
    Documented,
    FlatRow,
    QueryId,
    forms,
)

CellGrid = list[list[Cell]]


class KeyColumn(BaseModel):
    """A column of group keys."""

    name: str
    type: Annotated[str, Field(description="A SQL type.", examples=["VARCHAR"])]
    role: Literal["key"]


class ShownClipping(BaseModel):
    """What the bounds on one unit leave out of a column, all groups together, of the rows that the prepared copy keeps:
    bias, which intervals do not contain."""

    of: Annotated[
        Literal["rows", "values", "people in groups"], Field(description="What is left out, and `lost` counts.")
    ]
    lost: Annotated[
        tuple[int, int] | None, Field(description="At least and at most so many, by the profile; null: not known.")
    ]
    share: Annotated[
        tuple[float, float] | None,
        Field(description="lost / (lost + counted), at least and at most, each with 95 %; null: no share can be told."),
    ]
    share_of: Annotated[
        Literal["answer", "table"] | None,
        Field(description="Counted in the released answer, or in the whole table as far as its profile tells."),
    ]
    amount: Annotated[str | None, Field(description="The most that a sum lacks, as a decimal.")]
    words: str


ClippedShare = Annotated[
    float | None,
    Field(
        description="At most this share of all groups together is left out by the bounds; 0: nothing is, of the rows"
        " that the prepared copy keeps; null: no share can be told, as of sums and averages."
    ),
]


class ValueColumn(BaseModel):
    """A column of released values. Noise and width are null where they differ from row to row."""

    name: str
    type: Annotated[str, Field(description="A SQL type.", examples=["BIGINT"])]
    role: Literal["value"]
    noise_std: Annotated[float | None, Field(description="Standard deviation of the noise.")]
    half_width_95: Annotated[float | None, Field(description="Half the width of the 95 % interval.")]
    clipped_share: ClippedShare = None
    clipped: Annotated[ShownClipping | None, Field(description="Not in answers of older versions.")] = None


class ShownCost(BaseModel):
    """What it took of the budget. Pure mechanisms are counted in epsilon, Gaussian noise in rho."""

    epsilon: AmountText | None
    rho: AmountText | None
    delta: AmountText
    share: Annotated[AmountText, Field(description="The part of the dataset's budget.")]
    replay_of: Annotated[QueryId | None, Field(description="The query that paid, if this one did not.")]


class EpsilonDelta(BaseModel):
    """A part of a dataset's budget, as epsilon at the dataset's delta."""

    epsilon: AmountText
    delta: AmountText


class AppliedBounds(BaseModel):
    """How much of one unit counted. `columns` and `unit_sum` are keyed by expression; null: found privately."""

    rows_per_unit: int
    groups_per_unit: int
    clip: Literal["l1", "l2"]
    min_units: int
    columns: dict[str, tuple[str, str]]
    unit_sum: dict[str, str | None] | None = None


BoundsOfCores = Annotated[
    AppliedBounds | dict[str, AppliedBounds],
    Field(description="Of the only released core, or of each under its name: core_0, core_1, …"),
]


class Receipt(BaseModel):
    """What was done, without a value: plan, mechanisms, bounds, and the entry of the ledger that paid."""

    plan_digest: Digest
    mechanisms: list[str]
    bounds: BoundsOfCores
    seconds: Annotated[float | None, Field(description="The promised time, which it took.")] = None
    ledger_entry: Annotated[int | None, Field(description="null: nothing was charged.")]
    service_version: str


class Answer(BaseModel):
    """A stored answer: released values, the 95 % interval of each, what it cost, and the receipt.

    `rows`, `low_95` and `high_95` have the same shape; keys have no interval.
    """

    id: QueryId
    status: Literal["answered"]
    dataset: str
    data_version: int
    columns: list[Annotated[KeyColumn | ValueColumn, Field(discriminator="role")]]
    rows: CellGrid
    low_95: CellGrid
    high_95: CellGrid
    cost: ShownCost
    remaining: Annotated[EpsilonDelta, Field(description="What was left of the dataset's budget.")]
    notes: Annotated[list[str], Field(description="What an analyst should know about these numbers.")]
    receipt: Receipt


class QueryState(BaseModel):
    """Where a query stands that has no answer to show."""

    id: QueryId
    status: Literal["queued", "running", "answered", "failed", "cancelled"]
    dataset: str | None = None


class PastQuery(BaseModel):
    """One line of a key's own history."""

    id: QueryId
    dataset: str
    sql: Annotated[str | None, Field(description="null for a charge whose process has not stored a result.")]
    asked_at: Annotated[datetime, Field(description="When it came, not when it was done.")]
    status: Literal["answered", "failed", "running"]
    share: Annotated[AmountText, Field(description="The part of the dataset's budget that it took.")]
    replay_of: QueryId | None


LOCATION: dict[str, Any] = {"description": "Where to look for it.", "schema": {"type": "string"}}
RETRY_AFTER: dict[str, Any] = {"description": "Seconds.", "schema": {"type": "integer"}}


def _answer(description: str) -> dict[str, Any]:
    return {
        "model": Answer | list[FlatRow],
        "description": f"{description} A list of flat rows with `format=flat`.",
        "content": forms(CSV, ARROW),
        "headers": {"ETag": ETAG, "Location": LOCATION},
    }


ON_ITS_WAY: dict[str, Any] = {
    "model": QueryState,
    "description": "On its way; look at Location.",
    "headers": {"Location": LOCATION, "Retry-After": RETRY_AFTER},
}
ASKED: Documented = {200: _answer("A stored answer."), 201: _answer("A new answer."), 202: ON_ITS_WAY}
FOUND: Documented = {200: _answer("The stored answer."), 202: ON_ITS_WAY, 304: NOT_CHANGED}
_STATE_EVENT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"type": "string", "const": "state"},
        "data": {
            "type": "string",
            "contentMediaType": JSON,
            "contentSchema": {"$ref": "#/components/schemas/QueryState"},
        },
    },
}
EVENTS: Documented = {
    200: {
        "description": "One event for every state, until the query is answered or has failed.",
        "content": {"text/event-stream": {"itemSchema": _STATE_EVENT}},
    }
}
