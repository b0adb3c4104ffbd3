"""Datasets as declared, and their budgets: nothing here is measured from the data."""

from datetime import date
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from service.api.responses.answers import EpsilonDelta
from service.api.responses.values import AmountText, Cell, Documented

ShownBound = Annotated[
    int | float | str, Field(description="A number where JSON holds it exactly, else a decimal string.")
]


class DatasetListed(BaseModel):
    """A dataset that this key may read."""

    name: str
    unit: Annotated[str, Field(description="Whose privacy is protected, in words.", examples=["customer"])]


class ShownColumn(BaseModel):
    """A declared column. Without `bounds` it can be grouped and filtered by, not summed."""

    type: Annotated[str, Field(examples=["DECIMAL(10,2)"])]
    bounds: tuple[ShownBound, ShownBound] | None = None
    step: Annotated[ShownBound | None, Field(description="The grid on which values are summed.")] = None
    domain: Annotated[list[Cell] | None, Field(description="The declared group keys.")] = None
    unique: Literal[True] | None = None


class UnitByColumn(BaseModel):
    """A column names whose row it is."""

    column: str


class Reference(BaseModel):
    """A foreign key."""

    column: str
    references: Annotated[str, Field(examples=["orders.order_id"])]


class UnitByReference(BaseModel):
    """Whose row it is, another table says."""

    via: Reference


class ShownTable(BaseModel):
    """A declared table; `unit` is null exactly for public ones."""

    private: bool
    unit: UnitByColumn | UnitByReference | None
    columns: dict[str, ShownColumn]


class ShownDefaults(BaseModel):
    """What a query gets when it does not say."""

    epsilon: AmountText | None
    delta: AmountText | None
    rows_per_unit: int
    groups_per_unit: int
    min_units: int


class Dataset(BaseModel):
    """Tables that share one unit and one budget."""

    name: str
    unit: str
    data_version: int
    tables: dict[str, ShownTable]
    defaults: ShownDefaults
    epsilon_per_query_max: AmountText | None


class ShownQuota(BaseModel):
    """What this key may use of the dataset's budget; null: not rationed."""

    share: AmountText | None
    spent: AmountText
    remaining: AmountText | None


class Window(BaseModel):
    """The budget starts again with every period."""

    period: Literal["day", "week", "month"]
    started: date


class Order(BaseModel):
    """The Rényi account at one order; `spent` is null where Gaussian noise has closed it."""

    order: Annotated[str, Field(examples=["1.5", "infinity"])]
    spent: AmountText | None
    limit: AmountText


class Budget(BaseModel):
    """A dataset's budget as epsilon at its delta, and this key's own quota."""

    dataset: str
    granted: EpsilonDelta
    spent: EpsilonDelta
    remaining: EpsilonDelta
    ceiling: Annotated[EpsilonDelta, Field(description="The promise: no grant goes above it.")]
    quota: ShownQuota
    window: Window | None
    paused: bool
    like_your_last: Annotated[int | None, Field(description="How many more queries that cost what your last one did.")]
    orders: Annotated[list[Order] | None, Field(description="Only with `detail=orders`.")] = None


DECLARED: Documented = {
    200: {"description": "Declared anew."},
    201: {"model": Dataset, "description": "A new dataset, with a budget."},
}
