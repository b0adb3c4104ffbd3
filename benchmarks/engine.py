"""What does a private statement cost the engine, next to the plain query that no one may run?

Ratios of wall time, private to plain, on the same data in the same run, the two taking turns; the
median of several rounds. Private statements are emitted from plans built by hand and run on the prepared
copy, plain ones on the raw table. `HALFTONE_BENCH_ROWS` sets the size (default 6,000,000), and
`HALFTONE_BENCH_QUICK=1` makes it 300,000.
"""

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import duckdb
from sqlglot import exp, parse_one

from benchmarks.tpch_like import generate
from service.core.plan import (
    KEYS_TABLE,
    POSITION,
    Bounds,
    HistogramNeed,
    Key,
    KeysNeed,
    Measure,
    MomentsNeed,
    Need,
    Plan,
    RowBound,
    RowsWeight,
)
from service.core.schema import BIGINT, DATE, VARCHAR, SqlType
from service.sql.emit import emit

ROWS = (
    300_000 if os.environ.get("HALFTONE_BENCH_QUICK") == "1" else int(os.environ.get("HALFTONE_BENCH_ROWS", "6000000"))
)
ROUNDS = 7
WEIGHT = RowsWeight(200)  # five times the average unit
SLOTS = 5

PRICE = Measure("m0", BIGINT, Fraction(1, 64), 0, 105000 * 64, "price")
QUANTITY = Measure("m1", BIGINT, Fraction(1), 0, 50, "quantity")
DISCOUNT = Measure("m2", BIGINT, Fraction(1, 1024), 0, 1024, "discount")
NET = Measure("m3", BIGINT, Fraction(1, 65536), 0, 105000 * 65536, "net price")
SCORE = Measure("m0", BIGINT, Fraction(1, 1024), 0, 100 * 1024, "score")


@dataclass(frozen=True, slots=True)
class Case:
    """`keys` lists the key table (a SELECT of k0, k1, …), or None: no GROUP BY. `limit` is the promise."""

    name: str
    plain: str
    plan: Plan
    needs: tuple[Need, ...]
    keys: str | None
    limit: float


def rows() -> list[tuple[str, str]]:
    """(what, measured) for every case, as the report prints them."""
    return [(f"{case.name}, promised <= {case.limit}", f"{ratio:.2f}") for case, ratio in measured()]


def measured() -> list[tuple[Case, float]]:
    with TemporaryDirectory() as folder, duckdb.connect(str(Path(folder) / "bench.duckdb")) as connection:
        generate(connection, ROWS)
        connection.execute("CHECKPOINT")
        return [(case, _ratio(connection, case)) for case in cases()]


def _ratio(connection: duckdb.DuckDBPyConnection, case: Case) -> float:
    connection.execute(f'DROP TABLE IF EXISTS "{KEYS_TABLE}"')
    if case.keys is not None:
        numbered = f'SELECT *, row_number() OVER () - 1 AS "{POSITION}" FROM ({case.keys} ORDER BY ALL)'
        connection.execute(f'CREATE TEMP TABLE "{KEYS_TABLE}" AS {numbered}')
    private = [statement.sql for statement, _ in emit(case.plan, case.needs, salt=12345)]
    plain_s, private_s = [], []
    for _ in range(ROUNDS + 1):
        plain_s.append(_seconds(connection, [case.plain]))
        private_s.append(_seconds(connection, private))
    return statistics.median(private_s[1:]) / statistics.median(plain_s[1:])


def _seconds(connection: duckdb.DuckDBPyConnection, statements: Sequence[str]) -> float:
    started = time.perf_counter()
    for sql in statements:
        connection.sql(sql).to_arrow_table()
    return time.perf_counter() - started


def _plan(
    sql: str, keys: Sequence[tuple[str, SqlType]], measures: tuple[Measure, ...], table: str = "lineitem"
) -> Plan:
    tree = parse_one(sql, read="duckdb")
    assert isinstance(tree, exp.Select)
    declared = tuple(Key(name, kind, name, public=("anywhere", name)) for name, kind in keys)
    bounds = Bounds(rows_per_unit=WEIGHT.rows_per_unit, groups_per_unit=SLOTS)
    return Plan(tree, RowBound(0, (table,)), declared, measures, (), (), bounds, digest="bench")


def _moments(*measures: Measure) -> tuple[Need, ...]:
    sums = tuple(MomentsNeed(m.name, 1, WEIGHT, m.low, m.high) for m in measures)
    return (MomentsNeed(None, 0, WEIGHT), *sums)


def cases() -> list[Case]:
    return [*_declared(), *_undeclared()]


def _declared() -> list[Case]:
    q1 = _plan(
        'SELECT "#unit", "l_returnflag" AS "k0", "l_linestatus" AS "k1", "l_extendedprice#" AS "m0", '
        '"l_quantity#" AS "m1", "l_discount#" AS "m2", '
        'CAST("l_extendedprice#" AS BIGINT) * (1024 - "l_discount#") AS "m3" '
        'FROM "lineitem" WHERE "l_shipdate" <= DATE \'1998-09-02\'',
        [("k0", VARCHAR), ("k1", VARCHAR)],
        (PRICE, QUANTITY, DISCOUNT, NET),
    )
    by_month = _plan(
        'SELECT l."#unit", date_trunc(\'month\', o."o_orderdate") AS "k0", l."l_extendedprice#" AS "m0" '
        'FROM "lineitem" AS l JOIN "orders" AS o ON l."l_orderkey" = o."o_orderkey" AND l."#unit" = o."#unit"',
        [("k0", DATE)],
        (PRICE,),
    )
    by_flag = _plan(
        'SELECT "#unit", "l_returnflag" AS "k0", "l_extendedprice#" AS "m0" FROM "lineitem"',
        [("k0", VARCHAR)],
        (PRICE,),
    )
    people = _plan(
        'SELECT "#unit", "p_region" AS "k0", "p_score#" AS "m0" FROM "people"', [("k0", BIGINT)], (SCORE,), "people"
    )
    median = HistogramNeed("m0", 0, 105000 * 64 // 1024 + 1, 1024, WEIGHT)
    return [
        Case(
            "Q1-like, 6 groups",
            "SELECT l_returnflag, l_linestatus, count(*), sum(l_quantity), sum(l_extendedprice), "
            "sum(l_extendedprice * (1 - l_discount)), avg(l_quantity), avg(l_extendedprice), avg(l_discount) "
            "FROM raw_lineitem WHERE l_shipdate <= DATE '1998-09-02' GROUP BY ALL",
            q1,
            _moments(PRICE, QUANTITY, DISCOUNT, NET),
            "SELECT DISTINCT l_returnflag AS k0, l_linestatus AS k1 FROM raw_lineitem",
            1.5,
        ),
        Case(
            "by date, 2,526 declared keys",
            _plain_by("l_shipdate"),
            _by("l_shipdate", DATE),
            _moments(PRICE),
            "SELECT DISTINCT l_shipdate AS k0 FROM raw_lineitem",
            1.6,
        ),
        Case(
            "by part, 200k declared keys",
            _plain_by("l_partkey"),
            _by("l_partkey", BIGINT),
            _moments(PRICE),
            "SELECT DISTINCT l_partkey AS k0 FROM raw_lineitem",
            2.0,
        ),
        Case(
            "orders and lineitem joined, by month",
            "SELECT date_trunc('month', o_orderdate), count(*), sum(l_extendedprice) "
            "FROM raw_lineitem JOIN raw_orders ON l_orderkey = o_orderkey GROUP BY 1",
            by_month,
            _moments(PRICE),
            "SELECT DISTINCT date_trunc('month', o_orderdate) AS k0 FROM raw_orders",
            2.5,
        ),
        Case(
            "median per group, 3 groups",
            "SELECT l_returnflag, median(l_extendedprice) FROM raw_lineitem GROUP BY 1",
            by_flag,
            (median,),
            "SELECT DISTINCT l_returnflag AS k0 FROM raw_lineitem",
            4.0,
        ),
        Case(
            "one row per unit, 50 groups",
            "SELECT p_region, count(*), sum(p_score) FROM raw_people GROUP BY 1",
            replace(people, row_bound=RowBound(1, ())),
            _moments(SCORE),
            "SELECT DISTINCT p_region AS k0 FROM raw_people",
            1.2,
        ),
    ]


def _by(column: str, kind: SqlType) -> Plan:
    return _plan(
        f'SELECT "#unit", "{column}" AS "k0", "l_extendedprice#" AS "m0" FROM "lineitem"', [("k0", kind)], (PRICE,)
    )


def _plain_by(column: str) -> str:
    return f"SELECT {column}, count(*), sum(l_extendedprice) FROM raw_lineitem GROUP BY 1"


def _undeclared() -> list[Case]:
    """Both stages: select the keys, then aggregate over those that were released (here: all)."""
    found = []
    for column, kind, name, limit in (("l_shipdate", DATE, "date", 20.0), ("l_partkey", BIGINT, "part", 10.0)):
        plan = _by(column, kind)
        plan = replace(plan, keys=(Key("k0", kind, column),))
        keys = f"SELECT DISTINCT {column} AS k0 FROM raw_lineitem"
        slots: list[tuple[Literal["units", "weighted", "rows"], str, float]] = [
            ("units", "pairs", limit),
            ("weighted", "weighted pairs", limit),
            ("rows", "rows", 4.0),
        ]
        for rule, words, bound in slots:
            needs = (KeysNeed(rule, SLOTS, 1), *_moments(PRICE))
            found.append(Case(f"undeclared by {name}, {words} as slots", _plain_by(column), plan, needs, keys, bound))
    return found


if __name__ == "__main__":
    for what, value in rows():
        print(f"{what}: {value}")
