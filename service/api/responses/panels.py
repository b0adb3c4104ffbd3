"""Panels: named queries that dashboards poll."""

from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from service.api.formats import ARROW, CSV
from service.api.responses.answers import Answer, CellGrid, KeyColumn, ValueColumn
from service.api.responses.values import (
    ETAG,
    NOT_CHANGED,
    AmountText,
    Documented,
    FlatRow,
    KeyPrefix,
    QueryId,
    forms,
)

Written = Annotated[str, Field(description="A decimal, as its author wrote it.")]


class WrittenAccuracy(BaseModel):
    """The accuracy that its author asked for."""

    output: str
    half_width: Written
    confidence: Written


class WrittenBounds(BaseModel):
    """The bounds that its author gave; null: to be found privately."""

    rows_per_unit: int | None = None
    groups_per_unit: int | None = None
    columns: dict[str, tuple[Written, Written] | None] | None = None
    unit_sum: dict[str, Written | None] | None = None
    clip: Literal["l1", "l2"] | None = None
    slots: Literal["pairs", "rows"] | None = None


class PanelQuery(BaseModel):
    """What the panel asks, as PUT takes it: the SQL and whatever its author gave beside it."""

    sql: str
    epsilon: Written | None = None
    delta: Written | None = None
    rho: Written | None = None
    share: Written | None = None
    accuracy: WrittenAccuracy | None = None
    bounds: WrittenBounds | None = None
    min_units: int | None = None
    weights: dict[str, Written] | None = None
    dialect: str | None = None


class PanelBudget(BaseModel):
    """The panel's own line: its refreshes never cost more."""

    unit: Literal["epsilon", "rho", "share"]
    line: AmountText
    spent: AmountText
    per_refresh: AmountText


class PanelFacts(BaseModel):
    """What a panel knows of itself, beside its answer."""

    query: Annotated[PanelQuery | None, Field(description="Not for viewers.")] = None
    panel: str
    title: str
    chart: Annotated[dict[str, Any], Field(description="The author's own object, kept as it is.")]
    owner: KeyPrefix
    state: Annotated[
        Literal["waiting", "good", "stale"],
        Field(description="stale: the last refresh did not succeed; the last good answer stays."),
    ]
    state_code: Annotated[str | None, Field(description="Why it is stale: a problem's code, or the panel's own.")]
    state_detail: str
    bounds_change: Annotated[
        str | None,
        Field(description="How its bounds differ from those of the answer before: a jump that is not one in the data."),
    ] = None
    refresh_seconds: Annotated[int | None, Field(description="null: refreshed by hand.")]
    refreshed_at: datetime | None
    next_refresh_at: datetime | None
    runs_out_on: Annotated[date | None, Field(description="The first refresh that the line no longer covers.")]
    budget: PanelBudget


class ShownPanel(PanelFacts):
    """A panel without its answer."""

    dataset: str


class PanelAnswer(PanelFacts, Answer):
    """The last good answer, and what the panel knows of itself."""


class PastRefresh(BaseModel):
    """One refresh with its rows and intervals."""

    refreshed_at: datetime
    id: QueryId
    columns: list[Annotated[KeyColumn | ValueColumn, Field(discriminator="role")]]
    rows: CellGrid
    low_95: CellGrid
    high_95: CellGrid
    data_version: int
    bounds_change: Annotated[str | None, Field(description="Against the refresh before; null: none.")] = None


POLLED: Documented = {
    200: {
        "model": PanelAnswer | ShownPanel | list[FlatRow],
        "description": "The last good answer; without one yet, the panel alone. A list of flat rows with"
        " `format=flat`.",
        "content": forms(CSV, ARROW),
        "headers": {
            "ETag": ETAG,
            "Age": {"description": "Seconds since the refresh.", "required": False, "schema": {"type": "integer"}},
        },
    },
    304: NOT_CHANGED,
}
PAST: Documented = {
    200: {
        "model": list[PastRefresh] | list[FlatRow],
        "description": "Newest first; with `format=flat` one time series, `released_at` in every row.",
        "content": forms(CSV),
    }
}
