"""Errors as RFC 9457 has them: one shape for all, and which statuses an operation may give."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from service.api.responses.values import AmountText, Documented, QueryId

PROBLEM_JSON = "application/problem+json"

ProblemCode = Literal[
    "request-malformed", "not-signed-in", "not-allowed", "dataset-unknown", "not-found", "method-not-allowed",
    "syntax-refused", "construct-refused", "bounds-missing", "loss-out-of-range", "catalog-refused", "source-refused",
    "idempotency-key-reused", "conflict", "budget-exhausted", "question-too-large", "dataset-paused", "ledger-restored",
    "not-acceptable", "body-too-large", "too-busy", "rate-limited", "outer-refused", "answer-failed", "internal-error",
]  # fmt: skip


class FieldError(BaseModel):
    """One thing that did not fit."""

    where: Annotated[str, Field(examples=["body.bounds.rows_per_unit"])]
    message: str


class Problem(BaseModel):
    """What went wrong. `code` is stable; `budget_spent` says whether the failure cost anything."""

    type: Annotated[str, Field(examples=["urn:halftone:problem:syntax-refused"])]
    title: str
    status: int
    detail: str
    code: ProblemCode
    budget_spent: bool
    remedy: Annotated[str | None, Field(description="What to write or do instead.")] = None
    field: Annotated[str | None, Field(description="The field of the request that is meant.")] = None
    where: Annotated[str | None, Field(description="Which of several questions is meant.")] = None
    errors: Annotated[list[FieldError] | None, Field(description="What did not fit, place by place.")] = None
    sql_construct: Annotated[str | None, Field(alias="construct", description="The part of SQL that is meant.")] = None
    line: Annotated[int | None, Field(description="Where it stands in the SQL.")] = None
    column: Annotated[int | str | None, Field(description="Beside `line` a position, else a column's name.")] = None
    columns: Annotated[str | None, Field(description="The columns that need bounds.")] = None
    query_id: QueryId | None = None
    query: Annotated[QueryId | None, Field(description="The same, where the ledger found it settled already.")] = None
    dataset: str | None = None
    table: str | None = None
    path: Annotated[str | None, Field(description="The source's path, as it was declared.")] = None
    file: Annotated[str | None, Field(description="The end of a file's real path.")] = None
    copy_of: Annotated[str | None, Field(description="A known file that this one is a copy of.")] = None
    panel: str | None = None
    kind: Annotated[str | None, Field(description="One word for the operator.")] = None
    account: Annotated[str | None, Field(description="Which account refused: dataset, quota or panel.")] = None
    currency: Literal["epsilon", "delta", "share"] | None = None
    order: Annotated[str | None, Field(description="The Rényi order at which there is most room.")] = None
    remaining: AmountText | None = None
    cost: AmountText | None = None
    spent: AmountText | None = None
    ceiling: AmountText | None = None
    retry_after_s: Annotated[int | None, Field(description="Seconds, as in Retry-After.")] = None


DESCRIPTIONS = {
    400: "The request or its SQL could not be read.",
    401: "A valid key is needed.",
    403: "The role is too low, the budget does not cover it, or queries are paused.",
    404: "Absent, or not yours: the same answer.",
    406: "No offered form fits the Accept header.",
    409: "In use, already there, or the Idempotency-Key belongs to another body.",
    413: "The body is too large.",
    422: "The request does not fit, or can not be answered as it stands.",
    429: "Too many requests; see Retry-After.",
    500: "Could not be completed. For queries: the cost is spent.",
    503: "All engine slots are taken, or not ready; see Retry-After.",
}
SCHEMA = {"$ref": "#/components/schemas/Problem"}


def problems(*statuses: int) -> Documented:
    """These statuses as a route declares them; those that every such route can give need not be named
    (service/api/openapi.py)."""
    return {status: problem_response(status) for status in statuses}


def problem_response(status: int) -> dict[str, Any]:
    return {"description": DESCRIPTIONS[status], "content": {PROBLEM_JSON: {"schema": SCHEMA}}}
