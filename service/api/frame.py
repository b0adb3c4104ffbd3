"""Around every request: an id, a body limit before anything is parsed, security headers, one log line.

Plain ASGI, so that it also covers what never reaches a route. The log line has the route's pattern,
never the address as sent, and no duration: time may depend on private rows.
"""

import logging
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


class _TooLarge(Exception):
    pass


class Frame:
    def __init__(self, app: ASGIApp, *, body_bytes_max: int) -> None:
        self._app = app
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
            await self._app(scope, self._limited(scope, receive), framed)
        except _TooLarge:
            if not status:
                detail = f"a request body may have at most {self._limit} bytes"
                await service_problem(BodyTooLarge(detail))(scope, receive, framed)
        except Exception as error:
            answer = unexpected(scope["path"], request_id, error)
            if not status:
                await answer(scope, receive, framed)
        self._log(scope, request_id, status)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        """Refuse by the declared length at once, and by the counted one while it arrives."""
        headers = dict(scope["headers"])
        declared = headers.get(b"content-length", b"0")
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            if declared.isdigit() and int(declared[:19]) > self._limit:
                raise _TooLarge
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._limit:
                raise _TooLarge
            return message

        return counted

    @staticmethod
    def _headers(headers: Any, request_id: str) -> list[tuple[bytes, bytes]]:
        given = [(name.lower(), value) for name, value in headers]
        names = {name for name, _ in given}
        added = [(name, value) for name, value in SECURITY_HEADERS.items() if name not in names]
        return [*given, *added, (b"x-request-id", request_id.encode())]

    @staticmethod
    def _log(scope: Scope, request_id: str, status: int) -> None:
        route = scope.get("route")
        state = scope.get("state", {})
        log.info(
            "request",
            extra={
                "request_id": request_id,
                "method": scope["method"],
                "route": getattr(route, "path", None),
                "status": status,
                "key": state.get("key_prefix"),
                "problem": state.get("problem_code"),
                "query_id": state.get("query_id"),
            },
        )
