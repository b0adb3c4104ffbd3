"""A small shop: customers, their orders, the lines of those, and a public table of shops.

Rows are plain tuples, so that an engine of any kind can be given the same data.
"""

from datetime import date, datetime
from fractions import Fraction
from pathlib import Path

import duckdb

from service.core.schema import (
    BIGINT,
    DATE,
    DOUBLE,
    TIMESTAMP,
    VARCHAR,
    Column,
    Schema,
    SqlType,
    Table,
    UnitColumn,
    UnitVia,
)
from service.engine.sources import Source

MONEY = SqlType("DECIMAL", 10, 2)


def table(name: str, *columns: Column, unit: UnitColumn | UnitVia | None, most: int | None = None) -> Table:
    return Table(name, {column.name: column for column in columns}, unit, max_rows_per_unit=most)


CUSTOMERS = table(
    "customers",
    Column("id", BIGINT, unique=True),
    Column("age", BIGINT, Fraction(18), Fraction(90), Fraction(1)),
    Column("joined", TIMESTAMP),
    Column("account", BIGINT, Fraction(-(2**59)), Fraction(2**59), Fraction(1)),
    unit=UnitColumn("id"),
)
ORDERS = table(
    "orders",
    Column("order_id", BIGINT, unique=True),
    Column("customer", BIGINT),
    Column("amount", MONEY, Fraction(0), Fraction(100), Fraction(1, 100)),
    Column("weight", DOUBLE, Fraction(-10), Fraction(10), Fraction(1, 8)),
    Column("day", DATE),
    Column("shop", VARCHAR),
    unit=UnitColumn("customer"),
)
LINES = table(
    "lines",
    Column("order_id", BIGINT),
    Column("pieces", BIGINT, Fraction(0), Fraction(1000), Fraction(1)),
    unit=UnitVia("order_id", "orders", "order_id"),
)
SHOPS = table(
    "shops",
    Column("name", VARCHAR, unique=True),
    Column("size", DOUBLE),
    unit=None,
)
DECLARED = {declared.name: declared for declared in (CUSTOMERS, ORDERS, LINES, SHOPS)}
SCHEMA = Schema("shop", "customer", DECLARED)

JOINED = datetime(2020, 5, 17, 12, 30, 0, 250)
ROWS: dict[str, list[tuple[object, ...]]] = {
    "customers": [
        (1, 30, JOINED, 2**59),
        (2, 17, JOINED, 1 - 2**59),
        (3, 200, None, 7),
        (None, 50, None, 2**59),
    ],
    "orders": [
        (10, 1, "12.34", 1.0625, date(2024, 1, 1), "north"),
        (11, 1, "250.00", float("nan"), date(2024, 1, 2), "south"),
        (12, 2, "-5.00", float("inf"), date(2024, 1, 1), "north"),
        (13, 4, None, -0.0625, None, None),
        (14, None, "1.00", 1.0, date(2024, 1, 1), "north"),
    ],
    "lines": [(10, 5), (10, 2000), (12, None), (13, 7), (14, 9), (99, 1), (None, 1)],
    "shops": [("south", 2.5), ("north", float("nan")), ("east", -0.0), (None, 1.0)],
}
SQL_TYPES = {
    "customers": "id BIGINT, age BIGINT, joined TIMESTAMP, account BIGINT",
    "orders": 'order_id BIGINT, customer BIGINT, amount DECIMAL(10,2), weight DOUBLE, "day" DATE, shop VARCHAR',
    "lines": "order_id BIGINT, pieces BIGINT",
    "shops": '"name" VARCHAR, size DOUBLE',
}


def write_parquet(folder: Path, name: str, rows: list[tuple[object, ...]], types: str) -> Source:
    folder.mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE t ({types})")
        if rows:
            database.executemany(f"INSERT INTO t VALUES ({', '.join('?' for _ in rows[0])})", rows)
        database.execute(f"COPY t TO '{folder / name}.parquet'")
    return Source("parquet", f"{name}.parquet")


def write_shop(folder: Path) -> dict[str, Source]:
    return {name: write_parquet(folder, name, rows, SQL_TYPES[name]) for name, rows in ROWS.items()}
