"""How long do questions take, next to the time that is promised for them?

Questions over the data of benchmarks/tpch_like.py, with sizes as a profile would give them: what is predicted from
public sizes and the speed of this machine, times the safety factor, rounded up to a rung of 0.1·2^k seconds. Actual:
all statements of the question in an engine child, and noise and assembly, beside `HALFTONE_BENCH_BUSY` others (default
1) that ask the same all the while. Above 1 a question would be late.

`HALFTONE_BENCH_ROWS` sets the lines (default 1,000,000), and `HALFTONE_BENCH_QUICK=1` makes it 300,000.
"""

import math
import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from benchmarks.engine import AMOUNT, GROUPS_PER_UNIT, ROWS_PER_UNIT, SECONDS, cases
from benchmarks.tpch_like import DATASETS, write
from service.app import Books, Walk, open_books, open_walk
from service.catalog.declare import DatasetDeclaration, TableDeclaration
from service.core.plan import Loss
from service.core.prepared import ROW_COUNT
from service.core.request import Ask, AskedBounds
from service.core.sizes import Profile, Size, size_of_profile
from service.engine.base import WorstCase
from service.engine.duckdb.speed import measure, setting
from service.privacy.noise.sampling import SecureNoise
from service.privacy.pricing.priced import PricedPlan
from service.settings import Settings
from service.store.migrate import upgrade
from service.walk.core_run import CoreRun, Releasing, declared_keys, fresh_salt
from service.walk.question import put_question

QUICK = os.environ.get("HALFTONE_BENCH_QUICK") == "1"
ROWS = 300_000 if QUICK else int(os.environ.get("HALFTONE_BENCH_ROWS", "1000000"))
BUSY = int(os.environ.get("HALFTONE_BENCH_BUSY", "1"))
WORKERS = 2
ROUNDS = 5
FACTOR = 4
STEP_S = 0.1
NAMED = 10_000  # keys that a selection is assumed to name
DEVIATION = 20.0  # of the counts in a profile

MORE = [
    ("one count", "shop", "SELECT COUNT(*) FROM lineitem"),
    ("a condition", "shop", "SELECT SUM(l_quantity) FROM lineitem WHERE l_discount > 0.05 AND l_quantity < 24"),
    ("units", "shop", "SELECT COUNT(DISTINCT o_custkey) FROM orders"),
    (
        "per unit, then over units",
        "shop",
        "SELECT AVG(n) FROM (SELECT o_custkey, COUNT(*) AS n FROM orders GROUP BY o_custkey) t",
    ),
    (
        "rows of a unit with each other",
        "shop",
        "SELECT COUNT(*) FROM orders a JOIN orders b ON a.o_custkey = b.o_custkey AND a.o_orderdate < b.o_orderdate",
    ),
    (
        "a semi-join",
        "shop",
        "SELECT COUNT(*) FROM orders o WHERE EXISTS (SELECT 1 FROM lineitem l WHERE l.l_orderkey = o.o_orderkey"
        " AND l.l_quantity > 45)",
    ),
]


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with what was promised for it and how long it took."""

    name: str
    promised_s: float
    predicted_s: float
    actual_s: tuple[float, ...]
    memory_bytes: int

    @property
    def late(self) -> bool:
        return max(self.actual_s) > self.promised_s


def rows() -> list[tuple[str, str]]:
    """Every question, then the distribution over all of them."""
    found = list(measured())
    told = [
        (
            f"{asked.name}: median and worst of promised {asked.promised_s:.1f} s",
            f"{statistics.median(asked.actual_s) / asked.promised_s:.2f}, {max(asked.actual_s) / asked.promised_s:.2f}",
        )
        for asked in found
    ]
    shares = sorted(actual / asked.promised_s for asked in found for actual in asked.actual_s)
    told.append((f"actual/promised of {ROWS:,} lines: median", f"{statistics.median(shares):.2f}"))
    told.append(("actual/promised: 9 of 10 below", f"{shares[(9 * len(shares)) // 10]:.2f}"))
    told.append(("actual/promised: largest (below 1: none late)", f"{shares[-1]:.2f}"))
    told.append(("questions late", f"{sum(asked.late for asked in found)} of {len(found)}"))
    throughput = [WORKERS / asked.promised_s for asked in found]
    told.append((f"questions a second with {WORKERS} workers, median", f"{statistics.median(throughput):.1f}"))
    return told


def rung(seconds: float) -> float:
    return STEP_S * 2 ** max(0, math.ceil(math.log2(seconds / STEP_S)))


def measured() -> Iterator[Asked]:
    with TemporaryDirectory() as folder, _opened(Path(folder)) as (books, walk, sizes):
        questions = [(case.name, case.dataset, case.sql) for case in cases()] + MORE
        for name, dataset, sql in questions:
            bounds = AskedBounds(rows_per_unit=ROWS_PER_UNIT, groups_per_unit=GROUPS_PER_UNIT)
            ask = Ask(dataset, sql, Loss("epsilon", AMOUNT), bounds)
            question = put_question(ask, books.catalog.schema(dataset), books.ledger.terms(dataset))
            (priced,) = question.priced.plans
            yield _asked(name, walk, dataset, priced, sizes)


def _asked(name: str, walk: Walk, dataset: str, priced: PricedPlan, sizes: dict[str, Size]) -> Asked:
    stages = _predicted(walk, dataset, priced, sizes)
    predicted_s = sum(stage.seconds for stage in stages)
    with _busy(walk, dataset, priced):
        actual = tuple(_seconds(walk, dataset, priced) for _ in range(ROUNDS))
    memory = max(stage.memory_bytes for stage in stages)
    return Asked(name, rung(FACTOR * predicted_s), predicted_s, actual, memory)


def _predicted(walk: Walk, dataset: str, priced: PricedPlan, sizes: dict[str, Size]) -> list[WorstCase]:
    groups = NAMED
    if priced.plan.keys_declared:
        with walk.engine.slot(dataset, SECONDS) as slot:
            groups = declared_keys(priced.plan, slot).size
    asked = [walk.engine.predict(priced.plan, priced.value_needs(), sizes, groups)]
    if priced.keys_need is not None:
        asked.append(walk.engine.predict(priced.plan, (priced.keys_need,), sizes, None))
    found = [stage for stage in asked if stage is not None]
    assert len(found) == len(asked), "every question of the benchmark can be predicted"
    return found


def _seconds(walk: Walk, dataset: str, priced: PricedPlan) -> float:
    """From the slot to released values, as the walk runs them."""
    with walk.engine.slot(dataset, SECONDS) as slot:
        keys = declared_keys(priced.plan, slot) if priced.plan.keys_declared else None
        run = CoreRun.emitted(slot, priced, keys, fresh_salt())
        began = time.perf_counter()
        run.release(Releasing(slot, SecureNoise(), time.monotonic() + SECONDS), replicas=frozenset(), base=None)
        return time.perf_counter() - began


@contextmanager
def _busy(walk: Walk, dataset: str, priced: PricedPlan) -> Iterator[None]:
    """Others ask the same all the while."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            _seconds(walk, dataset, priced)

    others = [threading.Thread(target=ask) for _ in range(BUSY)]
    for other in others:
        other.start()
    try:
        yield
    finally:
        stop.set()
        for other in others:
            other.join()


@contextmanager
def _opened(folder: Path) -> Iterator[tuple[Books, Walk, dict[str, Size]]]:
    memory = f"{max(4, ROWS // 500_000)}GB"
    settings = Settings(
        data_dir=folder, time_step_ms=100, engine_workers=WORKERS, engine_memory=memory, query_seconds=SECONDS
    )
    (folder / "sources").mkdir(parents=True, exist_ok=True)
    write(folder / "sources", ROWS)
    measure(folder, setting(threads=os.cpu_count() or 1, workers=WORKERS))
    upgrade(settings.store_url)
    books = open_books(settings)
    sizes: dict[str, Size] = {}
    for dataset, tables in DATASETS.items():
        declared = {"unit": "person", "epsilon": "100000", "delta": "1e-6", "weak": True}
        books.administration.put_dataset(dataset, DatasetDeclaration.model_validate(declared), actor="bench")
        for table, declaration in tables.items():
            source = {"kind": "parquet", "path": f"{table}.parquet"}
            whole = TableDeclaration.model_validate({"source": source, **declaration})
            books.administration.put_table(dataset, table, whole, actor="bench")
            books.administration.wait(dataset, table)
            if declaration["private"]:
                sizes[table] = _profiled(folder, dataset, table)
        sizes |= {name: size for name, size in books.catalog.schema(dataset).sizes.items() if name not in sizes}
    walk = open_walk(settings, books)
    try:
        yield books, walk, sizes
    finally:
        walk.close()
        books.close()


def _profiled(folder: Path, dataset: str, table: str) -> Size:
    """The size as a profile of little noise would give it."""
    (file,) = (folder / "prepared" / dataset / table).glob("*.duckdb")
    with duckdb.connect(str(file), read_only=True) as database:
        counts = database.execute(f"SELECT {ROW_COUNT}, count(*) FROM units GROUP BY 1").fetchall()
    bins = [0] * (max((n - 1).bit_length() for n, _ in counts) + 1)
    for n, units in counts:
        bins[(n - 1).bit_length()] += units
    return size_of_profile(Profile(tuple(bins), DEVIATION, "bench"), 2 ** (len(bins) - 1))


if __name__ == "__main__":
    for what, figure in rows():
        print(f"{what}: {figure}", flush=True)
