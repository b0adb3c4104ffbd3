"""OpenTelemetry traces of requests: an extra, switched on by HALFTONE_TRACES.

A span has the route's pattern, the method, the status and the request id; never the address as sent,
never SQL, never a key. Its duration may depend on private rows, so traces are for the operator alone
(docs/operating.md). Exporters are configured by the standard OTEL_* variables.
"""

from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send


def exporting_provider() -> Any:
    """A provider that sends spans in batches to where OTEL_EXPORTER_OTLP_ENDPOINT says."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": "halftone"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class Traces:
    """ASGI middleware: one span per request. `provider` is an OpenTelemetry TracerProvider."""

    def __init__(self, app: ASGIApp, *, provider: Any) -> None:
        self._app = app
        self._tracer = provider.get_tracer("halftone")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        quiet = {"record_exception": False, "set_status_on_exception": False}  # their texts may hold anything
        with self._tracer.start_as_current_span("request", **quiet) as span:

            async def noting(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                await send(message)

            try:
                await self._app(scope, receive, noting)
            finally:
                route = getattr(scope.get("route"), "path", "other")
                span.update_name(f"{scope['method']} {route}")
                span.set_attribute("http.request.method", scope["method"])
                span.set_attribute("http.route", route)
                span.set_attribute("halftone.request_id", scope.get("state", {}).get("request_id", ""))
