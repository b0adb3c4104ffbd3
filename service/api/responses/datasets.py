"""Datasets as declared, their budgets, and what was released of the sizes of their tables."""

from datetime import date
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from service.api.responses.answers import EpsilonDelta
from service.api.responses.values import AmountText, Cell, Documented, QueryId

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
    max_bytes: Annotated[int | None, Field(description="Longer texts were cut; keys are whole or missing.")] = None


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


class ShownBin(BaseModel):
    """Units by how many rows they have in the table; the last bin holds all beyond, and has no end."""

    fewest_rows: int
    most_rows: int | None
    units: Annotated[int, Field(description="With noise, so it may be below zero: then there are few.")]


class ProfileCost(BaseModel):
    """What a profile was paid with: `epsilon`, or `rho` where Gaussian noise was used before."""

    epsilon: AmountText | None
    rho: AmountText | None
    share: AmountText


class ShownProfile(BaseModel):
    """Units of a private table by how many rows they have, released once with noise and paid for."""

    words: Annotated[
        str, Field(examples=["about 60,000 customers, about 380,000 rows, half of the customers have at most 4"])
    ]
    bins: list[ShownBin]
    noise: str
    noise_std: Annotated[float, Field(description="Of every count.")]
    cost: ProfileCost
    query_id: QueryId


class ShownSize(BaseModel):
    """What the data that serves is promised to stay within: from the profile, or declared."""

    rows_at_most: int
    units_at_most: int
    rows_per_unit_at_most: Annotated[int, Field(description="A unit's rows beyond it are left out at import.")]


class ShownTable(BaseModel):
    """A declared table; `unit` is null exactly for public ones."""

    private: bool
    unit: UnitByColumn | UnitByReference | None
    columns: dict[str, ShownColumn]
    size: Annotated[ShownSize | None, Field(description="null: not known, or public.")]
    profile: Annotated[ShownProfile | None, Field(description="null: none was released.")]


class ProfileReleased(BaseModel):
    """A new profile of a table. What a unit keeps changes at the next import only."""

    dataset: str
    table: str
    profile: ShownProfile
    rows_per_unit_now: Annotated[int | None, Field(description="null: all rows of a unit are kept.")]
    rows_per_unit_next: int


WeakPromise = Annotated[
    str | None,
    Field(description="Why the promise is a weak one (epsilon above 20, delta above 0.001); null: it is not."),
]


class ShownDefaults(BaseModel):
    """What a query gets when it does not say."""

    epsilon: AmountText | None
    delta: AmountText | None
    rows_per_unit: int
    groups_per_unit: int
    fitted: Annotated[
        list[Literal["rows_per_unit", "groups_per_unit"]],
        Field(description="Not declared: fitted to the profile of the tables read, and as shown where there is none."),
    ]
    min_units: int


class Dataset(BaseModel):
    """Tables that share one unit and one budget."""

    name: str
    unit: str
    data_version: int
    tables: dict[str, ShownTable]
    defaults: ShownDefaults
    epsilon_per_query_max: AmountText | None
    ceiling: Annotated[EpsilonDelta, Field(description="The promise: no grant goes above it.")]
    weak: WeakPromise


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
    weak: WeakPromise
    quota: ShownQuota
    window: Window | None
    paused: bool
    like_your_last: Annotated[int | None, Field(description="How many more queries that cost what your last one did.")]
    orders: Annotated[list[Order] | None, Field(description="Only with `detail=orders`.")] = None


DECLARED: Documented = {
    200: {"description": "Declared anew."},
    201: {"model": Dataset, "description": "A new dataset, with a budget."},
}
