"""What runs inside a planning process: one request after the other is understood and priced, within a budget.

It opens no file and no connection, knows no key, and reads what it is sent: a question, declarations, terms. What it
may use for one question is counted as processor time, so that a loaded machine refuses nothing that an idle one
would plan. After a question that went over the budget the process ends: it was stopped in the middle of something.
"""

import os
import resource
import signal
import socket
import sys
import traceback
from typing import Any

from service.core.errors import ConstructRefused, ServiceError
from service.walk.process_wire import (
    WireLost,
    packed_deep,
    packed_message,
    receive_message,
    send_message,
    unpacked_message,
)
from service.walk.question import put_question

CPU_SECONDS = 5.0
MEMORY_BYTES = 2**30
REPLY_BYTES_MAX = 2 * 2**20  # read in about a tenth of a second
NICENESS = 1  # behind the process that answers, before those that compute
PLACES = 8

PLANNED, REFUSED, BUG = "planned", "refused", "bug"


class OverBudget(BaseException):
    """Not an Exception: nothing on the way may take it for an error of its own."""


def main() -> None:
    """Argument: the number of the socket to answer on."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    os.nice(NICENESS)
    _limit()
    signal.signal(signal.SIGPROF, _stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which ends us
    try:
        send_message(channel, packed_message("ready"))
        last = False
        while not last:
            reply, last = planned(receive_message(channel))
            send_message(channel, reply)
    except WireLost:
        return


def planned(request: bytes) -> tuple[bytes, bool]:
    """The packed reply to a packed `PlanningJob`, and whether it was this process's last."""
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        asked = unpacked_message(request)
        question = put_question(asked.ask, asked.schema, asked.terms, asked.kept)
        parts = (question.ask, question.query, question.loss, question.priced, question.notes, question.chosen)
        return _within_size(packed_deep((PLANNED, parts))), False
    except ServiceError as error:
        return packed_message((REFUSED, error_parts(error))), False
    except (OverBudget, MemoryError):
        return packed_message((REFUSED, error_parts(_too_large()))), True
    except Exception as bug:
        return packed_message((BUG, (type(bug).__name__, _places(bug)))), False
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _within_size(reply: bytes) -> bytes:
    """What a plan costs the process that answers (to read it, to predict its time) grows with its tree, and a short
    text can stand for a large one: a list in a WITH query is written out for every output that reads it."""
    if len(reply) > REPLY_BYTES_MAX:
        raise ConstructRefused(
            "written out, this query is larger than one question may be: what a subquery computes is repeated for"
            " every output that reads it",
            {"construct": "size", "remedy": "put long lists into a public table and join it, or ask for fewer outputs"},
        )
    return reply


def error_parts(error: ServiceError) -> tuple[Any, ...]:
    return type(error), error.detail, error.extra


def _too_large() -> ConstructRefused:
    return ConstructRefused(
        "planning this query takes more time or memory than one question may have",
        {"construct": "size", "remedy": "ask for less in one query: fewer outputs, joins or listed values"},
    )


def _places(bug: BaseException) -> list[str]:
    """Where it happened, without its message: a message may hold a value."""
    found = traceback.extract_tb(bug.__traceback__)[-PLACES:]
    return [f"{each.filename.rpartition('/')[2]}:{each.lineno} {each.name}" for each in found]


def _stop(*_: object) -> None:
    raise OverBudget


def _limit() -> None:
    """Memory: what is mapped now, and room for one question. No file is written, no core dumped."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if sys.platform == "linux":
        with open("/proc/self/statm") as file:
            mapped = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY_BYTES, mapped + MEMORY_BYTES))
