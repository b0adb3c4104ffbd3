"""What does preparing a table cost, next to copying the same file into DuckDB, and how much memory does it take?

`HALFTONE_BENCH_IMPORT_ROWS` sets the size (default 6,000,000; 60,000,000 takes several minutes), and
`HALFTONE_BENCH_QUICK=1` makes it 300,000. Memory is the largest resident set of any import process.
"""

import os
import resource
import time
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from service.core.schema import BIGINT, DATE, VARCHAR, Column, SqlType, Table, UnitColumn
from service.engine.duckdb.importing.import_child import ImportOptions
from service.engine.duckdb.importing.importer import DuckDBImporter
from service.engine.sources import Source

QUICK = os.environ.get("HALFTONE_BENCH_QUICK") == "1"
ROWS = 300_000 if QUICK else int(os.environ.get("HALFTONE_BENCH_IMPORT_ROWS", "6000000"))
MEMORY = 4 * 2**30

MONEY = SqlType("DECIMAL", 12, 2)
LINEITEM = Table(
    "lineitem",
    {
        column.name: column
        for column in (
            Column("l_custkey", BIGINT),
            Column("l_orderkey", BIGINT),
            Column("l_partkey", BIGINT),
            Column("l_quantity", BIGINT, Fraction(0), Fraction(50), Fraction(1)),
            Column("l_extendedprice", MONEY, Fraction(0), Fraction(105_000), Fraction(1, 100)),
            Column("l_discount", MONEY, Fraction(0), Fraction(1), Fraction(1, 100)),
            Column("l_tax", MONEY, Fraction(0), Fraction(1), Fraction(1, 100)),
            Column("l_shipdate", DATE, Fraction(8000), Fraction(11_000), Fraction(1)),
            Column("l_returnflag", VARCHAR),
            Column("l_linestatus", VARCHAR),
            Column("l_shipmode", VARCHAR),
            Column("l_comment", VARCHAR),
        )
    },
    UnitColumn("l_custkey"),
)

GENERATED = """
SELECT (pow((hash(i) % 1000003) / 1000003.0, 3) * {units})::BIGINT AS l_custkey, i // 4 AS l_orderkey,
 (hash(i + 1) >> 1)::BIGINT % 200000 AS l_partkey, (i % 50)::BIGINT + 1 AS l_quantity,
 ((hash(i + 7) % 10000000) / 100)::DECIMAL(12,2) AS l_extendedprice, ((i % 11) / 100)::DECIMAL(12,2) AS l_discount,
 ((i % 9) / 100)::DECIMAL(12,2) AS l_tax, DATE '1992-01-02' + (hash(i + 3) % 2526)::INTEGER AS l_shipdate,
 ['A', 'N', 'R'][i % 3 + 1] AS l_returnflag, ['F', 'O'][i % 2 + 1] AS l_linestatus,
 ['AIR', 'RAIL', 'SHIP', 'TRUCK', 'MAIL'][i % 5 + 1] AS l_shipmode, 'comment number ' || i % 1000 AS l_comment
FROM range({rows}) t(i)"""


def rows() -> list[tuple[str, str]]:
    """Seconds as a ratio to a plain copy of the same file, and peak memory."""
    with TemporaryDirectory() as folder:
        sources = Path(folder) / "sources"
        sources.mkdir()
        with duckdb.connect() as database:
            generated = GENERATED.format(rows=ROWS, units=150_000)
            database.execute(f"COPY ({generated}) TO '{sources / 'lineitem.parquet'}'")
        plain_s = _plain(Path(folder))
        started = time.perf_counter()
        importer = DuckDBImporter(Path(folder) / "data", [sources], ImportOptions(MEMORY, threads=2))
        prepared = importer.prepare("bench", LINEITEM, Source("parquet", "lineitem.parquet"))
        private_s = time.perf_counter() - started
        assert prepared.rows == ROWS
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return [
        (f"preparing {ROWS:,} rows of 12 columns, ratio to CREATE TABLE AS", f"{private_s / plain_s:.1f}"),
        (
            f"largest resident set of an import of {ROWS:,} rows (setting {MEMORY / 2**30:.0f} GB)",
            f"{peak / 2**30:.1f} GB",
        ),
    ]


def _plain(folder: Path) -> float:
    started = time.perf_counter()
    with duckdb.connect(str(folder / "plain.duckdb"), config={"threads": 2}) as database:
        database.execute(f"CREATE TABLE lineitem AS FROM '{folder / 'sources' / 'lineitem.parquet'}'")
        database.execute("CHECKPOINT")
    return time.perf_counter() - started
