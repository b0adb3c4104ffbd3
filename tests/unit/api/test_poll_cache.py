"""Polls are answered from memory for a moment, for the same key and form only."""

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from service.api.middleware.poll_cache import FRESH_S, Polls


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def served() -> tuple[TestClient, list[str], Clock]:
    calls: list[str] = []
    clock = Clock()

    def answer(request: Request) -> Response:
        calls.append(request.headers.get("authorization", ""))
        if request.path_params["name"] == "absent":
            return Response("no", status_code=404)
        return Response(f"body {len(calls)}", headers={"ETag": f'"{len(calls)}"'})

    app = Starlette(routes=[Route("/v1/panels/{name}", answer), Route("/v1/other/{name}", answer)])
    return TestClient(Polls(app, clock=clock)), calls, clock


Served = tuple[TestClient, list[str], Clock]


def get(client: TestClient, path: str, **headers: str) -> Any:
    return client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})


def test_the_same_poll_within_a_moment_does_not_reach_the_route(served: Served) -> None:
    client, calls, clock = served
    first = get(client, "/v1/panels/sales", authorization="Bearer a")
    again = get(client, "/v1/panels/sales", authorization="Bearer a")
    assert (first.text, again.text, len(calls)) == ("body 1", "body 1", 1)
    clock.now += FRESH_S + 0.01
    assert get(client, "/v1/panels/sales", authorization="Bearer a").text == "body 2"


def test_another_key_never_gets_the_kept_response(served: Served) -> None:
    client, calls, _ = served
    get(client, "/v1/panels/sales", authorization="Bearer a")
    get(client, "/v1/panels/sales", authorization="Bearer b")
    get(client, "/v1/panels/sales")
    assert calls == ["Bearer a", "Bearer b", ""]


def test_a_known_etag_gets_304_without_a_body(served: Served) -> None:
    client, calls, _ = served
    get(client, "/v1/panels/sales", authorization="Bearer a")
    again = get(client, "/v1/panels/sales", authorization="Bearer a", if_none_match='"1"')
    assert (again.status_code, again.content, again.headers["etag"], len(calls)) == (304, b"", '"1"', 1)


@pytest.mark.parametrize("path", ["/v1/panels/absent", "/v1/other/sales", "/v1/panels/sales/x"])
def test_errors_and_other_addresses_are_never_kept(served: Served, path: str) -> None:
    client, calls, _ = served
    get(client, path, authorization="Bearer a")
    before = len(calls)
    get(client, path, authorization="Bearer a")
    assert len(calls) == before * 2
