"""Examples for the OpenAPI document. They work when pasted against the demo data (tests/e2e runs them)."""

from typing import Any

from fastapi import Body
from fastapi.openapi.models import Example
from pydantic import BaseModel, Field

QUERIES: dict[str, Example] = {
    "count": {
        "summary": "Customers per country (declared keys, pure epsilon)",
        "value": {
            "dataset": "shop",
            "sql": "SELECT country, COUNT(*) AS n FROM customers GROUP BY country",
            "epsilon": "0.1",
        },
    },
    "average": {
        "summary": "Average age per country",
        "value": {
            "dataset": "shop",
            "sql": "SELECT country, COUNT(*) AS n, AVG(age) AS age FROM customers GROUP BY country",
            "epsilon": "0.5",
        },
    },
    "total": {
        "summary": "Turnover by status, one person's orders bounded",
        "value": {
            "dataset": "shop",
            "sql": "SELECT status, SUM(amount) AS turnover FROM orders GROUP BY status ORDER BY turnover DESC",
            "epsilon": "0.5",
            "bounds": {"rows_per_unit": 10},
        },
    },
}  # fmt: skip

QUERY_EXAMPLES = Body(openapi_examples=QUERIES)

ESTIMATE_EXAMPLES = Body(
    openapi_examples={
        **QUERIES,
        "list": {
            "summary": "Two questions together",
            "value": {"queries": [QUERIES["count"]["value"], QUERIES["average"]["value"]]},
        },
    }
)


class AnswerColumn(BaseModel):
    name: str
    type: str | None = None
    role: str
    noise_std: float | None = None
    half_width_95: float | None = None


class Answer(BaseModel):
    """A stored answer: released values, their intervals, what they cost, and the receipt."""

    id: str
    status: str
    dataset: str | None = None
    data_version: int | None = None
    columns: list[AnswerColumn] = []
    rows: list[list[Any]] = []
    low_95: list[list[Any]] = []
    high_95: list[list[Any]] = []
    cost: dict[str, Any] = {}
    remaining: dict[str, Any] | None = None
    notes: list[str] = []
    receipt: dict[str, Any] = {}


class Waiting(BaseModel):
    id: str
    status: str
    dataset: str | None = None


class FieldError(BaseModel):
    where: str
    message: str


class Problem(BaseModel):
    """RFC 9457. `code` is stable; `budget_spent` says whether the failure cost anything."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    budget_spent: bool
    errors: list[FieldError] | None = Field(default=None, description="What did not fit, place by place.")


def _problem(description: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": description, "content": {"application/problem+json": {"schema": schema}}}


PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {
    400: _problem("The request or its SQL could not be read."),
    401: _problem("A valid key is needed."),
    403: _problem("The role is too low, the budget does not cover it, or queries are paused."),
    404: _problem("Absent, or not yours: the same answer."),
    405: _problem("The address does not take this method."),
    406: _problem("No offered form fits the Accept header."),
    409: _problem("In use, already there, or the Idempotency-Key belongs to another body."),
    413: _problem("The body is too large."),
    422: _problem("The request does not fit, or can not be answered as it stands."),
    429: _problem("Too many requests; see Retry-After."),
    500: _problem("Could not be completed. For queries: the cost is spent."),
    503: _problem("All engine slots are taken, or not ready; see Retry-After."),
}

ANSWER_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"model": Answer, "description": "A stored answer."},
    201: {"model": Answer, "description": "A new answer."},
    202: {"model": Waiting, "description": "On its way; look at Location."},
}
