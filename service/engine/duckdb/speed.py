"""How fast this machine is: nanoseconds of the operators of service/engine/worst_case/loads.py, on made-up rows.

Measured once in an engine child, a second or two long, and kept in the data folder. Rows come from range() and
hash(), so what is kept and what follows from it is public. What it depends on is kept beside it: with another DuckDB,
other cores, threads or workers, or with a file that can not be read, it is measured again.

Measured is processor time, the mean of a few runs, shared among the child's threads: as if nothing else ran. What
others' load adds is for the safety factor (docs/decisions/0036).
"""

import contextlib
import json
import logging
import os
import statistics
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from service.engine.duckdb.processes.child import Child, ChildLost
from service.engine.duckdb.processes.pool import MODULE
from service.engine.worst_case.loads import NOT_MEASURED, USUAL, Speed

NAME = "speed.json"
FORMAT = 3
SECONDS = 60.0
MEMORY_BYTES = 512 * 2**20
ROWS = 600_000  # enough that what a statement costs without any rows is small beside it
BYTES = 60  # of a made-up text
WIDER = 1.5  # tables of millions of rows leave the caches that made-up ones may fit into
THREADS_COUNTED = 8  # a few million rows are not enough parts for more
FASTEST = 0.02  # of the defaults: below, something was not measured at all

log = logging.getLogger("halftone")

SETUP = (
    "CREATE TEMP TABLE m AS SELECT i, hash(i) AS h, CAST(hash(i) % 1000003 AS BIGINT) AS a,"
    f" CAST(hash(i, 1) % 97 AS BIGINT) AS b, CAST(hash(i, 2) % 5000 AS BIGINT) AS f, CAST(hash(i, 3) % {ROWS // 4} AS"
    f" BIGINT) AS u, rpad(CAST(hash(i) AS VARCHAR), {BYTES}, 'xyz') AS t, repeat('a', {BYTES}) AS s"
    f" FROM range({ROWS}) AS r(i)"
)
PLANNED, PLANNED_NODES = 60, 8  # so many sums of so many nodes each, over no rows
SUMS = ", ".join(f"sum(CASE WHEN a > {at} THEN b ELSE {at} END)" for at in range(PLANNED))
BRANCHES = " ".join(f"WHEN a < {10**at} THEN a + {at}" for at in range(5))
STATEMENTS = {
    "sums": "SELECT sum(a), sum(b), sum(u), sum(i) FROM m",
    "branches": f"SELECT sum(CASE {BRANCHES} ELSE a - b END) FROM m",
    "dates": "SELECT max(strftime(DATE '2000-01-01' + CAST(b AS INTEGER), '%Y-%m')) FROM m",
    "parts": "SELECT max(date_trunc('month', DATE '2000-01-01' + CAST(b AS INTEGER))) FROM m",
    "fails": "SELECT max(TRY_CAST(t AS DECIMAL(18, 2))) FROM m",
    "replace": "SELECT count(*) FROM m WHERE replace(s, 'a', 'b') = t",  # every byte is found, the dearest that can be
    "few": "SELECT f, count(*) FROM m GROUP BY f",
    "more": "SELECT f, count(*), sum(a), sum(u), sum(i) FROM m GROUP BY f",
    "many": "SELECT count(*) FROM (SELECT u, count(*), sum(b) FROM m GROUP BY u)",
    "own": "SELECT count(*) FROM (SELECT h, count(*), sum(b) FROM m GROUP BY h)",
    "texts": "SELECT count(*) FROM (SELECT t, count(*), sum(b) FROM m GROUP BY t)",
    "nothing": "SELECT 1",
    "planned": f"SELECT {SUMS} FROM m WHERE i < 0",
    "small": "SELECT sum(k) FROM m JOIN (SELECT range AS k FROM range(97)) AS s ON m.b = s.k",
    "strangers": f"SELECT count(*) FROM m JOIN (SELECT range * {ROWS // 400} AS k FROM range(97)) AS s ON m.u = s.k",
    "self": "SELECT sum(x.a + y.b) FROM m AS x JOIN m AS y ON x.h = y.h",
    "pairs": "SELECT count(*) FROM m, range(10) AS r(j) WHERE a + j > 7",
    "kept": "WITH x AS MATERIALIZED (SELECT i, a, b, u FROM m) SELECT (SELECT sum(a + i) FROM x), sum(b + u) FROM x",
    "window": "SELECT count(*) FROM (SELECT count(*) OVER (PARTITION BY u ORDER BY h) AS p FROM m) WHERE p <= 5",
    "lists": "SELECT count(*) FROM (SELECT f, min(h, 8) AS l FROM m GROUP BY f) WHERE l[1] < l[2]",
    "hashes": "SELECT max(hash(xor(hash(xor(hash(a), h)), hash(b)))) FROM m",
    "sent": "SELECT i, a, b FROM m",
}


Setting = dict[str, str | int]


def setting(*, threads: int, workers: int) -> Setting:
    """What a measured speed depends on."""
    cores = os.cpu_count() or 1
    return {"format": FORMAT, "duckdb": version("duckdb"), "cores": cores, "threads": threads, "workers": workers}


def kept_speed(data_dir: Path, wanted: Setting) -> Speed | None:
    """What was measured before in the same setting; None: nothing that can be read and fits."""
    try:
        stored: dict[str, Any] = json.loads((data_dir / NAME).read_text())
        if stored["setting"] != wanted:
            return None
        found = {operator: float(stored["speed"][operator]) for operator in USUAL}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if all(0 < value < float("inf") for value in found.values()) else None


def measure(data_dir: Path, wanted: Setting) -> Speed | None:
    """Measures, and keeps it; None: no child could be had, so the defaults go on serving."""
    seconds = _measured_seconds(int(wanted["threads"]))
    if seconds is None:
        log.warning("the speed of this machine could not be measured")
        return None
    found = speed_of(seconds, threads=int(wanted["threads"]))
    with contextlib.suppress(OSError):  # kept for the next start: this one has it already
        _keep(data_dir, wanted, found)
    return found


def speed_of(seconds: dict[str, float], *, threads: int) -> Speed:
    """Nanoseconds of each operator, from the processor time that the statements took. What a statement does besides is
    taken off where it was measured on its own, so that nothing is counted twice."""
    shared = ROWS * min(threads, THREADS_COUNTED)

    def each(name: str, units: float, besides: str = "nothing") -> float:
        return max(0.0, seconds[name] - seconds[besides]) * 1e9 / (shared * units)

    own, many = each("own", 1), each("many", 1)  # a row is a new group each time, or every fourth time
    nanoseconds = {
        "read": each("sums", 4),
        "compute": each("branches", 27),
        "part": each("parts", 1),
        "call": each("dates", 1),
        "fail": each("fails", 1),
        "text": each("replace", BYTES),
        "copy": each("texts", BYTES, "own"),
        "find": each("few", 1),
        "add": each("more", 3, "few"),
        "seek": (4 * many - own) / 3 * WIDER,
        "group": (own - many) * 4 / 3 * WIDER,
        "build": each("self", 1, "small") * WIDER,
        "probe": each("small", 1),
        "miss": each("strangers", 1),
        "pair": each("pairs", 10),
        "keep": each("kept", 4),
        "order": each("window", 1) * WIDER,
        "smallest": each("lists", 1),
        "hash": each("hashes", 4),
        "node": max(0.0, seconds["planned"] - seconds["nothing"]) * 1e9 / (PLANNED * PLANNED_NODES),  # by one thread
        "send": 2 * each("sent", 3),  # there, and out of the frame here
    }
    assert nanoseconds.keys() | set(NOT_MEASURED) == USUAL.keys()
    measured = {operator: max(value, FASTEST * USUAL[operator]) for operator, value in nanoseconds.items()}
    measured["seek"] = max(measured["seek"], measured["find"])  # more groups never take less
    ratio = statistics.median(value / USUAL[operator] for operator, value in measured.items())
    return measured | {operator: USUAL[operator] * ratio for operator in NOT_MEASURED}


def _measured_seconds(threads: int) -> dict[str, float] | None:
    try:
        child = Child(MODULE, memory_bytes=MEMORY_BYTES, threads=threads)
    except OSError:
        return None
    try:
        child.wait_ready()
        answer, _ = child.call({"do": "measure", "setup": SETUP, "statements": STATEMENTS}, b"", SECONDS)
    except ChildLost:
        return None
    finally:
        child.kill()
    found = answer.get("measured")
    return None if found is None else {name: float(found[name]) for name in STATEMENTS}


def _keep(data_dir: Path, measured_in: Setting, speed: Speed) -> None:
    """Whole or not at all, and for this user alone."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    stored = {"setting": measured_in, "speed": {operator: round(value, 4) for operator, value in speed.items()}}
    handle, made = tempfile.mkstemp(prefix=NAME + "-", dir=data_dir)  # mode 0600
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(stored, file, indent=1)
        os.replace(made, data_dir / NAME)
    except BaseException:
        Path(made).unlink(missing_ok=True)
        raise
