"""What does a query cost outside the engine, and a poll next to the plainest endpoint there is?

A query: parse, price, replay look-up, reserve, noise, outer SQL, settle; the engine beneath answers at
once, the time ladder is off. A poll: a panel over HTTP on the loopback, beside an endpoint of the same
server that returns the same bytes and does nothing else, asked by the same client in turns.
"""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet as pq
import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI, Response
from starlette.types import Receive, Scope, Send

from service.api.middleware.logs import configure
from service.app import Books, Walk, create_app, open_books, open_walk
from service.catalog.declare import DatasetDeclaration, TableDeclaration
from service.catalog.keys import NewKey
from service.core.boundary import KeyTable
from service.core.plan import Loss
from service.core.request import Ask, Principal
from service.privacy.noise.sampling import SecureNoise
from service.privacy.release import release_values
from service.released import tables
from service.settings import Settings
from service.store.migrate import upgrade
from service.walk.answer_body import Facts, answer_body
from service.walk.answer_json import encode
from service.walk.outer_sql import run_outer
from tests.fixtures.slots import ZeroEngine, ZeroSlot, answerer_of
from tests.fixtures.whole import DECLARED, visits

QUICK = os.environ.get("HALFTONE_BENCH_QUICK") == "1"
QUERIES = 60 if QUICK else 300
ROUNDS, SECONDS, CLIENTS = (2, 0.5, 8) if QUICK else (6, 1.0, 8)
ANSWERS = 5_000 if QUICK else 100_000
CELLS = 20_000 if QUICK else 200_000
GROUPS = tuple("abcdefghij")

ANALYST = Principal("benchanaly", "bench", "analyst", frozenset({"clinic"}))
SQL = "SELECT ward, COUNT(*) AS n, SUM(cost) AS s FROM visits WHERE cost > {} GROUP BY ward"

# What the project promises of itself (docs/dashboards.md).
QUERY_MS_MAX, POLL_RATE_MIN, POLL_TAIL_MAX, CELLS_S_MAX = 15.0, 0.8, 3.0, 1.0


def settings_of(folder: Path) -> Settings:
    return Settings(
        data_dir=folder, time_step_ms=0, engine_workers=1, requests_per_minute=1_000_000, concurrent_requests=1000
    )


@contextmanager
def opened(folder: Path) -> Iterator[tuple[Books, Walk]]:
    """A dataset with one table and ten declared groups."""
    settings = settings_of(folder)
    (folder / "sources").mkdir(parents=True, exist_ok=True)
    pq.write_table(visits(), folder / "sources" / "visits.parquet")
    upgrade(settings.store_url)
    books = open_books(settings)
    declared = {"unit": "patient", "epsilon": "100000", "delta": "1e-6", "weak": True, "defaults": {"rows_per_unit": 4}}
    books.administration.put_dataset("clinic", DatasetDeclaration.model_validate(declared), actor="bench")
    columns = {**DECLARED["columns"], "ward": {"type": "VARCHAR", "domain": list(GROUPS)}}  # type: ignore[dict-item]
    table = TableDeclaration.model_validate({**DECLARED, "columns": columns})
    books.administration.put_table("clinic", "visits", table, actor="bench")
    books.administration.wait("clinic", "visits")
    walk = open_walk(settings, books)
    try:
        yield books, walk
    finally:
        walk.close()
        books.close()


def outside_the_engine(books: Books, walk: Walk) -> tuple[float, float]:
    """Median milliseconds of a query whose engine takes no time, and of one that is answered from store."""
    answerer = answerer_of(books, walk, ZeroEngine(books.catalog.schema("clinic").data_version))
    asks = [Ask("clinic", SQL.format(number), Loss("epsilon", 10**10)) for number in range(QUERIES)]
    paid, free = [], []
    for times in (paid, free):
        for ask in asks:
            began = time.perf_counter()
            answerer.submit(ask, ANALYST, None, "", 60)
            times.append((time.perf_counter() - began) * 1000)
    answerer.close()
    return statistics.median(paid[10:]), statistics.median(free[10:])


def many_cells(books: Books, walk: Walk) -> float:
    """Seconds of noise, outer SQL and assembly for many groups with two outputs."""
    answerer = answerer_of(books, walk)
    question = answerer._pricing.question(Ask("clinic", SQL.format(-1), Loss("epsilon", 10**12)), ANALYST)
    keys = np.empty(CELLS, dtype=object)
    keys[:] = [f"k{number}" for number in range(CELLS)]
    public = KeyTable({"k0": keys}, CELLS)
    priced = question.priced.plans[0]
    slot = ZeroSlot(1, lambda: None)
    exacts = slot.compute(slot.work(priced.plan, priced.value_needs(), 1), public, 600)
    began = time.perf_counter()
    table = release_values(priced, public, exacts, SecureNoise())
    result = run_outer(walk.scratch, question.query, (table,), 60)
    facts = Facts("q_1", 1, 1, None, books.ledger.balance("clinic"))
    body = encode(answer_body(question, (table,), result, facts))
    took = time.perf_counter() - began
    assert len(body) > CELLS
    answerer.close()
    return took


class Client:
    """One connection that asks for the same thing again and again, as plainly as a socket can."""

    def __init__(self, port: int, path: str, key: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = f"GET {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n".encode()

    def ask(self) -> int:
        """The status; the body is read to its end."""
        self._socket.sendall(self._request)
        seen = b""
        while b"\r\n\r\n" not in seen:
            seen += self._receive()
        head, _, body = seen.partition(b"\r\n\r\n")
        length = int(next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))[15:])
        missing = length - len(body)
        while missing > 0:
            missing -= len(self._receive())
        return int(head[9:12])

    def _receive(self) -> bytes:
        got = self._socket.recv(1 << 16)
        assert got, "the server hung up"
        return got

    def close(self) -> None:
        self._socket.close()


def drive(port: int, path: str, key: str) -> tuple[float, list[float]]:
    """Requests per second and how long each took, with CLIENTS connections at once."""
    times: list[list[float]] = [[] for _ in range(CLIENTS)]
    until = time.perf_counter() + SECONDS

    def client(mine: list[float]) -> None:
        connection = Client(port, path, key)
        while (began := time.perf_counter()) < until:
            assert connection.ask() == 200
            mine.append(time.perf_counter() - began)
        connection.close()

    threads = [threading.Thread(target=client, args=(mine,)) for mine in times]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = [each for mine in times for each in mine]
    return len(took) / (time.perf_counter() - began), took


def serve(folder: Path, port: int) -> None:
    """The service on one port, with a bare endpoint beside it that knows nothing but some bytes."""
    app, bare = create_app(settings_of(folder)), FastAPI()
    body = (folder / "bytes").read_bytes()

    @bare.get("/trivial")
    async def trivial() -> Response:
        return Response(body, media_type="application/json")

    async def either(scope: Scope, receive: Receive, send: Send) -> None:
        await (bare if scope.get("path") == "/trivial" else app)(scope, receive, send)

    configure("info")  # a line for every poll, as in production
    uvicorn.run(either, host="127.0.0.1", port=port, log_config=None, access_log=False)


@contextmanager
def serving(folder: Path) -> Iterator[int]:
    """A server process of its own, ended by its own id."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.service", str(folder), str(port)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                if httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait(20)


def beside(port: int, path: str, key: str) -> tuple[float, float]:
    """The path's rate and its p99, each over the trivial endpoint's: rounds take turns, the median counts."""
    rates, tails = [], []
    for _ in range(ROUNDS):
        plain_rate, plain_times = drive(port, "/trivial", key)
        rate, times = drive(port, path, key)
        rates.append(rate / plain_rate)
        tails.append(statistics.quantiles(times, n=100)[98] / statistics.quantiles(plain_times, n=100)[98])
    return statistics.median(rates), statistics.median(tails)


def fill(books: Books) -> None:
    """Answers as they are after months: many, of many analysts, in the store that polls read."""
    body = b'{"id":"q","rows":[]}' + b" " * 1500
    for start in range(0, ANSWERS, 5_000):
        rows = [
            {
                "query_id": f"q_old{number}", "principal": f"analyst{number % 50}", "dataset": "clinic",
                "data_version": 1, "sql_text": SQL.format(number), "asked_at": f"2026-01-01T00:00:{number:012}",
                "status": "answered", "body": body, "etag": "e", "replay_of": None,
            }
            for number in range(start, min(start + 5_000, ANSWERS))
        ]  # fmt: skip

        def work(tx: sa.Connection, rows: list[dict[str, Any]] = rows) -> None:
            tx.execute(tables.answer.insert(), rows)

        books.store.write(work)


def polls(folder: Path) -> list[tuple[str, str]]:
    """A panel and a stored answer beside the trivial endpoint, before and after the store has filled."""
    with opened(folder) as (books, walk):
        secret = books.administration.create_key(NewKey("wall", "admin"), actor="bench")[1]
        principal = books.keys.authenticate(secret)
        answer = walk.answerer.submit(Ask("clinic", SQL.format(1), Loss("epsilon", 10**12)), principal, None, "", 60)
    settings = settings_of(folder)
    found = []
    for filled in (False, True):
        if filled:
            books = open_books(settings)
            fill(books)
            books.close()
        (folder / "bytes").write_bytes(answer.body or b"")
        with serving(folder) as port:
            panel = f"http://127.0.0.1:{port}/v1/panels/wall"
            wanted = {"dataset": "clinic", "sql": SQL.format(1), "epsilon": "1", "budget": "9"}
            headers = {"Authorization": f"Bearer {secret}"}
            httpx.put(panel, json=wanted, headers=headers).raise_for_status()
            httpx.post(f"{panel}/refresh", headers=headers, timeout=60).raise_for_status()
            state = f", {ANSWERS:,} answers in the store" if filled else ""
            for what, path in (("panel", "/v1/panels/wall"), ("stored answer", f"/v1/queries/{answer.query_id}")):
                rate, tail = beside(port, path, secret)
                found += [
                    (f"poll of a {what}{state}: rate / trivial (at least {POLL_RATE_MIN})", f"{rate:.2f}"),
                    (f"poll of a {what}{state}: p99 / trivial's p99 (at most {POLL_TAIL_MAX:.0f})", f"{tail:.1f}"),
                ]
    return found


def rows() -> list[tuple[str, str]]:
    """The lines of the benchmark table."""
    with tempfile.TemporaryDirectory() as folder:
        with opened(Path(folder) / "asking") as (books, walk):
            paid, free = outside_the_engine(books, walk)
            took = many_cells(books, walk)
        asking = [
            (f"query outside the engine, 10 groups, median (at most {QUERY_MS_MAX:.0f} ms)", f"{paid:.1f} ms"),
            ("the same question again, from store, median", f"{free:.1f} ms"),
            (f"noise and assembly, {CELLS:,} groups x 2 outputs (at most {CELLS_S_MAX:.0f} s)", f"{took:.2f} s"),
        ]
        return asking + polls(Path(folder) / "polling")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        serve(Path(sys.argv[1]), int(sys.argv[2]))
    else:
        for title, figure in rows():
            sys.stdout.write(f"{title:<85}{figure}\n")
