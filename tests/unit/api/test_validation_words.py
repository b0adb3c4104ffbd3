"""A body that does not fit is told where, and what would fit, in words that need no knowledge of pydantic."""

from typing import Any

import pytest

from tests.fixtures.service import House

QUERY: dict[str, Any] = {"dataset": "shop", "sql": "SELECT COUNT(*) AS n FROM customers", "epsilon": "0.1"}


@pytest.mark.parametrize(
    ("change", "where", "message"),
    [
        ({"dataset": "SHOP"}, "body.dataset", "lower-case letters"),
        ({"wiat": 3}, "body.wiat", "no such field"),
        ({"wait": -1}, "body.wait", "should be greater than or equal to 0"),
        ({"accuracy": 50}, "body.accuracy", "an object is needed"),
        ({"accuracy": {"output": "n"}}, "body.accuracy.half_width", "is needed"),
        ({"bounds": {"columns": {"age": [0, 1]}}}, "body.bounds.columns.age", '"table.column"'),
        ({"bounds": {"columns": {"customers.age": [1]}}}, "body.bounds.columns.customers.age.1", "[low, high]"),
        ({"bounds": {"columns": {"customers.age": 5}}}, "body.bounds.columns.customers.age", "[low, high]"),
        ({"bounds": {"columns": {"a.b": ["2024-02-31", 5]}}}, "body.bounds.columns.a.b.0", "no date"),
        ({"bounds": {"rows_per_unit": "x"}}, "body.bounds.rows_per_unit", "a whole number is needed"),
        ({"dialect": "foo"}, "body.dialect", "should be 'duckdb', "),
        ({"fresh": "maybe"}, "body.fresh", "true or false is needed"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/queries", "/v1/estimates"])
def test_a_misfit_is_named_and_told_what_fits(
    house: House, path: str, change: dict[str, Any], where: str, message: str
) -> None:
    problem = house.ask("POST", path, "analyst", json={**QUERY, **change}).json()
    assert problem["code"] == "request-malformed"
    assert problem["errors"][0]["where"] == where
    assert message in problem["errors"][0]["message"]
    assert problem["detail"] == f"{where}: {problem['errors'][0]['message']}"


def test_a_list_of_estimates_names_the_one_that_does_not_fit(house: House) -> None:
    body = {"queries": [QUERY, {**QUERY, "sql": 5}]}
    problem = house.ask("POST", "/v1/estimates", "analyst", json=body).json()
    assert problem["errors"][0] == {"where": "body.queries.1.sql", "message": "text is needed"}


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("PUT", "/v1/queries", "GET, POST"), ("POST", "/v1/queries/q_1", "DELETE, GET"), ("POST", "/healthz", "GET")],
)
def test_a_wrong_method_is_told_every_right_one(house: House, method: str, path: str, allowed: str) -> None:
    response = house.ask(method, path, "analyst")
    assert (response.status_code, response.headers["allow"]) == (405, allowed)
