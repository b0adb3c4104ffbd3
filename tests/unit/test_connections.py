"""Slow clients and too many of them, against a real server: deadlines, who gives way, what is said."""

import asyncio
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from service.cli import connections
from service.cli.connections import Door, guarded_protocol

HEAD = b"GET / HTTP/1.1\r\nhost: x\r\n"
LONG = 120 * 2**20  # more than the system takes in for somebody who does not read


hold_back = threading.Event()  # until it is set, /held is not answered


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Reads the whole body and answers with its length; other paths answer a lot, late, or before the body is there."""
    size, more = 0, scope["path"] != "/early"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    while scope["path"] == "/held" and not hold_back.is_set():
        await asyncio.sleep(0.01)
    body = b"x" * LONG if scope["path"] == "/long" else str(size).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def server(*, most: int = 100, each: int = 0) -> Iterator[tuple[int, Door]]:
    protocol = guarded_protocol(most=most, each=each)
    config = uvicorn.Config(app, port=0, http=protocol, lifespan="off", log_config=None, access_log=False)
    running = uvicorn.Server(config)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        while not running.started:
            time.sleep(0.01)
        try:
            yield listening.getsockname()[1], protocol.door
        finally:
            running.should_exit = True
            thread.join()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADER_SECONDS", "BODY_SECONDS", "TAKING_SECONDS"):
        monkeypatch.setattr(connections, name, 0.4)


def connect(port: int, address: str = "127.0.0.1", sent: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), 10, source_address=(address, 0))
    made.sendall(sent)
    return made


def rest(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    connection.close()
    return found


def answer(connection: socket.socket) -> bytes:
    """One whole answer of `app`, whose body is a single digit; the connection stays."""
    found = b""
    while not found.endswith(b"\r\n\r\n0"):
        part = connection.recv(65536)
        assert part, found
        found += part
    return found


def problem(response: bytes) -> tuple[int, str]:
    head, _, body = response.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head
    said = json.loads(body)
    assert head.startswith(b"HTTP/1.1 %d " % said["status"])
    assert said["budget_spent"] is False
    return said["status"], said["code"]


@pytest.mark.parametrize("sent", [b"", b"GET / HT", HEAD, HEAD + b"x-more: y\r\n", b"\r\n"])
def test_headers_that_do_not_come_in_time_end_the_connection(sent: bytes) -> None:
    with server() as (port, door):
        assert problem(rest(connect(port, sent=sent))) == (408, "request-too-slow")
        assert (door.count, door.waiting, door.by_address) == (0, {}, {})


def test_a_byte_now_and_then_does_not_buy_more_time() -> None:
    with server() as (port, _):
        slow, found = connect(port, sent=HEAD), b""
        slow.settimeout(0.05)
        for _ in range(200):
            try:
                slow.sendall(b"x-a: b\r\n")
                found = slow.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                break
            if found:
                break
        assert problem(found + rest(slow)) == (408, "request-too-slow")


def test_a_body_that_does_not_come_in_time_ends_the_connection() -> None:
    with server() as (port, door):
        sent = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n12345"
        assert problem(rest(connect(port, sent=sent))) == (408, "request-too-slow")
        assert door.count == 0


def test_a_kept_connection_has_the_same_deadlines_for_its_next_request() -> None:
    with server() as (port, door):
        kept = connect(port, sent=HEAD + b"\r\n")
        assert answer(kept).startswith(b"HTTP/1.1 200")
        time.sleep(0.6)
        kept.sendall(HEAD + b"\r\n")
        assert answer(kept).startswith(b"HTTP/1.1 200"), "waiting between requests is uvicorn's business"
        kept.sendall(b"\r\n")
        assert problem(rest(kept)) == (408, "request-too-slow")
        assert door.count == 0


def test_whoever_does_not_read_the_answer_is_let_go() -> None:
    with server() as (port, door):
        deaf = connect(port, sent=b"GET /long HTTP/1.1\r\nhost: x\r\n\r\n")
        until = time.monotonic() + 20
        while door.count and time.monotonic() < until:
            time.sleep(0.02)
        assert door.count == 0
        assert len(rest(deaf)) < LONG


def test_where_there_are_too_many_the_longest_waiting_gives_way() -> None:
    with server(most=3) as (port, door):
        waiting = [connect(port, sent=HEAD) for _ in range(3)]
        while len(door.waiting) < 3:
            time.sleep(0.01)
        newcomer = connect(port, sent=HEAD + b"connection: close\r\n\r\n")
        assert rest(newcomer).startswith(b"HTTP/1.1 200")
        assert problem(rest(waiting[0])) == (503, "too-many-connections")
        assert [problem(rest(each)) for each in waiting[1:]] == [(408, "request-too-slow")] * 2


@pytest.mark.parametrize("path", [b"/", b"/early"])
def test_headers_without_their_body_are_no_whole_request_and_give_way(
    monkeypatch: pytest.MonkeyPatch, path: bytes
) -> None:
    """Also those that were answered before their body came, who are told nothing more."""
    monkeypatch.setattr(connections, "BODY_SECONDS", 30.0)
    with server(most=3) as (port, door):
        sent = b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n" % path
        waiting = [connect(port, sent=sent) for _ in range(3)]
        if path == b"/early":
            assert all(answer(each).startswith(b"HTTP/1.1 200") for each in waiting)
        until = time.monotonic() + 5
        while len(door.waiting) < 3 and time.monotonic() < until:
            time.sleep(0.01)
        newcomers = []
        for gone in waiting:
            newcomers.append(connect(port, sent=HEAD + b"\r\n"))
            assert answer(newcomers[-1]).startswith(b"HTTP/1.1 200")
            said = rest(gone)
            assert said == b"" if path == b"/early" else problem(said) == (503, "too-many-connections")
        assert len(door.waiting) == door.count == len(newcomers), "their connections are kept"


def test_a_request_behind_another_is_not_let_go_while_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    monkeypatch.setattr(sys.modules[__name__], "hold_back", answers)
    with server(most=1) as (port, _):
        both = connect(port, sent=HEAD + b"\r\nGET /held HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert answer(both).startswith(b"HTTP/1.1 200")
        turned_away = rest(connect(port, sent=HEAD + b"connection: close\r\n\r\n"))
        answers.set()
        assert problem(turned_away) == (503, "too-many-connections")
        assert rest(both).startswith(b"HTTP/1.1 200")


def test_one_address_takes_places_from_itself_only() -> None:
    with server(most=100, each=2) as (port, door):
        other = connect(port, "127.0.0.2", HEAD)
        mine = [connect(port, sent=HEAD) for _ in range(3)]
        assert problem(rest(mine[0])) == (503, "too-many-connections")
        assert door.by_address == {"127.0.0.1": 2, "127.0.0.2": 1}
        other.sendall(b"connection: close\r\n\r\n")
        assert rest(other).startswith(b"HTTP/1.1 200")
        for each in mine[1:]:
            rest(each)


def test_connections_that_are_being_answered_stay_and_the_new_one_is_turned_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(sys.modules[__name__], "hold_back", answers)
    with server(most=2) as (port, door):
        sent = b"POST /held HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2\r\n\r\n12"
        asked = [connect(port, sent=sent) for _ in range(2)]
        while door.waiting or door.count < 2:
            time.sleep(0.01)
        assert problem(rest(connect(port))) == (503, "too-many-connections")
        answers.set()
        assert [rest(each)[-5:] for each in asked] == [b"\r\n\r\n2"] * 2
        assert rest(connect(port, sent=HEAD + b"connection: close\r\n\r\n")).startswith(b"HTTP/1.1 200")


def test_a_kept_connection_that_gives_way_is_told_nothing() -> None:
    with server(most=1) as (port, _):
        kept = connect(port, sent=HEAD + b"\r\n")
        assert answer(kept).startswith(b"HTTP/1.1 200")
        assert rest(connect(port, sent=HEAD + b"connection: close\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert rest(kept) == b""
