"""What questions would cost."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from service.api.responses.answers import BoundsOfCores, ClippedShare, EpsilonDelta, ShownClipping, ShownCost
from service.api.responses.values import AmountText, Digest, QueryId


class KeyPrediction(BaseModel):
    """A column of group keys."""

    name: str
    role: Literal["key"]


class ValuePrediction(BaseModel):
    """A column of values. Noise and width are null where they can not be told in advance."""

    name: str
    role: Literal["value"]
    noise_std: float | None
    half_width_95: float | None
    clipped_share: ClippedShare
    clipped: ShownClipping


class WouldNeed(BaseModel):
    """What reaches the wanted accuracy: this epsilon with Laplace noise, this rho with Gaussian noise."""

    epsilon: AmountText | None = None
    rho: AmountText | None = None


class Threshold(BaseModel):
    """From about how many people on an undeclared group is shown."""

    people: float
    min_units: int
    groups_per_unit: int
    delta: AmountText


class Groups(BaseModel):
    """Declared groups are all answered; others only from a threshold on."""

    declared: bool
    threshold: Threshold | None


class DefaultsApplied(BaseModel):
    """What the request left to the dataset's defaults, with the values that were taken."""

    epsilon: AmountText | None = None
    delta: AmountText | None = None
    rows_per_unit: int | None = None
    groups_per_unit: int | None = None
    min_units: int | None = None
    bounds_from: Annotated[str | None, Field(description="Where bounds come from that were left out.")] = None


class Estimate(BaseModel):
    """The price of one question, from the request, the catalog and the ledger alone."""

    dataset: str
    cost: ShownCost
    would_need: Annotated[WouldNeed | None, Field(description="null unless `accuracy` was asked for.")]
    seconds: Annotated[float, Field(description="How long it takes, promised whatever the data holds; 0: it is there.")]
    fits: Annotated[bool, Field(description="The dataset's budget covers it now.")]
    mechanisms: list[str]
    columns: list[Annotated[KeyPrediction | ValuePrediction, Field(discriminator="role")]]
    groups: Annotated[list[Groups], Field(description="One for each released core.")]
    bounds: BoundsOfCores
    defaults_applied: DefaultsApplied
    plan_digest: Digest
    replay_of: Annotated[QueryId | None, Field(description="The stored query that would answer it for nothing.")]
    remaining: EpsilonDelta
    remaining_after: EpsilonDelta
    similar_queries_left: int
    notes: list[str]


class Total(BaseModel):
    """What the questions to one dataset cost together; epsilon is null where some noise is Gaussian."""

    dataset: str
    epsilon: AmountText | None
    delta: AmountText
    share: AmountText
    fits: bool
    remaining_after: EpsilonDelta


class EstimateList(BaseModel):
    """Several questions: each by itself, and per dataset in all."""

    queries: list[Estimate]
    totals: list[Total]
