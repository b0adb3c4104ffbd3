"""A shop that does not exist: customers, orders, visits and a public table, the same on every machine.

Every value is a function of integers (a fixed hash of row number and purpose), so there is no seed,
no generator state and no dependence on the machine. The skew is meant: few customers order a lot,
most order rarely; two countries hold half of the customers.
"""

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Whole = npt.NDArray[np.uint64]
Signed = npt.NDArray[np.int64]

CUSTOMERS = 60_000
LARGEST = 500  # rows of one customer in one table
COUNTRIES = (
    ("AT", "Austria", "centre"),
    ("CH", "Switzerland", "centre"),
    ("DE", "Germany", "centre"),
    ("ES", "Spain", "south"),
    ("FR", "France", "west"),
    ("IT", "Italy", "south"),
    ("NL", "Netherlands", "west"),
    ("PL", "Poland", "east"),
)
COUNTRY_PERCENT = (5, 4, 31, 10, 21, 12, 8, 9)
STATUSES = ("open", "paid", "returned", "shipped")
STATUS_PERCENT = (10, 25, 15, 50)
PAGES = ("basket", "checkout", "help", "home", "product", "search")
PAGE_PERCENT = (9, 5, 4, 27, 36, 19)
FIRST_DAY, DAYS = date(2023, 1, 1), 1096  # three years, one of them a leap year
EPOCH_DAY = (FIRST_DAY - date(1970, 1, 1)).days


def mixed(numbers: Whole, purpose: int) -> Whole:
    """A fixed 64-bit hash (splitmix64) of each number; `purpose` keeps columns apart."""
    with np.errstate(over="ignore"):
        z = numbers + np.uint64((purpose * 0x9E3779B97F4A7C15) % 2**64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def below(numbers: Whole, purpose: int, n: int) -> Signed:
    """For each number an integer in 0 … n-1, evenly spread."""
    return ((mixed(numbers, purpose) >> np.uint64(11)) % np.uint64(n)).astype(np.int64)


def by_percent(numbers: Whole, purpose: int, percent: tuple[int, ...]) -> Signed:
    """For each number an index, index i in percent[i] of 100 cases."""
    edges = np.cumsum(np.asarray(percent))
    return np.searchsorted(edges, below(numbers, purpose, 100), side="right").astype(np.int64)


def repeats(numbers: Whole, purpose: int, usual: int) -> Signed:
    """How many rows each customer has: (usual/k)³ of them have about k or more, none more than LARGEST."""
    draw = below(numbers, purpose, 1_000_000) + 1
    at_least = np.asarray([1_000_000 * usual**3 // k**3 for k in range(1, LARGEST + 1)])
    counts: Signed = np.searchsorted(-at_least, -draw, side="right") - below(numbers, purpose + 1, 4)
    return np.maximum(counts, 0)


def words(indices: Signed, choices: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(choices)).dictionary_decode()


def days(numbers: Whole, purpose: int) -> Signed:
    """A day; later ones are likelier, because the shop grows."""
    first, second = below(numbers, purpose, DAYS), below(numbers, purpose + 1, DAYS)
    later: Signed = np.maximum(first, second)
    return later + EPOCH_DAY


def customers() -> pa.Table:
    n = np.arange(1, CUSTOMERS + 1, dtype=np.uint64)
    age = 18 + (below(n, 1, 30) + below(n, 2, 25) + below(n, 3, 20))
    return pa.table({
        "customer_id": pa.array(n.astype(np.int64)),
        "country": words(by_percent(n, 4, COUNTRY_PERCENT), tuple(code for code, _, _ in COUNTRIES)),
        "age": pa.array(age),
        "signup_date": pa.array(days(n, 5).astype(np.int32), pa.date32()),
    })  # fmt: skip


def orders() -> pa.Table:
    people = np.arange(1, CUSTOMERS + 1, dtype=np.uint64)
    owner = np.repeat(people, repeats(people, 20, 4))
    n = np.arange(1, owner.size + 1, dtype=np.uint64)
    cents = (
        500 + below(n, 22, 4_000) + below(n, 23, 4_000) * (below(n, 24, 10) // 4) * (1 + 2 * (below(n, 25, 50) == 0))
    )
    return pa.table({
        "order_id": pa.array(n.astype(np.int64)),
        "customer_id": pa.array(owner.astype(np.int64)),
        "amount": money(cents),
        "status": words(by_percent(n, 26, STATUS_PERCENT), STATUSES),
        "order_date": pa.array(days(n, 27).astype(np.int32), pa.date32()),
    })  # fmt: skip


def money(cents: Signed) -> pa.Array:
    """Exact decimals with two places."""
    whole = pa.array(cents).cast(pa.decimal128(19, 0))
    return pa.compute.multiply(whole, pa.scalar("0.01").cast(pa.decimal128(3, 2))).cast(pa.decimal128(10, 2))


def visits() -> pa.Table:
    people = np.arange(1, CUSTOMERS + 1, dtype=np.uint64)
    owner = np.repeat(people, repeats(people, 40, 6))
    n = np.arange(1, owner.size + 1, dtype=np.uint64)
    seconds = 2 + below(n, 42, 60) + below(n, 43, 600) * (below(n, 44, 8) == 0)
    moment = (days(n, 45) * 86_400 + 6 * 3600 + below(n, 47, 17 * 3600)) * 1_000_000
    return pa.table({
        "customer_id": pa.array(owner.astype(np.int64)),
        "page": words(by_percent(n, 48, PAGE_PERCENT), PAGES),
        "seconds": pa.array(seconds),
        "visited_at": pa.array(moment, pa.timestamp("us")),
    })  # fmt: skip


def countries() -> pa.Table:
    codes, names, regions = zip(*COUNTRIES, strict=True)
    return pa.table({"country": list(codes), "name": list(names), "region": list(regions)})


def write(folder: Path) -> None:
    """The four files below `folder`/shop."""
    target = folder / "shop"
    target.mkdir(parents=True, exist_ok=True)
    for name, table in (
        ("customers", customers()),
        ("orders", orders()),
        ("visits", visits()),
        ("countries", countries()),
    ):
        pq.write_table(table, target / f"{name}.parquet", compression="zstd")


def _file(name: str) -> dict[str, str]:
    return {"kind": "parquet", "path": f"shop/{name}.parquet"}


DATASET: dict[str, Any] = {
    "unit": "customer",
    "epsilon": "10",
    "delta": "1e-6",
    "ceiling": {"epsilon": "10", "delta": "1e-6"},
    "epsilon_per_query_max": "2",
    "defaults": {"epsilon": "0.5", "delta": "1e-9"},
}

# In this order: a table must be there before another reaches its unit through it.
TABLES: dict[str, dict[str, Any]] = {
    "customers": {
        "source": _file("customers"),
        "private": True,
        "unit": {"column": "customer_id"},
        "columns": {
            "customer_id": {"type": "BIGINT", "unique": True},
            "country": {"type": "VARCHAR", "domain": [code for code, _, _ in COUNTRIES]},
            "age": {"type": "BIGINT", "bounds": [0, 120]},
            "signup_date": {"type": "DATE", "bounds": ["2023-01-01", "2026-01-01"]},
        },
    },
    "orders": {
        "source": _file("orders"),
        "private": True,
        "unit": {"column": "customer_id"},
        "columns": {
            "order_id": {"type": "BIGINT", "unique": True},
            "customer_id": {"type": "BIGINT"},
            "amount": {"type": "DECIMAL(10,2)", "bounds": [0, 300]},
            "status": {"type": "VARCHAR", "domain": list(STATUSES)},
            "order_date": {"type": "DATE", "bounds": ["2023-01-01", "2026-01-01"]},
        },
    },
    "visits": {
        "source": _file("visits"),
        "private": True,
        "unit": {"column": "customer_id"},
        "columns": {
            "customer_id": {"type": "BIGINT"},
            "page": {"type": "VARCHAR", "max_bytes": 16},
            "seconds": {"type": "BIGINT", "bounds": [0, 600]},
            "visited_at": {"type": "TIMESTAMP"},
        },
    },
    "countries": {
        "source": _file("countries"),
        "private": False,
        "columns": {
            "country": {"type": "VARCHAR", "unique": True},
            "name": {"type": "VARCHAR"},
            "region": {"type": "VARCHAR"},
        },
    },
}  # fmt: skip
