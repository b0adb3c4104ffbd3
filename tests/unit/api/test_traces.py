"""Traces name routes and statuses, and nothing that was sent."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from service.api.middleware.traces import Traces
from service.settings import SettingsRefused, read_settings


def test_a_span_holds_the_pattern_of_the_route_and_no_address_query_or_key() -> None:
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))

    def answer(request: Request) -> Response:
        return Response("ok", status_code=201)

    class Routed:
        """Leaves the matched route in the scope, as FastAPI does."""

        def __init__(self, app: Starlette) -> None:
            self.app = app

        async def __call__(self, scope, receive, send) -> None:  # type: ignore[no-untyped-def]
            scope["route"] = self.app.routes[0]
            await self.app(scope, receive, send)

    app = Traces(Routed(Starlette(routes=[Route("/v1/panels/{panel}", answer)])), provider=provider)
    TestClient(app).get("/v1/panels/canary?text=canary", headers={"Authorization": "Bearer canary"})
    (span,) = kept.get_finished_spans()
    assert span.name == "GET /v1/panels/{panel}"
    assert span.attributes is not None
    assert span.attributes["http.response.status_code"] == 201
    assert "canary" not in span.to_json()


def test_a_request_that_raises_leaves_no_message_in_its_span() -> None:
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))

    async def failing(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        raise RuntimeError("canary")

    with pytest.raises(RuntimeError):
        TestClient(Traces(failing, provider=provider)).get("/")
    (span,) = kept.get_finished_spans()
    assert "canary" not in span.to_json()


def test_traces_without_their_packages_are_refused_at_start_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.settings.TRACE_PACKAGES", ("no_such_package",))
    with pytest.raises(SettingsRefused, match=r"halftone\[traces\]"):
        read_settings(traces=True)
