"""Processes that open exact values and add noise, so that the one that answers HTTP never holds any.

Each carries out one order at a time (service/walk/releasing.py) over the socket of an engine child that it is handed.
Exact integers go from the caged child straight to it; what goes on to the service is released already.

What they say to the service is pickled (service/walk/process_wire.py); from engine children, which may have been
taken over by a hostile file, they read frames alone (engine/duckdb).
"""

import contextlib
import importlib
import os
import select
import signal
import socket
import sys
import threading
import time
from fractions import Fraction

from service.engine.base import HandedSlot, Slot
from service.privacy.noise.sampling import SecureNoise
from service.walk.helper_process import HelperProcess
from service.walk.process_wire import (
    WireLost,
    packed_deep,
    packed_message,
    receive_message,
    send_message,
    unpacked_message,
)
from service.walk.releasing import Failed, Message, ReleaseOrder, Selected, carry_out

MODULE = "service.walk.release_process"
NICENESS = 2  # as engine processes: behind the one that answers everybody


class ReleaseProcess(HelperProcess):
    """One process, and the service's end of the socket to it."""

    def __init__(self, loads: tuple[str, ...]) -> None:
        super().__init__(MODULE, *loads)

    def send(self, order: ReleaseOrder, handed: HandedSlot, files: tuple[int, ...]) -> None:
        """The order goes with the open files of its slot: they are attached to a message of one byte before it."""
        body = packed_deep((order, handed))
        try:
            self.wait_ready()
            self.channel.settimeout(None)
            socket.send_fds(self.channel, [b"!"], list(files))
        except (OSError, TimeoutError):
            raise WireLost from None
        send_message(self.channel, body)

    def readable(self, seconds: float) -> bool:
        """Poll, because select refuses descriptors from 1024 on, and a service with many connections has such."""
        waiting = select.poll()
        waiting.register(self.channel, select.POLLIN)
        return bool(waiting.poll(max(0.0, seconds) * 1000))

    def receive(self) -> Message:
        """Blocks: what is to be read is being written, and its length depends on released values alone."""
        message: Message = unpacked_message(receive_message(self.channel))
        return message


class ProcessRelease:
    """An order in a process of its own. When the last message was read, the process goes back to its pool."""

    def __init__(self, pool: "ReleaseProcesses", process: ReleaseProcess) -> None:
        self._pool = pool
        self._process: ReleaseProcess | None = process
        self.begun = time.monotonic()

    def there_at(self, moment: float) -> Message | None:
        return self.wait(moment)

    def wait(self, until: float) -> Message | None:
        process = self._process
        assert process is not None, "an order has one last message"
        if not process.readable(until - time.monotonic()):
            return None
        try:
            message = process.receive()
        except WireLost:
            self.stop()
            return Failed("died")
        if not isinstance(message, Selected):
            self._process = None
            self._pool.give(process)
        return message

    def stop(self) -> None:
        """In mid-order there is no other way than to end the process: it may be computing."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            self._pool.replace()


class ReleaseProcesses:
    """Processes kept warm, one for every order that may be under way at once: an order never waits for another."""

    def __init__(self, loads: tuple[str, ...]) -> None:
        """`loads` are the modules of the engine whose slots are handed over: read before the first order comes."""
        self._loads = loads
        self._lock = threading.Lock()
        self._closed = False
        self._idle: list[ReleaseProcess] = []

    def warm(self, ready: int) -> None:
        """Have some ready before the first order comes: an interpreter takes most of a second."""
        for process in [ReleaseProcess(self._loads) for _ in range(ready)]:
            try:
                process.wait_ready()
            except (WireLost, TimeoutError):
                process.kill()  # or it would be there for as long as the service, and of no use
            else:
                self.give(process)

    def replace(self) -> None:
        """One was ended: another is started for the next order, and is ready by then."""
        with self._lock:
            if self._closed:
                return
        with contextlib.suppress(OSError):
            self.give(ReleaseProcess(self._loads))

    def start(self, order: ReleaseOrder, slot: Slot) -> ProcessRelease:
        handed, files = slot.handed_over()
        with self._lock:
            process = self._idle.pop(0) if self._idle else None  # one that was just started comes last
        try:
            return self._started(process or ReleaseProcess(self._loads), order, handed, files)
        except WireLost:  # it died while nobody needed it
            return self._started(ReleaseProcess(self._loads), order, handed, files)

    def _started(
        self, process: ReleaseProcess, order: ReleaseOrder, handed: HandedSlot, files: tuple[int, ...]
    ) -> ProcessRelease:
        try:
            process.send(order, handed, files)
        except BaseException:
            process.kill()
            raise
        return ProcessRelease(self, process)

    def give(self, process: ReleaseProcess) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(process)
                return
        process.kill()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for process in idle:
            process.kill()


# --- Inside the process ----------------------------------------------------------------------------


def main() -> None:
    """Arguments: the number of the socket, and modules to load. One order after the other, until the service is gone.

    Whatever is slow once is done before it is ready: the first order has no more time than any other.
    """
    channel = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        importlib.import_module(module)
    noise = SecureNoise()
    noise.discrete_laplace(Fraction(3), 8)
    noise.discrete_gaussian(Fraction(3), 8)
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which ends us
    with contextlib.suppress(WireLost, OSError):
        send_message(channel, packed_message("ready"))
        while _serve(channel):
            pass


def _serve(channel: socket.socket) -> bool:
    """One order; False when the service has closed its end."""
    mark, files, _, _ = socket.recv_fds(channel, 1, 8)
    if not mark:
        return False
    order, handed = unpacked_message(receive_message(channel))
    slot = handed.taken(tuple(files))
    try:
        carry_out(order, slot, lambda message: send_message(channel, packed_message(message)))
    finally:
        slot.spoil()  # our end alone: the child itself belongs to the service
    return True
