"""Around every request: an id, a body limit before anything is parsed, security headers, one log line.

Plain ASGI, so that it also covers what never reaches a route. The log line has the route's pattern,
never the address as sent, and no duration: time may depend on private rows.
"""

import logging
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.middleware.metrics import Metrics
from service.api.problems import service_problem, unexpected
from service.core.errors import BodyTooLarge
from service.core.ids import new_id

log = logging.getLogger("halftone")

SECURITY_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"content-security-policy": (
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    b"cache-control": b"no-store",
}


def body_too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"a request body may have at most {limit} bytes")


class Envelope:
    """ASGI middleware around everything else."""

    def __init__(self, app: ASGIApp, *, body_bytes_max: int, metrics: Metrics | None = None) -> None:
        self._app = app
        self._metrics = metrics
        self._limit = body_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = new_id("r")
        scope.setdefault("state", {})["request_id"] = request_id
        status = 0

        async def framed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = self._headers(message.get("headers", []), request_id)
            await send(message)

        try:
            declared = dict(scope["headers"]).get(b"content-length", b"0")
            if declared.isdigit() and int(declared[:19]) > self._limit:
                await service_problem(body_too_large(self._limit))(scope, receive, framed)
            else:
                await self._app(scope, self._counted(receive), framed)
        except Exception as error:
            # The error handler has answered and logged already; only a failure outside it comes here first.
            if not status:
                await unexpected(scope["path"], request_id, error)(scope, receive, framed)
        self._note(scope, request_id, status)

    def _counted(self, receive: Receive) -> Receive:
        """A body that does not declare its length is refused as soon as it is too long."""
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._limit:
                raise HTTPException(413)
            return message

        return counted

    @staticmethod
    def _headers(headers: Any, request_id: str) -> list[tuple[bytes, bytes]]:
        given = [(name.lower(), value) for name, value in headers]
        names = {name for name, _ in given}
        added = [(name, value) for name, value in SECURITY_HEADERS.items() if name not in names]
        return [*given, *added, (b"x-request-id", request_id.encode())]

    def _note(self, scope: Scope, request_id: str, status: int) -> None:
        """Log and count, by the route's pattern: an address as sent may hold anything."""
        route = getattr(scope.get("route"), "path", None)
        state = scope.get("state", {})
        if self._metrics is not None:
            self._metrics.count(scope["method"], route or "other", status)
        log.info(
            "request",
            extra={
                "request_id": request_id,
                "method": scope["method"],
                "route": route,
                "status": status,
                "key": state.get("key_prefix"),
                "problem": state.get("problem_code"),
                "query_id": state.get("query_id"),
            },
        )
