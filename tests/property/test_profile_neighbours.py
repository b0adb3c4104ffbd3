"""One person moves a profile by one, and what a person keeps is a matter of that person's rows.

The import itself runs, in this process: rows are built, counted and cut as an import child does it. Neighbours differ
in all rows of one person, in all tables.
"""

import socket
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from service.core.prepared import RANK_COLUMN
from service.core.schema import BIGINT, Column, Table, UnitColumn, UnitVia
from service.core.schema_codec import table_to_json
from service.core.sizes import BINS
from service.engine.duckdb.importing.build import Build, open_database
from service.engine.duckdb.importing.counting import counted_units, cut_rows
from tests.statistical.laws import FALSE_ALARM

OPTIONS = {"memory_bytes": 2**28, "threads": 2}
LINES_EACH = 2  # of an order, so that the number of a person's lines follows from the number of its orders
ORDERS = Table(
    "orders", {"order_id": Column("order_id", BIGINT, unique=True), "person": Column("person", BIGINT)},
    UnitColumn("person"),
)  # fmt: skip
LINES = Table(
    "lines", {"order_id": Column("order_id", BIGINT), "line": Column("line", BIGINT)},
    UnitVia("order_id", "orders", "order_id"),
)  # fmt: skip

Count = Callable[[Path], list[int]]


def build(table: Table, columns: dict[str, list[int]], folder: Path, parent: Path | None = None) -> Path:
    """The prepared file of one table."""
    folder.mkdir()
    pq.write_table(pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()}), folder / "in.pq")
    job = {
        "do": "build", "kind": "parquet", "files": [str(folder / "in.pq")], "source_table": None,
        "table": table_to_json(table), "folder": str(folder), "units_in": None,
        "parent": parent and str(parent), "most": None,
    }  # fmt: skip
    here, there = socket.socketpair()
    with open_database(OPTIONS, job) as connection, here, there:
        Build(connection, job, here, 2**28).run()
    return folder / "rows.duckdb"


def cut(table: Table, file: Path, most: int) -> None:
    job = {"folder": str(file.parent), "table": table_to_json(table), "most": most, "kind": "", "files": []}
    with open_database(OPTIONS, job) as connection:
        cut_rows(connection, job)


def counted(file: Path) -> list[int]:
    job = {"folder": str(file.parent), "prepared": str(file), "kind": "", "files": []}
    with open_database(OPTIONS, job) as connection:
        units: list[int] = counted_units(connection, job)["units"]
    return units


def read(file: Path, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(file), read_only=True) as database:
        return database.execute(sql).fetchall()


def histograms(people: list[int], most: int, count: Count = counted) -> dict[str, list[int]]:
    """Both tables' counts for people with so many orders each; `lines` after `orders` was cut to `most`."""
    owners = [person for person, orders in enumerate(people) for _ in range(orders)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        orders = build(ORDERS, {"order_id": list(range(len(owners))), "person": owners}, folder / "orders")
        found = {"orders": count(orders)}
        cut(ORDERS, orders, most)
        ids = [order for order in range(len(owners)) for _ in range(LINES_EACH)]
        lines = build(LINES, {"order_id": ids, "line": list(range(len(ids)))}, folder / "lines", orders)
        found["lines"] = count(lines)
    return found


def moved(people: list[int], most: int, count: Count = counted) -> dict[str, list[int]]:
    """By how much each count moves when the first person goes, from all tables; counts that stay are left out."""
    before, after = histograms(people, most, count), histograms([0, *people[1:]], most, count)
    return {name: [abs(a - b) for a, b in zip(before[name], after[name], strict=True) if a != b] for name in before}


# The last person is always there: a table without any rows is another matter (the import refuses nothing of it).
crowds = st.lists(st.integers(1, 40), min_size=1, max_size=6).map(lambda orders: [*orders, 3])


@settings(max_examples=10, deadline=None)
@given(crowds, st.sampled_from([1, 2, 3, 16, 64]))
def test_one_person_moves_one_count_of_each_table_by_one(people: list[int], most: int) -> None:
    assert moved(people, most) == {"orders": [1], "lines": [1]}


@settings(max_examples=5, deadline=None)
@given(crowds, st.sampled_from([1, 5, 64]))
def test_everybody_is_in_the_bin_of_their_rows(people: list[int], most: int) -> None:
    expected = {"orders": [0] * BINS, "lines": [0] * BINS}
    for orders in people:
        expected["orders"][(orders - 1).bit_length()] += 1
        expected["lines"][(LINES_EACH * min(most, orders) - 1).bit_length()] += 1
    assert histograms(people, most) == expected


def rows_by_bin(file: Path) -> list[int]:
    """The broken twin: rows instead of people, so that one person moves a count by as many as it has."""
    counts = [0] * BINS
    for (rows,) in read(file, "SELECT rows FROM units"):
        counts[(rows - 1).bit_length()] += rows
    return counts


def test_the_check_catches_a_histogram_of_rows() -> None:
    assert moved([9, 2, 3], 64, rows_by_bin)["orders"] == [9]


# --- what a person keeps ------------------------------------------------------------------------------


def cut_orders(owners: list[int], most: int, how: Callable[[Path, int], None]) -> dict[int, set[int]]:
    """By person, the places (in the file) of the rows that are kept."""
    with tempfile.TemporaryDirectory() as name:
        file = build(ORDERS, {"order_id": list(range(len(owners))), "person": owners}, Path(name) / "orders")
        how(file, most)
        kept: dict[int, set[int]] = defaultdict(set)
        for person, place in read(file, "SELECT person, order_id FROM rows"):
            kept[person].add(place)
        ranks = read(file, f'SELECT person, list("{RANK_COLUMN}" ORDER BY "{RANK_COLUMN}") FROM rows GROUP BY person')
        assert all(found == list(range(len(found))) for _, found in ranks)
        assert dict(read(file, "SELECT person, rows FROM units JOIN (SELECT DISTINCT person, \"#unit\" FROM rows)"
                    ' USING ("#unit")')) == {person: len(places) for person, places in kept.items()}  # fmt: skip
    return kept


def by_rank(file: Path, most: int) -> None:
    cut(ORDERS, file, most)


def by_place(file: Path, most: int) -> None:
    """The broken twin: the first rows of the file win, so what a person keeps is not a matter of chance."""
    with duckdb.connect(str(file)) as database:
        database.execute(
            "DELETE FROM rows WHERE order_id NOT IN (SELECT order_id FROM rows"
            f" QUALIFY row_number() OVER (PARTITION BY person ORDER BY order_id) <= {most})"
        )
        database.execute(
            'CREATE OR REPLACE TABLE rows AS SELECT * REPLACE (row_number() OVER (PARTITION BY "#unit") - 1 AS "#rank")'
            ' FROM rows; CREATE OR REPLACE TABLE units AS SELECT "#unit", count(*) AS rows FROM rows GROUP BY ALL'
        )


def in_all(file: Path, most: int) -> None:
    """Another broken twin: a number of rows per person on average, so that one crowds out the others."""
    with duckdb.connect(str(file)) as database:
        database.execute(f'DELETE FROM rows WHERE order_id >= (SELECT {most} * count(DISTINCT "#unit") FROM rows)')
        database.execute(
            'CREATE OR REPLACE TABLE rows AS SELECT * REPLACE (row_number() OVER (PARTITION BY "#unit") - 1 AS "#rank")'
            ' FROM rows; CREATE OR REPLACE TABLE units AS SELECT "#unit", count(*) AS rows FROM rows GROUP BY ALL'
        )


def kept_numbers(owners: list[int], most: int, how: Callable[[Path, int], None]) -> dict[int, int]:
    return {person: len(places) for person, places in cut_orders(owners, most, how).items()}


@settings(max_examples=6, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=20), st.integers(1, 4))
def test_how_many_rows_somebody_keeps_is_the_same_without_somebody_else(owners: list[int], most: int) -> None:
    owners = [*[9] * 7, *owners, 5]
    with_nine, without = kept_numbers(owners, most, by_rank), kept_numbers(owners[7:], most, by_rank)
    assert with_nine == {person: min(most, owners.count(person)) for person in set(owners)}
    assert {person: kept for person, kept in with_nine.items() if person != 9} == without


def test_the_check_catches_a_cut_of_all_rows_together() -> None:
    owners = [*[9] * 7, 1, 2, 5]
    with_nine, without = kept_numbers(owners, 2, in_all), kept_numbers(owners[7:], 2, in_all)
    assert {person: kept for person, kept in with_nine.items() if person != 9} != without


def places_kept(people: int, each: int, how: Callable[[Path, int], None], *, heavy: int) -> list[int]:
    """How often the row at each place of its person's rows is kept, beside somebody with `heavy` rows."""
    owners = [-1] * heavy + [person for _ in range(each) for person in range(people)]
    seen = [0] * each
    for person, places in cut_orders(owners, 2, how).items():
        for place in places if person >= 0 else ():
            seen[(place - heavy) // people] += 1
    return seen


def test_which_rows_somebody_keeps_has_the_same_law_whoever_else_is_there() -> None:
    """Invariant N5: two of six, each with the same chance, alone or beside somebody with ten thousand rows."""
    for heavy in (0, 10_000):
        assert chisquare(places_kept(2000, 6, by_rank, heavy=heavy)).pvalue > FALSE_ALARM


def test_the_check_catches_a_cut_in_the_order_of_the_file() -> None:
    assert chisquare(places_kept(2000, 6, by_place, heavy=0)).pvalue < FALSE_ALARM
