"""Polls of stored answers and panels, served from memory.

A wall of dashboards asks the same thing with the same key again and again. Within FRESH_S of an answer
the same request gets the same bytes (or 304) without a route, a thread or the store. What is kept is
one response per (key, address, Accept); a revoked key is out after at most FRESH_S. Released bytes only.
"""

import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

FRESH_S = 1.0
KEPT_BYTES = 64 * 1024 * 1024
OVERHEAD_BYTES = 2048  # headers and names of one kept response
LARGEST_BYTES = 1024 * 1024
POLLED = re.compile(r"/v1/(panels|queries)/[A-Za-z0-9_]{1,63}")

PollKey = tuple[bytes, str, bytes, bytes]


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """One response as it left, and until when it may leave again."""

    until: float
    headers: list[tuple[bytes, bytes]]
    body: bytes
    etag: bytes
    route: Any
    key_prefix: str | None


class Polls:
    """ASGI middleware: a bounded memory of responses in front of the routes."""

    def __init__(self, app: ASGIApp, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._clock = clock
        self._kept: OrderedDict[PollKey, KeptResponse] = OrderedDict()
        self._bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or not POLLED.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        wanted = (headers.get(b"authorization", b""), scope["path"], scope["query_string"], headers.get(b"accept", b""))
        kept = self._kept.get(wanted)
        if kept is not None and kept.until > self._clock():
            scope["route"] = kept.route
            scope.setdefault("state", {})["key_prefix"] = kept.key_prefix
            await _send(kept, headers.get(b"if-none-match", b""), send)
            return
        await self._app(scope, receive, self._remembering(wanted, scope, send))

    def _remembering(self, wanted: PollKey, scope: Scope, send: Send) -> Send:
        """Pass a response on, and keep a copy if it is a whole one with an ETag."""
        start: Message | None = None
        body = bytearray()

        async def passing(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
            elif start is not None and message["type"] == "http.response.body":
                if len(body) <= LARGEST_BYTES:
                    body.extend(message.get("body", b""))
                if not message.get("more_body", False):
                    self._keep(wanted, scope, start, bytes(body))
            await send(message)

        return passing

    def _keep(self, wanted: PollKey, scope: Scope, start: Message, body: bytes) -> None:
        headers = list(start.get("headers", []))
        etag = dict(headers).get(b"etag")
        if start["status"] != 200 or etag is None or len(body) > LARGEST_BYTES:
            return
        old = self._kept.pop(wanted, None)
        self._bytes += _size(body) - (_size(old.body) if old is not None else 0)
        prefix = scope.get("state", {}).get("key_prefix")
        self._kept[wanted] = KeptResponse(self._clock() + FRESH_S, headers, body, etag, scope.get("route"), prefix)
        while self._bytes > KEPT_BYTES:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= _size(dropped.body)


def _size(body: bytes) -> int:
    return len(body) + OVERHEAD_BYTES


async def _send(kept: KeptResponse, if_none_match: bytes, send: Send) -> None:
    if kept.etag in if_none_match:
        headers = [(name, value) for name, value in kept.headers if name not in (b"content-length", b"content-type")]
        await send({"type": "http.response.start", "status": 304, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
        return
    await send({"type": "http.response.start", "status": 200, "headers": list(kept.headers)})
    await send({"type": "http.response.body", "body": kept.body})
