"""What does a private statement cost the engine, next to the plain query that no one may run?

Ratios of wall time, private to plain, on the same rows in the same run, the two taking turns; the median of
several rounds. Private: SQL text, understood and priced like any request, its statements run by an engine child
over tables that the importer prepared from Parquet files; counted is the time from handing work over to having its
sealed results. Plain: a query that means the same, over DuckDB tables of the same files.

`HALFTONE_BENCH_ROWS` sets the lines (default 6,000,000; the engine's memory grows with it), and
`HALFTONE_BENCH_QUICK=1` makes it 300,000.
"""

import os
import statistics
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import duckdb

from benchmarks.tpch_like import DATASETS, MONTHS, write
from service.app import Books, Walk, open_books, open_walk
from service.catalog.declare import DatasetDeclaration, TableDeclaration
from service.core.amounts import PICO
from service.core.boundary import Array, KeyTable
from service.core.plan import Loss, Need, Plan
from service.core.request import Ask, AskedBounds
from service.engine.base import Computed, Slot, Work
from service.privacy.noise.sampling import SecureNoise
from service.settings import Settings
from service.store.migrate import upgrade
from service.walk.core_run import CoreRun, Releasing, declared_keys, fresh_salt
from service.walk.question import Question, put_question

QUICK = os.environ.get("HALFTONE_BENCH_QUICK") == "1"
ROWS = 300_000 if QUICK else int(os.environ.get("HALFTONE_BENCH_ROWS", "6000000"))
ROUNDS = 7  # at least; queries of milliseconds take more turns, until the plain one has run for PLAIN_SECONDS
PLAIN_SECONDS = 2.0
MEMORY = f"{max(4, ROWS // 5_000_000)}GB"
THREADS = os.cpu_count() or 1
SECONDS = 600
ROWS_PER_UNIT = 200  # five times the average unit
GROUPS_PER_UNIT = 5
AMOUNT = 1000 * PICO  # names nearly all days; of the parts, which few people share, a sixth to two thirds

Slots = Literal["pairs", "rows"]


@dataclass(frozen=True, slots=True)
class Case:
    """`limit` is the promise. `plain` says the same without what only declares keys. `rule`: how undeclared keys
    must have been chosen for the row to mean what its name says."""

    name: str
    limit: float
    sql: str
    plain: str
    dataset: str = "shop"
    law: Literal["epsilon", "rho"] = "epsilon"
    slots: Slots = "pairs"
    rule: str | None = None


def rows() -> list[tuple[str, str]]:
    """(what, measured) for every case, as the report prints them."""
    return [(f"{case.name}, promised <= {case.limit}", f"{ratio:.2f}") for case, ratio in measured()]


def measured() -> Iterator[tuple[Case, float]]:
    with TemporaryDirectory() as folder, opened(Path(folder)) as (books, walk, plain):
        for case in cases():
            yield case, _ratio(books, walk, plain, case)


@contextmanager
def opened(folder: Path) -> Iterator[tuple[Books, Walk, duckdb.DuckDBPyConnection]]:
    """The files imported by the service, and copied into a DuckDB file as anybody would."""
    settings = Settings(data_dir=folder, time_step_ms=0, engine_workers=1, engine_memory=MEMORY, query_seconds=SECONDS)
    sources = folder / "sources"
    sources.mkdir(parents=True, exist_ok=True)
    write(sources, ROWS)
    upgrade(settings.store_url)
    books = open_books(settings)
    for dataset in DATASETS:
        _import(books, dataset)
    walk = open_walk(settings, books)
    try:
        with duckdb.connect(str(folder / "plain.duckdb"), config={"threads": THREADS}) as plain:
            for file in sorted(sources.glob("*.parquet")):
                plain.execute(f"CREATE TABLE {file.stem} AS FROM '{file}'")
            plain.execute("CHECKPOINT")
            yield books, walk, plain
    finally:
        walk.close()
        books.close()


def _import(books: Books, dataset: str) -> None:
    declared = {"unit": "person", "epsilon": "100000", "delta": "1e-6", "weak": True}
    books.administration.put_dataset(dataset, DatasetDeclaration.model_validate(declared), actor="bench")
    for table, declaration in DATASETS[dataset].items():
        source = {"kind": "parquet", "path": f"{table}.parquet"}
        whole = TableDeclaration.model_validate({"source": source, **declaration})
        books.administration.put_table(dataset, table, whole, actor="bench")
        books.administration.wait(dataset, table)


@dataclass(slots=True)
class TimedSlot:
    """A slot that adds up how long it computed."""

    slot: Slot
    seconds: float = 0.0

    @property
    def data_version(self) -> int:
        return self.slot.data_version

    def version(self, table: str) -> int | None:
        return self.slot.version(table)

    def work(self, plan: Plan, needs: tuple[Need, ...], salt: int) -> Work:
        return self.slot.work(plan, needs, salt)

    def compute(self, work: Work, keys: KeyTable | None, deadline_s: float) -> Computed:
        began = time.perf_counter()
        try:
            return self.slot.compute(work, keys, deadline_s)
        finally:
            self.seconds += time.perf_counter() - began

    def public_values(self, table: str, column: str, limit: int) -> Array:
        return self.slot.public_values(table, column, limit)


def _ratio(books: Books, walk: Walk, plain: duckdb.DuckDBPyConnection, case: Case) -> float:
    question = asked(books, case)
    plain_s, private_s = [], []
    with walk.engine.slot(case.dataset, SECONDS) as slot:
        while len(plain_s) <= ROUNDS or (sum(plain_s) < PLAIN_SECONDS and len(plain_s) <= 6 * ROUNDS):
            plain_s.append(_plain_seconds(plain, case.plain))
            private_s.append(engine_seconds(question, slot))
    return statistics.median(private_s[1:]) / statistics.median(plain_s[1:])


def asked(books: Books, case: Case) -> Question:
    bounds = AskedBounds(rows_per_unit=ROWS_PER_UNIT, groups_per_unit=GROUPS_PER_UNIT, slots=case.slots)
    ask = Ask(case.dataset, case.sql, Loss(case.law, AMOUNT), bounds)
    question = put_question(ask, books.catalog.schema(case.dataset), books.ledger.terms(case.dataset))
    (priced,) = question.priced.plans
    chosen = priced.keys_need.rule if priced.keys_need else None
    assert chosen == case.rule, f"{case.name}: keys by {chosen}"
    return question


def engine_seconds(question: Question, slot: Slot) -> float:
    """All statements of one question, as the walk runs them; noise between and after them is not the engine's."""
    timed = TimedSlot(slot)
    (priced,) = question.priced.plans
    keys = declared_keys(priced.plan, timed) if priced.plan.keys_declared else None
    run = CoreRun.emitted(timed, priced, keys, fresh_salt())
    at = Releasing(timed, SecureNoise(), time.monotonic() + SECONDS)
    run.release(at, replicas=frozenset(), base=None)
    return timed.seconds


def _plain_seconds(connection: duckdb.DuckDBPyConnection, sql: str) -> float:
    """Called as the engine's children call it: a relation would bind the query twice."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        connection.execute(sql).to_arrow_table()
        return time.perf_counter() - began


def cases() -> list[Case]:
    return [*_declared(), *_undeclared()]


def _declared() -> list[Case]:
    q1 = (
        "SELECT l_returnflag, l_linestatus, count(*), sum(l_quantity), sum(l_extendedprice), "
        "sum(l_extendedprice * (1 - l_discount)), avg(l_quantity), avg(l_extendedprice), avg(l_discount) "
        "FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' GROUP BY l_returnflag, l_linestatus"
    )
    by_date = _by("l_shipdate", "lineitem")
    median = "SELECT l_returnflag, median(l_extendedprice) FROM lineitem GROUP BY l_returnflag"
    region = "SELECT p_region, count(*), sum(p_score) FROM people GROUP BY p_region"
    month = "date_trunc('month', o_orderdate)"
    both = "lineitem JOIN orders ON l_orderkey = o_orderkey"
    listed = ", ".join(f"DATE '{day}'" for day in MONTHS)
    return [
        Case("Q1-like, 6 groups", 1.5, q1, q1),
        Case("by date, 2,526 declared keys", 1.6, by_date, by_date),
        Case(
            "by part, 200k declared keys",
            2.0,
            _by("p_partkey", "lineitem JOIN part ON l_partkey = p_partkey"),
            _by("l_partkey", "lineitem"),
        ),
        Case(
            "orders and lineitem joined, by month",
            2.5,
            _by(month, f"{both} WHERE {month} IN ({listed})"),
            _by(month, both),
        ),
        Case("median per group, 3 groups", 4.0, median, median),
        Case("one row per unit, 50 groups", 1.2, region, region, dataset="people"),
    ]


def _by(key: str, source: str) -> str:
    return f"SELECT {key} AS key, count(*), sum(l_extendedprice) FROM {source} GROUP BY {key}"


def _undeclared() -> list[Case]:
    """Both stages: choose the keys, then aggregate over those that were named."""
    found = []
    for column, name, limit in (("l_receiptdate", "date", 20.0), ("l_partkey", "part", 10.0)):
        sql = _by(column, "lineitem")
        found += [
            Case(f"undeclared by {name}, pairs as slots", limit, sql, sql, rule="shared"),
            Case(f"undeclared by {name}, weighted pairs as slots", limit, sql, sql, law="rho", rule="weighted"),
            Case(f"undeclared by {name}, rows as slots", 4.0, sql, sql, slots="rows", rule="rows"),
        ]
    return found


if __name__ == "__main__":
    for case, ratio in measured():
        print(f"{case.name}, promised <= {case.limit}: {ratio:.2f}", flush=True)
