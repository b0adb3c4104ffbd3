"""Connections that wait: deadlines for slow clients, and a limit to how many there are, per address and in all.

uvicorn waits for ever for the rest of a request; whoever opens enough of them and says nothing more would shut
everybody out. So whoever sends headers or a body too slowly, or does not take an answer, is let go. Where there are
too many connections, the one that has waited longest without a whole request gives way; only if all are being
answered is the new one turned away.
"""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_SECONDS = 10.0  # for all headers of one request, from the first byte or the connection on
BODY_SECONDS = 30.0  # for the whole body, once the headers are there
TAKING_SECONDS = 30.0  # for a client to take some of an answer that it does not read


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a connection ends, as its client is told."""

    status: int
    phrase: str
    code: str
    title: str
    detail: str


SLOW = Reason(
    408,
    "Request Timeout",
    "request-too-slow",
    "The request did not come in time",
    "send headers and body without pauses",
)
FULL = Reason(
    503, "Service Unavailable", "too-many-connections", "There are too many connections", "close some, or try again"
)


@dataclass(slots=True)
class Door:
    """Who is connected. `most` in all, `each` from one address (0: no such limit, for a service behind a proxy)."""

    most: int
    each: int
    by_address: Counter[str] = field(default_factory=Counter)
    waiting: "dict[GuardedProtocol, None]" = field(default_factory=dict)  # without a whole request; longest first
    count: int = 0

    def has_room(self, address: str) -> bool:
        """Make room if need be: a connection that waits gives way, of the same address where that is too many."""
        if self.each and self.by_address[address] >= self.each:
            return self._give_way(address)
        return self.count < self.most or self._give_way(None)

    def enter(self, address: str) -> None:
        self.count += 1
        self.by_address[address] += 1

    def leave(self, address: str) -> None:
        self.count -= 1
        self.by_address[address] -= 1
        if not self.by_address[address]:
            del self.by_address[address]

    def _give_way(self, address: str | None) -> bool:
        for connection in self.waiting:
            if address is None or connection.address == address:
                connection.turn_away(FULL)
                return True
        return False


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a clock beside it. `door` is shared by all connections of a server."""

    door: Door

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.address = ""
        self._inside = False
        self._in_body = False
        self._clock: asyncio.TimerHandle | None = None
        self._taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if not self.door.has_room(self.address):
            self.turn_away(FULL)
            return
        self._inside = True
        self.door.enter(self.address)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        if self._taking is not None:
            self._taking.cancel()
        self._go()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return  # turned away: what was still on its way is nobody's
        answering = self.cycle is not None and not self.cycle.response_complete
        if self._clock is None and not answering:
            self._await_headers()  # the next request on a connection that was kept
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """The application begins with it, and the connection still waits: headers alone cost nobody anything."""
        self._start_clock(BODY_SECONDS)
        self._in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stop_clock()
        self._in_body = False
        super().on_message_complete()
        if not self._waits:
            self.door.waiting.pop(self, None)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._inside and self._waits and not self.transport.is_closing():
            self.door.waiting[self] = None

    @property
    def _waits(self) -> bool:
        """Nothing that was wholly asked is still to be answered. `cycle` is the newest request; whatever stands before
        it in the pipeline is whole."""
        cycle = self.cycle
        return not self.pipeline and (cycle is None or cycle.response_complete or self._in_body)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._taking = self._taking or self.loop.call_later(TAKING_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def turn_away(self, why: Reason) -> None:
        """Close, and say why where somebody waits for a response and none has begun."""
        cycle = self.cycle
        answered = cycle is not None and cycle.response_complete
        idle = answered and (self._clock is None or self._in_body)  # the rest of a body that was answered early
        begun = bool(self.pipeline) or (cycle is not None and cycle.response_started and not cycle.response_complete)
        self._stop_clock()
        self._go()
        if self.transport.is_closing():
            return
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # whatever is still made of the request is not sent behind this
            cycle.message_event.set()
        if not idle and not begun:
            self.transport.write(_problem(why))
        self.transport.close()

    def _await_headers(self) -> None:
        self.door.waiting.pop(self, None)
        self.door.waiting[self] = None
        self._start_clock(HEADER_SECONDS)

    def _start_clock(self, seconds: float) -> None:
        self._stop_clock()
        self._clock = self.loop.call_later(seconds, self.turn_away, SLOW)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _go(self) -> None:
        self.door.waiting.pop(self, None)
        if self._inside:
            self._inside = False
            self.door.leave(self.address)


def guarded_protocol(*, most: int, each: int) -> type[GuardedProtocol]:
    """A protocol for one server, with a door of its own."""

    class Guarded(GuardedProtocol):
        door = Door(most, each)

    return Guarded


def _problem(why: Reason) -> bytes:
    """A whole response, in the form that every problem has; the connection ends with it."""
    body = json.dumps(
        {
            "type": f"urn:halftone:problem:{why.code}",
            "title": why.title,
            "status": why.status,
            "detail": why.detail,
            "code": why.code,
            "budget_spent": False,
        }
    )
    again = "retry-after: 1\r\n" if why.status == 503 else ""
    head = (
        f"HTTP/1.1 {why.status} {why.phrase}\r\ncontent-type: application/problem+json\r\n"
        f"content-length: {len(body)}\r\n{again}cache-control: no-store\r\nconnection: close\r\n\r\n"
    )
    return (head + body).encode("ascii")
