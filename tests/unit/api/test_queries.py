"""A query's statuses, headers and shapes."""

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest

from service.core.errors import AnswerFailed
from tests.fixtures.bodies import ANSWER, ESTIMATE
from tests.fixtures.service import House, Sent

QUERY = {"dataset": "shop", "sql": "SELECT COUNT(*) FROM customers", "epsilon": "0.1"}


def test_a_new_answer_is_201_and_a_stored_one_200(house: House) -> None:
    first = house.ask("POST", "/v1/queries", "analyst", json=QUERY)
    assert (first.status_code, first.json()) == (201, ANSWER)
    house.answerer.sent = Sent(is_new=False)
    assert house.ask("POST", "/v1/queries", "analyst", json=QUERY).status_code == 200


def test_a_slow_query_is_202_with_a_place_to_look(house: House) -> None:
    house.answerer.sent = Sent(status="running", body=None)
    response = house.ask("POST", "/v1/queries", "analyst", json=QUERY)
    assert (response.status_code, response.headers["location"]) == (202, "/v1/queries/q_1")
    assert response.json() == {"id": "q_1", "status": "running", "dataset": "shop"}
    assert house.ask("GET", "/v1/queries/q_1", "analyst").status_code == 202


def test_the_stored_bytes_come_back_with_an_etag_and_304(house: House) -> None:
    first = house.ask("GET", "/v1/queries/q_1", "viewer")
    assert (first.status_code, first.content) == (200, house.answerer.sent.body)
    again = house.ask("GET", "/v1/queries/q_1", "viewer", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_viewer_can_not_spend(house: House) -> None:
    for method, path in (("POST", "/v1/queries"), ("POST", "/v1/estimates"), ("DELETE", "/v1/queries/q_1")):
        response = house.ask(method, path, "viewer", json=QUERY if method == "POST" else None)
        assert (response.status_code, response.json()["code"]) == (403, "not-allowed")
    assert house.answerer.asked == []


def test_the_answer_comes_in_every_offered_shape(house: House) -> None:
    csv = house.ask("GET", "/v1/queries/q_1", "viewer", headers={"Accept": "text/csv"})
    assert csv.text.splitlines() == ["country,n,n_low_95,n_high_95,n_clipped_share", "DE,12,2.0,22.0,0.02"]
    arrow = house.ask("GET", "/v1/queries/q_1?format=arrow", "viewer")
    assert pa.ipc.open_stream(arrow.content).read_all().column("n").to_pylist() == [12]
    flat = house.ask("GET", "/v1/queries/q_1?format=flat", "viewer")
    assert flat.json() == [{"country": "DE", "n": 12, "n_low_95": 2.0, "n_high_95": 22.0, "n_clipped_share": 0.02}]


def test_the_attempt_is_named_by_key_and_body_but_not_by_patience(house: House) -> None:
    for wait, epsilon in ((1, "0.1"), (2, "0.1"), (2, "0.2")):
        body = {**QUERY, "epsilon": epsilon, "wait": wait}
        house.ask("POST", "/v1/queries", "analyst", json=body, headers={"Idempotency-Key": "attempt-7"})
    (_, _, key, first, wait), (_, _, _, second, _), (_, _, _, third, _) = house.answerer.asked
    assert (key, wait) == ("attempt-7", 1)
    assert first == second != third


@pytest.mark.parametrize("key", ["", "x" * 201, "with space", "tab\t"])
def test_an_idempotency_key_is_short_and_printable(house: House, key: str) -> None:
    response = house.ask("POST", "/v1/queries", "analyst", json=QUERY, headers={"Idempotency-Key": key})
    assert response.status_code == 422


def test_bounds_and_accuracy_arrive_exactly(house: House) -> None:
    body = {
        "dataset": "shop",
        "sql": "SELECT COUNT(*) AS n FROM orders",
        "accuracy": {"output": "n", "half_width": 50, "confidence": 0.95},
        "delta": "1e-9",
        "bounds": {"rows_per_unit": 3, "columns": {"orders.amount": [0, "12.5"]}, "unit_sum": {"orders.amount": None}},
        "weights": {"n": 2},
    }
    assert house.ask("POST", "/v1/queries", "analyst", json=body).status_code == 201
    ask = house.answerer.asked[0][0]
    assert ask.loss is not None
    assert (ask.loss.kind, ask.loss.delta) == ("accuracy", 10**9)
    assert ask.bounds.columns["orders.amount"] == (0, 25 / 2)
    assert ask.bounds.unit_sum == {"orders.amount": None}


def test_states_are_followed_until_the_end(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.api.routes.queries.EVENTS_POLL_S", 0.01)
    states: Iterator[str] = iter(["queued", "running", "running", "answered"])
    monkeypatch.setattr(type(house.answerer), "find", lambda *_: Sent(status=next(states)))
    text = house.ask("GET", "/v1/queries/q_1/events", "analyst").text
    told = [json.loads(line.removeprefix("data: "))["status"] for line in text.splitlines() if line.startswith("data")]
    assert told == ["queued", "running", "answered"]


def test_a_failure_is_the_last_state_that_is_followed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.api.routes.queries.EVENTS_POLL_S", 0.01)
    states: Iterator[str] = iter(["running"])

    def find(*_: object) -> Sent:
        status = next(states, None)
        if status is None:
            raise AnswerFailed("the query could not be completed")
        return Sent(status=status)

    monkeypatch.setattr(type(house.answerer), "find", find)
    text = house.ask("GET", "/v1/queries/q_1/events", "analyst").text
    told = [json.loads(line.removeprefix("data: "))["status"] for line in text.splitlines() if line.startswith("data")]
    assert told == ["running", "failed"]


def test_estimates_take_one_question_or_many_and_fit_an_epsilon(house: House) -> None:
    assert house.ask("POST", "/v1/estimates", "analyst", json=QUERY).json() == ESTIMATE
    many = {"queries": [QUERY, QUERY, QUERY], "fit": {"epsilon": "0.1"}}
    assert len(house.ask("POST", "/v1/estimates", "analyst", json=many).json()["queries"]) == 3
    amounts = [ask.loss.amount for ask, *_ in house.answerer.asked[1:] if ask.loss]
    assert amounts == [33_333_333_333] * 3


def test_an_absent_query_is_not_found(house: House) -> None:
    assert house.ask("GET", "/v1/queries/q_2", "analyst").json()["code"] == "not-found"
    assert house.ask("DELETE", "/v1/queries/q_1", "analyst").status_code == 202
