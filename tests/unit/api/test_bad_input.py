"""Whatever is sent, the answer is a problem+json with the right status, and nothing is echoed."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from service.core.errors import AnswerFailed, BudgetExhausted
from tests.fixtures.service import House, Sent, open_house

QUERY = {"dataset": "shop", "sql": "SELECT COUNT(*) FROM customers", "epsilon": "0.1"}
JSON = {"Content-Type": "application/json"}


def problem(response: object, status: int, code: str) -> dict[str, object]:
    assert response.status_code == status, response.text  # type: ignore[attr-defined]
    assert response.headers["content-type"] == "application/problem+json"  # type: ignore[attr-defined]
    body: dict[str, object] = response.json()  # type: ignore[attr-defined]
    assert (body["code"], body["status"]) == (code, status)
    assert {"type", "title", "detail", "budget_spent"} <= body.keys()
    return body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"null",
        b"\xff\xfe",
        b'{"dataset": "shop", "sql": "x", "epsilon": NaN}',
        b'{"dataset": "shop", "sql": "x", "epsilon": Infinity}',
        b'{"dataset": "shop", "dataset": "shop", "sql": "x"}',
        b'{"dataset": "shop", "sql": "\\ud800"}',
        b'{"dataset": "shop", "sql": 7}',
        b'{"dataset": "shop"}',
        b'{"dataset": "shop", "sql": ""}',
        b'{"dataset": "SHOP", "sql": "x"}',
        b'{"dataset": "shop\\u0000", "sql": "x"}',
        b'{"dataset": "shop", "sql": "x", "surprise": 1}',
        b'{"dataset": "shop", "sql": "x", "epsilon": true}',
        b'{"dataset": "shop", "sql": "x", "epsilon": [1]}',
        b'{"dataset": "shop", "sql": "x", "wait": 1e9}',
        b'{"dataset": "shop", "sql": "x", "fresh": "yes"}',
        b'{"dataset": "shop", "sql": "x", "bounds": {"rows_per_unit": 0}}',
        b'{"dataset": "shop", "sql": "x", "bounds": {"rows_per_unit": 1.5}}',
        b'{"dataset": "shop", "sql": "x", "bounds": {"columns": {"a.b": [1]}}}',
        b'{"dataset": "shop", "sql": "x", "bounds": {"columns": {"a.b": [1, 1e999999999]}}}',
        b'{"dataset": "shop", "sql": "x", "epsilon": ' + b"1" * 5000 + b"}",
        b'{"dataset": "shop", "sql": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
def test_a_body_that_does_not_fit_is_refused(house: House, body: bytes) -> None:
    response = house.ask("POST", "/v1/queries", "analyst", content=body, headers=JSON)
    problem(response, 422, "request-malformed")
    assert house.answerer.asked == []


@pytest.mark.parametrize("amount", ["0", "-1", "1e-13", "1e7", "nan", "inf", " 1", "1_000", "0x1", "", "1e999999"])
@pytest.mark.parametrize("field", ["epsilon", "rho", "share"])
def test_an_amount_that_is_none_is_refused(house: House, field: str, amount: str) -> None:
    body = {"dataset": "shop", "sql": "SELECT 1", field: amount}
    problem(house.ask("POST", "/v1/queries", "analyst", json=body), 422, "loss-out-of-range")


def test_two_ways_to_pay_at_once_are_refused(house: House) -> None:
    problem(house.ask("POST", "/v1/queries", "analyst", json={**QUERY, "rho": "0.1"}), 422, "loss-out-of-range")


@pytest.mark.parametrize("orphan", [{"delta": "1e-9"}, {"weights": {"n": 2}}])
def test_delta_or_weights_without_an_amount_go_with_the_default_and_are_not_ignored(
    house: House, orphan: dict[str, object]
) -> None:
    body = {"dataset": "shop", "sql": "SELECT 1", **orphan}
    assert house.ask("POST", "/v1/queries", "analyst", json=body).status_code == 201
    loss = house.answerer.asked[0][0].loss
    assert loss is not None
    assert (loss.amount, loss.delta, dict(loss.weights)) in ((0, 10**9, {}), (0, 0, {"n": 2}))


def test_amounts_are_read_as_decimals_not_binary_floats(house: House) -> None:
    body = b'{"dataset": "shop", "sql": "SELECT 1", "epsilon": 0.1}'
    assert house.ask("POST", "/v1/queries", "analyst", content=body, headers=JSON).status_code == 201
    loss = house.answerer.asked[0][0].loss
    assert loss is not None
    assert loss.amount == int(Decimal("0.1") * 10**12)


def test_what_was_sent_is_not_echoed(house: House) -> None:
    secret = "Alice Secretperson"
    for body in (
        {"dataset": secret, "sql": secret, "surprise": secret, secret: 1},
        {"dataset": "shop", "sql": "x", "epsilon": {secret: secret}, "bounds": {"columns": {secret: [1, 2]}}},
    ):
        response = house.ask("POST", "/v1/queries", "analyst", json=body)
        assert response.status_code == 422
        assert "Secretperson" not in response.text


def test_a_body_without_json_header_says_what_to_send(house: House) -> None:
    response = house.ask("POST", "/v1/queries", "analyst", content=json.dumps(QUERY))
    assert "Content-Type" in str(problem(response, 422, "request-malformed")["detail"])


def test_an_oversized_body_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    house = open_house(tmp_path, body_bytes_max=2000)
    try:
        big = b'{"dataset": "shop", "sql": "' + b"x" * 5000 + b'"}'
        problem(house.ask("POST", "/v1/queries", "analyst", content=big, headers=JSON), 413, "body-too-large")
        chunks = (big[at : at + 500] for at in range(0, len(big), 500))
        problem(house.ask("POST", "/v1/queries", "analyst", content=chunks, headers=JSON), 413, "body-too-large")
        assert house.answerer.asked == []
    finally:
        house.close()


@pytest.mark.parametrize("key", [None, "", "ht_", "ht_abc_def", "nonsense", "ht_" + "x" * 5000 + "_y"])
def test_without_a_valid_key_nothing_is_read(house: House, key: str | None) -> None:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    for content in (json.dumps(QUERY), "{"):
        response = house.client.post("/v1/queries", content=content, headers={**JSON, **headers})
        problem(response, 401, "not-signed-in")
        assert response.headers["www-authenticate"].startswith("Bearer")


def test_a_key_with_a_wrong_secret_is_not_a_key(house: House) -> None:
    prefix = house.keys["admin"].split("_")[1]
    response = house.client.get("/v1/datasets", headers={"Authorization": f"Bearer ht_{prefix}_wrong"})
    problem(response, 401, "not-signed-in")


def test_unknown_and_forbidden_datasets_look_the_same(house: House) -> None:
    other = {"unit": "patient", "epsilon": "1"}
    assert house.ask("PUT", "/v1/datasets/clinic", json=other).status_code == 201
    absent = house.ask("GET", "/v1/datasets/nowhere", "analyst")
    forbidden = house.ask("GET", "/v1/datasets/clinic", "analyst")
    assert problem(absent, 404, "dataset-unknown") == problem(forbidden, 404, "dataset-unknown")


def test_absent_addresses_and_methods_are_problems_too(house: House) -> None:
    problem(house.client.get("/nowhere"), 404, "not-found")
    response = house.client.put("/v1/queries")
    problem(response, 405, "method-not-allowed")
    assert "POST" in response.headers["allow"]


def test_a_refusal_of_the_walk_keeps_its_code_and_says_whether_it_cost(house: House) -> None:
    house.answerer.error = BudgetExhausted("shop can not cover this", {"remaining": "0.1"})
    body = problem(house.ask("POST", "/v1/queries", "analyst", json=QUERY), 403, "budget-exhausted")
    assert body["budget_spent"] is False
    assert body["remaining"] == "0.1"
    house.answerer.error = AnswerFailed("the query could not be completed")
    assert (
        problem(house.ask("POST", "/v1/queries", "analyst", json=QUERY), 500, "answer-failed")["budget_spent"] is True
    )


def test_a_bug_is_opaque_and_counts_as_spent_where_a_charge_may_have_happened(house: House) -> None:
    house.answerer.error = ValueError("row 7: Alice, 41")
    response = house.ask("POST", "/v1/queries", "analyst", json=QUERY)
    assert problem(response, 500, "answer-failed")["budget_spent"] is True
    assert "Alice" not in response.text


def test_a_failed_query_is_one_opaque_failure(house: House) -> None:
    house.answerer.sent = Sent(status="failed", body=None)
    problem(house.ask("POST", "/v1/queries", "analyst", json=QUERY), 500, "answer-failed")
    problem(house.ask("GET", "/v1/queries/q_1", "analyst"), 500, "answer-failed")
