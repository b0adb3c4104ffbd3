"""What the service and processes of its own say to each other: pickled values with their length before them.

The one module that unpickles. Both ends are this program, the channel is a socket pair that nobody else holds, and
what comes back was made by our own code from an analyst's text: that text itself is only ever a string in it. A plan
is a tree of a hundred classes, half of them sqlglot's; a codec of our own for it would be code without a second use.
"""

import io
import pickle
import socket
import struct
import sys
import time
from typing import Any

from sqlglot import exp

HEAD = struct.Struct(">Q")
BYTES_MAX = 4 * 2**30
RECURSION = 5_000  # packing recurses several times per level of a tree, where planning did once


class WireLost(Exception):
    """The other end is gone, or has said what can not be."""


class _Pickler(pickle.Pickler):
    """A tree remembers its own hash, and hashes of texts are another in every process."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, exp.Expr):
            value._hash = None
        return NotImplemented


def packed_message(value: object) -> bytes:
    """The value, with all hashes that its trees remember forgotten."""
    held = io.BytesIO()
    _Pickler(held, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return held.getvalue()


def packed_deep(value: object) -> bytes:
    """The same of a value whose trees may be as deep as planning allows."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, RECURSION))
    try:
        return packed_message(value)
    finally:
        sys.setrecursionlimit(limit)


def unpacked_message(message: bytes) -> Any:
    return pickle.loads(message)  # noqa: S301  (from our own process, over a socket pair; see the top)


def send_message(channel: socket.socket, message: bytes) -> None:
    try:
        channel.sendall(HEAD.pack(len(message)) + message)
    except OSError:
        raise WireLost from None


def receive_message(channel: socket.socket, deadline: float | None = None) -> bytes:
    """The next message. `deadline` is on time.monotonic(); TimeoutError when it has passed."""
    (size,) = HEAD.unpack(_exactly(channel, HEAD.size, deadline))
    if size > BYTES_MAX:
        raise WireLost
    return _exactly(channel, size, deadline)


def _exactly(channel: socket.socket, size: int, deadline: float | None) -> bytes:
    parts = []
    while size:
        channel.settimeout(None if deadline is None else max(0.001, deadline - time.monotonic()))
        try:
            part = channel.recv(min(size, 2**20))
        except TimeoutError:
            raise
        except OSError:
            raise WireLost from None
        if not part:
            raise WireLost
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
