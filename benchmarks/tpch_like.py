"""TPC-H-like data with skewed users, as Parquet files, and how an admin would declare it.

Sizes follow the scale factor (6M lines: 1.5M orders, 200k parts, 150k users, 2,526 days of shipping, which
are declared, and as many of receipt, which are not). Users are skewed (density x^(-1/3)): about 0.25% of them
have more than five times the average number of lines. Everything is a hash of the row's number, so two runs
measure the same data.
"""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb

DAYS = 2526
FIRST_DAY = date(1992, 1, 2)
MONTHS = tuple(f"{1992 + month // 12}-{month % 12 + 1:02d}-01" for month in range(80))

DATASETS: dict[str, dict[str, dict[str, Any]]] = {
    "shop": {
        "orders": {
            "private": True,
            "unit": {"column": "o_custkey"},
            "columns": {"o_orderkey": {"unique": True}},
        },
        "lineitem": {
            "private": True,
            "unit": {"via": {"column": "l_orderkey", "references": "orders.o_orderkey"}},
            "columns": {
                "l_quantity": {"bounds": [0, 50], "step": 1},
                "l_extendedprice": {"bounds": [0, 105_000], "step": "0.01"},
                "l_discount": {"bounds": [0, 1], "step": "0.01"},
                "l_returnflag": {"domain": ["A", "N", "R"]},
                "l_linestatus": {"domain": ["F", "O"]},
                "l_shipdate": {"domain": [FIRST_DAY + timedelta(days=day) for day in range(DAYS)]},
            },
        },
        "part": {"private": False, "columns": {"p_partkey": {"unique": True}}},
    },
    "people": {
        "people": {
            "private": True,
            "unit": {"column": "p_id"},
            "columns": {
                "p_id": {"unique": True},
                "p_score": {"bounds": [0, 100], "step": "0.01"},
                "p_region": {"domain": list(range(50))},
            },
        },
    },
}


def write(folder: Path, lines: int) -> None:
    """orders, lineitem, part and people as Parquet files, in the order in which a shop would have them."""
    orders, parts, users = max(1, lines // 4), max(1, lines // 30), max(1, lines // 40)
    with duckdb.connect(config={"threads": 2}) as connection:
        connection.execute(f"""
            CREATE TABLE orders AS SELECT
                i AS o_orderkey,
                CAST(floor(pow({_uniform("i", 1)}, 1.5) * {users}) AS BIGINT) AS o_custkey,
                DATE '{FIRST_DAY}' + CAST(hash(i, 2) % {DAYS - 120} AS INTEGER) AS o_orderdate
            FROM range({orders}) AS t(i)""")
        selects = {
            "orders": "FROM orders",
            "lineitem": _lines(lines, orders, parts),
            "part": f"SELECT i AS p_partkey FROM range({parts}) AS t(i)",
            "people": f"SELECT i AS p_id, {_uniform('i', 11)} * 100 AS p_score, "
            f"CAST(hash(i, 12) % 50 AS BIGINT) AS p_region FROM range({lines // 3}) AS t(i)",
        }
        for name, select in selects.items():
            connection.execute(f"COPY ({select}) TO '{folder / name}.parquet' (FORMAT parquet)")


def _lines(lines: int, orders: int, parts: int) -> str:
    return f"""
        SELECT
            o_orderkey AS l_orderkey,
            CAST(hash(n, 3) % {parts} AS BIGINT) AS l_partkey,
            CAST(1 + hash(n, 4) % 50 AS DOUBLE) AS l_quantity,
            round(900 + {_uniform("n", 5)} * 104000, 2) AS l_extendedprice,
            (hash(n, 6) % 11) / 100.0::DOUBLE AS l_discount,
            CASE WHEN hash(n, 7) % 2 = 0 THEN 'N' WHEN hash(n, 8) % 2 = 0 THEN 'A' ELSE 'R' END AS l_returnflag,
            CASE WHEN hash(n, 9) % 2 = 0 THEN 'O' ELSE 'F' END AS l_linestatus,
            o_orderdate + CAST(1 + hash(n, 10) % 121 AS INTEGER) AS l_shipdate,
            o_orderdate + CAST(1 + hash(n, 13) % 121 AS INTEGER) AS l_receiptdate
        FROM range({lines}) AS t(n) JOIN orders ON o_orderkey = CAST(hash(n, 14) % {orders} AS BIGINT)
        ORDER BY o_orderkey, n"""


def _uniform(seed: str, salt: int) -> str:
    return f"(hash(hash({seed}, {salt})) / 18446744073709551616.0::DOUBLE)"
