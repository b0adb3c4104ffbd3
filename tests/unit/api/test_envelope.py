"""Around every request: headers, ids, limits, logs, metrics."""

import html
import io
import json
import logging
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from service.api.middleware.limits import Buckets, Limiter
from service.api.middleware.logs import JsonLines
from service.api.middleware.metrics import Metrics
from service.catalog.keys import NewKey
from service.core.errors import RateLimited
from tests.fixtures.process import free_port
from tests.fixtures.service import House, open_house

QUERY = {"dataset": "shop", "sql": "SELECT COUNT(*) FROM customers WHERE name = 'Alice Canary'", "epsilon": "0.1"}


def test_every_response_has_an_id_and_security_headers(house: House) -> None:
    for response in (house.client.get("/healthz"), house.client.get("/nowhere"), house.ask("GET", "/v1/datasets")):
        assert response.headers["x-request-id"].startswith("r_")
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert response.headers["x-frame-options"] == "DENY"
        assert "server" not in response.headers
        assert "set-cookie" not in response.headers


def test_other_origins_are_not_let_in_unless_named(house: House, tmp_path: Path) -> None:
    asking = {"Origin": "https://evil.example", "Access-Control-Request-Method": "GET"}
    assert "access-control-allow-origin" not in house.client.options("/v1/datasets", headers=asking).headers
    open_one = open_house(tmp_path, cors_origins=("https://board.example",))
    try:
        allowed = open_one.client.get("/healthz", headers={"Origin": "https://board.example"})
        assert allowed.headers["access-control-allow-origin"] == "https://board.example"
        refused = open_one.client.get("/healthz", headers={"Origin": "https://board.example.evil.example"})
        assert "access-control-allow-origin" not in refused.headers
    finally:
        open_one.close()


def test_too_many_requests_are_told_when_to_come_back(tmp_path: Path) -> None:
    house = open_house(tmp_path, requests_per_minute=8)
    try:
        statuses = [house.ask("GET", "/v1/datasets").status_code for _ in range(4)]
        assert statuses == [200, 200, 429, 429]
        refused = house.ask("GET", "/v1/datasets")
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["code"] == "rate-limited"
        assert house.ask("GET", "/v1/datasets", "viewer").status_code == 200, "limits are per person"
    finally:
        house.close()


def test_keys_of_one_owner_share_their_limits(tmp_path: Path) -> None:
    house = open_house(tmp_path, requests_per_minute=8)
    try:
        for name in ("first", "second"):
            wish = NewKey(name, "analyst", ("shop",), owner="ann")
            house.keys[name] = house.books.administration.create_key(wish, actor="test")[1]
        statuses = [house.ask("GET", "/v1/datasets", name).status_code for name in ("first", "second", "first")]
        assert statuses == [200, 200, 429]
        lists = {"queries": [QUERY] * 2}
        assert house.ask("POST", "/v1/estimates", "second", json=lists).status_code == 429
    finally:
        house.close()


def test_a_bucket_fills_with_time_and_not_beyond_its_size() -> None:
    now = 0.0
    bucket = Buckets(60, lambda: now)
    for _ in range(15):
        bucket.take("a")
    with pytest.raises(RateLimited) as refused:
        bucket.take("a")
    assert refused.value.extra["retry_after_s"] == 2
    now = 1.0
    bucket.take("a")
    now = 1e6
    for _ in range(15):
        bucket.take("a")
    with pytest.raises(RateLimited):
        bucket.take("a")


def test_a_person_may_have_so_many_requests_running_and_no_more() -> None:
    limiter = Limiter(per_minute=1000, at_once=1)
    with limiter.admit("a"):
        with pytest.raises(RateLimited), limiter.admit("a"):
            pass
        with limiter.admit("b"):
            pass
    with limiter.admit("a"):
        pass


def test_a_list_counts_as_that_many_requests() -> None:
    now = 0.0
    limiter = Limiter(per_minute=240, at_once=8, clock=lambda: now)  # 60 at once
    for _ in range(3):
        with limiter.admit("a"), limiter.admit_list("a", 20):
            pass
    with pytest.raises(RateLimited), limiter.admit("a"):
        pass
    with limiter.admit("b"), limiter.admit_list("b", 100):
        pass
    now = 10.0  # 40 more, which were lent
    with pytest.raises(RateLimited), limiter.admit("b"):
        pass
    now = 11.0
    with limiter.admit("b"):
        pass


def test_a_long_list_takes_half_of_a_persons_places_and_gives_them_back() -> None:
    limiter = Limiter(per_minute=100_000, at_once=8)
    for _ in range(2):
        with limiter.admit("a"), limiter.admit_list("a", 16), limiter.admit("a"), limiter.admit_list("a", 16):
            with pytest.raises(RateLimited, match="8 requests running"), limiter.admit("a"):
                pass
            with limiter.admit("b"), limiter.admit_list("b", 3):
                pass
        with ExitStack() as running:
            for _ in range(6):
                running.enter_context(limiter.admit("a"))
            with pytest.raises(RateLimited), limiter.admit_list("a", 16):
                pass
            with limiter.admit_list("a", 3):
                pass


def test_a_list_of_estimates_is_counted_by_its_questions(tmp_path: Path) -> None:
    house = open_house(tmp_path, requests_per_minute=80)  # 20 at once
    try:
        body = {"queries": [QUERY] * 9}
        assert house.ask("POST", "/v1/estimates", "analyst", json=body).status_code == 200
        assert house.ask("POST", "/v1/estimates", "analyst", json=body).status_code == 200
        assert house.ask("POST", "/v1/estimates", "analyst", json=body).status_code == 429
        assert house.ask("POST", "/v1/estimates", "analyst", json=QUERY).status_code == 200
    finally:
        house.close()


def test_logs_are_json_with_the_route_and_without_what_was_sent(house: House) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    log = logging.getLogger("halftone")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        house.ask("POST", "/v1/queries", "analyst", json=QUERY)
        house.answerer.error = ValueError("Alice Canary is 41")
        house.ask("POST", "/v1/queries", "analyst", json=QUERY)
        house.client.get("/Alice%20Canary?x=Alice")
    finally:
        log.removeHandler(handler)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["request", "bug", "request", "request"]
    assert (lines[0]["route"], lines[0]["status"], lines[0]["query_id"]) == ("/v1/queries", 201, "q_1")
    assert lines[0]["key"] == house.keys["analyst"].split("_")[1]
    assert lines[1]["request_id"] == lines[2]["request_id"]
    text = stream.getvalue()
    assert "Canary" not in text
    assert "Alice" not in text
    assert house.keys["analyst"] not in text
    assert "duration" not in text


def test_metrics_are_off_by_default_and_name_no_query(house: House, tmp_path: Path) -> None:
    assert house.ask("GET", "/metrics").status_code == 404
    counting = open_house(tmp_path, metrics=True)
    try:
        counting.ask("GET", "/v1/queries/q_1", "analyst")
        counting.client.get("/somewhere/else")
        text = counting.ask("GET", "/metrics").text
        assert 'route="/v1/queries/{query_id}",status="200"} 1' in text
        assert 'route="other",status="404"} 1' in text
        assert "q_1" not in text
        assert counting.ask("GET", "/metrics", "analyst").status_code == 403
    finally:
        counting.close()


def test_metrics_can_have_a_port_of_their_own() -> None:
    metrics = Metrics()
    metrics.count("GET", "/healthz", 200)
    port = free_port()
    stop = metrics.serve(port)
    try:
        assert 'route="/healthz",status="200"} 1' in httpx.get(f"http://127.0.0.1:{port}/metrics").text
        assert httpx.get(f"http://127.0.0.1:{port}/other").status_code == 404
    finally:
        stop()


def test_the_docs_page_has_commands_to_paste_shapes_and_no_script(house: House) -> None:
    page = house.client.get("/docs")
    assert page.status_code == 200
    assert "<script" not in page.text
    assert "/v1/queries" in page.text
    assert "Authorization: Bearer $KEY" in page.text
    assert '"like_your_last": integer | null' in html.unescape(page.text)
    assert house.client.get("/docs/style.css").headers["content-type"].startswith("text/css")


def test_readiness_names_what_is_missing(house: House) -> None:
    assert house.client.get("/healthz").json() == {"status": "ok"}
    assert house.client.get("/readyz").json() == {"status": "ready", "missing": []}
