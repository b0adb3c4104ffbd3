"""Logs as JSON lines, with named fields only: no SQL, no exact value, no engine message, no traceback."""

import json
import logging
import sys
from datetime import UTC, datetime

FIELDS = (
    "request_id",
    "method",
    "route",
    "status",
    "key",
    "problem",
    "query_id",
    "panel",
    "kind",
    "places",
    "dataset",
    "detail",
)

ENCODE = json.JSONEncoder(default=str).encode


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The event's name and the fields above; whatever else a library attached is dropped."""
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.msg
            if record.name.split(".")[0] == "halftone"
            else f"{record.name}: {record.getMessage()}"[:300],
        }
        for name in FIELDS:
            value = getattr(record, name, None)
            if value is not None:
                line[name] = value
        return ENCODE(line)


def configure(level: str) -> None:
    """Our events, and warnings of the server; its own access log is off (it would print addresses).

    What a line would not show is not looked up for it: a poll from memory costs little more than its line.
    """
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # the documented way to spare the search for the caller
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    ours = logging.getLogger("halftone")
    ours.handlers, ours.propagate = [handler], False
    ours.setLevel(level.upper())
    server = logging.getLogger("uvicorn")
    server.handlers, server.propagate = [handler], False
    server.setLevel(logging.WARNING)
    logging.getLogger("uvicorn.access").disabled = True
