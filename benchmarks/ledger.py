"""What does a charge cost, next to the smallest thing a database can durably do?

A reserve (idempotency, two accounts, two allowances, a chained entry) beside a bare insert and commit through the
plain driver, on the same store, in the same run and taking turns, because disks have moods.
"""

import itertools
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

from service.core.amounts import PICO, Cost, Terms
from service.ledger import allowances, rederive_events
from service.ledger.book import By, Grant, Hold, Ledger
from service.store.database import Store
from service.store.migrate import upgrade
from tests.fixtures.postgres import new_database

ROUNDS = 5
SECONDS = 0.6
CLIENTS = (1, 8, 32)
RECEIPT = {"mechanisms": ["discrete Laplace, scale 20"], "plan_digest": "sha256:" + "0" * 64}
ROW = ("r" * 64, "x" * 500)

# What the project promises of itself (docs/budgets.md).
RATIO_MIN, SCALING_MIN, TAIL_MAX = 0.5, 1.0, 60.0

_ids = itertools.count()


def reserve_once(ledger: Ledger) -> None:
    ledger.reserve(Hold(f"q_{next(_ids)}", "shop", "hk_bench", "h" * 64, Cost((1, 1, 1, 1, 1, 1)), 1, None, RECEIPT))


def open_ledger(store: Store) -> Ledger:
    """An account whose allowance never fills, as if every query settled at once: a settle is not what is measured."""
    for module in (allowances, rederive_events):
        vars(module).update(DATASET_FAILURES_ALLOWED=10**9, PERSON_FAILURES_ALLOWED=10**9)
    ledger = Ledger(store)
    terms = Terms(tuple(map(Fraction, range(2, 7))), (Fraction(1, 5),) * 5, PICO, 10**12, 0, 1)
    ledger.open_account("shop", terms, Grant(PICO, 10**12, (PICO,) * 6, 0), By("bench", "bench"))
    reserve_once(ledger)
    return ledger


@contextmanager
def bare(store: Store) -> Iterator[Callable[[], None]]:
    """Insert and commit through the driver itself, on a connection with the store's own settings."""
    with store.engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE bare (hash TEXT, body TEXT)")
        connection.commit()
        raw = connection.connection.driver_connection
        assert raw is not None
        mark = "?" if store.engine.dialect.name == "sqlite" else "%s"
        begin = "BEGIN IMMEDIATE" if store.engine.dialect.name == "sqlite" else None
        cursor = raw.cursor()

        def once() -> None:
            if begin:
                cursor.execute(begin)
            cursor.execute(f"INSERT INTO bare VALUES ({mark}, {mark})", ROW)
            raw.commit()

        yield once


def drive(act: Callable[[], None], clients: int) -> tuple[float, list[float]]:
    """Acts per second, and how long each took, with so many clients at once."""
    times: list[list[float]] = [[] for _ in range(clients)]
    until = time.perf_counter() + SECONDS

    def client(mine: list[float]) -> None:
        while (began := time.perf_counter()) < until:
            act()
            mine.append(time.perf_counter() - began)

    threads = [threading.Thread(target=client, args=(mine,)) for mine in times]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = [each for mine in times for each in mine]
    return len(took) / (time.perf_counter() - began), took


def measure(url: str) -> tuple[float, dict[int, float], float]:
    """Bare commits per second, reserves per second by clients, p99 at most clients over median at one."""
    upgrade(url)
    store = Store(url)
    ledger = open_ledger(store)
    bare_rates: list[float] = []
    rates: dict[int, list[float]] = {clients: [] for clients in CLIENTS}
    took: dict[int, list[float]] = {clients: [] for clients in CLIENTS}
    with bare(store) as insert:
        for _ in range(ROUNDS):
            bare_rates.append(drive(insert, 1)[0])
            for clients in CLIENTS:
                rate, times = drive(lambda: reserve_once(ledger), clients)
                rates[clients].append(rate)
                took[clients] += times
    verdict = ledger.verify()
    assert verdict.holds, verdict.problem
    ledger.close()
    store.close()
    tail = statistics.quantiles(took[CLIENTS[-1]], n=100)[98] / statistics.median(took[1])
    return statistics.median(bare_rates), {c: statistics.median(r) for c, r in rates.items()}, tail


def rows() -> list[tuple[str, str]]:
    """The lines of the benchmark table, for both stores."""
    found: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, url in (("SQLite", f"sqlite:///{Path(folder) / 'ledger.db'}"), ("PostgreSQL", new_database())):
            plain, rates, tail = measure(url)
            found += [
                (f"ledger, {name}: bare durable insert and commit, 1 client", f"{plain:,.0f}/s"),
                *((f"ledger, {name}: durable reserves, {c} clients", f"{r:,.0f}/s") for c, r in rates.items()),
                (f"ledger, {name}: reserve / bare at 1 client (at least {RATIO_MIN})", f"{rates[1] / plain:.2f}"),
                (f"ledger, {name}: 32 clients / 1 client (at least {SCALING_MIN})", f"{rates[32] / rates[1]:.2f}"),
                (f"ledger, {name}: p99 at 32 / median at 1 (at most {TAIL_MAX:.0f})", f"{tail:.1f}"),
            ]
    return found


if __name__ == "__main__":
    for title, figure in rows():
        sys.stdout.write(f"{title:<75}{figure}\n")
