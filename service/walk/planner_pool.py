"""Planning in a few processes beside the one that answers, so that no question holds its interpreter.

Analysts take turns; one of them never holds all of the processes. A question has a budget of processor time inside
(service/walk/planner_process.py) and a deadline here, at which its process is killed and replaced. All of this comes
before any charge and depends on requests and declarations only.

A question that was planned before, under the same declarations and terms, is not planned again: planning is a pure
function (invariant P3), and what is kept is its result by the hash of the very bytes that it was made from. Only small
results are kept, and up to so many bytes in all. Large ones take long to read, so they are planned again, and every
result that is not kept is read within its caller's turn: who asks for large plans again and again holds one place.
"""

import hashlib
import logging
import threading
import time
from collections import OrderedDict
from typing import Any

from service.core.errors import TooBusy
from service.core.fair_queue import FairQueue
from service.walk.helper_process import HelperProcess
from service.walk.planner import PlanningJob
from service.walk.planner_process import BUG, PLANNED, REFUSED
from service.walk.process_wire import WireLost, packed_message, receive_message, send_message, unpacked_message
from service.walk.question import Question

MODULE = "service.walk.planner_process"
SECONDS = 20.0  # four times the processor time that a question may take
WAIT_SECONDS = 20.0
WAITING = 128
REMEMBERED_BYTES = 64 * 2**20  # of all results that are kept
SMALL_BYTES = 2**17  # of one; it is read within some 5 ms

log = logging.getLogger("halftone")


class PlanningProcess(HelperProcess):
    """One process, started at once and waited for when it is first needed."""

    def __init__(self) -> None:
        super().__init__(MODULE)

    def call(self, request: bytes) -> bytes:
        """Raises TimeoutError or WireLost; then the process is of no more use."""
        self.wait_ready()
        self.channel.settimeout(SECONDS)
        send_message(self.channel, request)
        return receive_message(self.channel, time.monotonic() + SECONDS)


class PlannerPool:
    """The Planner of a service: `planners` questions at once, however many are asked."""

    def __init__(self, planners: int) -> None:
        self._turns = FairQueue(planners, WAITING, each=max(1, planners - 1))
        self._lock = threading.Lock()
        self._idle = [PlanningProcess() for _ in range(planners)]
        self._known: OrderedDict[bytes, bytes] = OrderedDict()
        self._known_bytes = 0
        self._closed = False

    def plan(self, asked: PlanningJob, caller: str) -> Question:
        request = packed_message(asked)
        name = hashlib.sha256(request).digest()
        reply = self._remembered(name)
        kind, said = unpacked_message(reply) if reply is not None else self._planned(name, request, caller)
        if kind == BUG:
            log.error("planning ended in a bug", extra={"kind": said[0], "places": said[1]})
            raise AssertionError("planning ended in a bug")
        if kind == REFUSED:
            error, detail, extra = said
            raise error(detail, extra)
        settled, query, loss, priced, notes, chosen = said
        return Question(settled, asked.schema, query, loss, priced, notes=notes, chosen=chosen)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            held, self._idle = self._idle, []
        for process in held:
            process.kill()

    def _planned(self, name: bytes, request: bytes, caller: str) -> tuple[str, Any]:
        """What a process says: PLANNED, REFUSED or BUG, and what goes with it."""
        self._turns.take(caller, WAIT_SECONDS)
        try:
            reply = self._called(request)
            kind, said = unpacked_message(reply)
            if kind == PLANNED:
                self._remember(name, reply)
            return kind, said
        except (TimeoutError, WireLost, OSError):
            raise TooBusy("the query could not be planned in time; ask again", {"retry_after_s": 2}) from None
        finally:
            self._turns.give(caller)

    def _called(self, request: bytes) -> bytes:
        process = self._lease()
        try:
            return process.call(request)
        except BaseException:
            process.kill()
            raise
        finally:
            self._give(process)

    def _lease(self) -> PlanningProcess:
        """The one used last; the newest one, which may still be starting, comes last."""
        with self._lock:
            assert not self._closed, "the planner is closed"
            process = self._idle.pop() if self._idle else None
        if process is not None and process.alive:
            return process
        if process is not None:
            process.kill()
        return PlanningProcess()

    def _give(self, process: PlanningProcess) -> None:
        """Back among the idle ones; a dead one is replaced at once, so that the next question finds it started."""
        is_new = not process.alive
        if is_new:
            process.kill()
            process = PlanningProcess()
        with self._lock:
            if not self._closed:
                self._idle.insert(0 if is_new else len(self._idle), process)
                return
        process.kill()

    def _remembered(self, name: bytes) -> bytes | None:
        with self._lock:
            reply = self._known.get(name)
            if reply is not None:
                self._known.move_to_end(name)
            return reply

    def _remember(self, name: bytes, reply: bytes) -> None:
        if len(reply) > SMALL_BYTES:
            return
        with self._lock:
            self._known_bytes += len(reply) - len(self._known.get(name, b""))
            self._known[name] = reply
            while self._known_bytes > REMEMBERED_BYTES:
                self._known_bytes -= len(self._known.popitem(last=False)[1])
