"""What preparation does to one person does not depend on who else is in the file.

The import itself runs, in this process: the child around it changes nothing about the files.
"""

import socket
import tempfile
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from service.core.schema import BIGINT, DOUBLE, VARCHAR, Column, Table, UnitColumn
from service.core.schema_codec import table_to_json
from service.engine.duckdb.importing.build import Build, open_database

FALSE_ALARM = 1e-6
SCHEMA = pa.schema([("person", pa.int64()), ("ward", pa.string()), ("pay", pa.float64()), ("days", pa.int64())])
Row = tuple[int | None, str, float | None, int]

VISITS = Table(
    "visits",
    {
        "person": Column("person", BIGINT),
        "ward": Column("ward", VARCHAR, max_bytes=3),
        "pay": Column("pay", DOUBLE, Fraction(0), Fraction(10), Fraction(1, 4)),
        "days": Column("days", BIGINT, Fraction(-5), Fraction(5), Fraction(1)),
    },
    UnitColumn("person"),
    max_rows_per_unit=3,
)


def prepare(rows: list[Row], table: Table = VISITS, units_in: Path | None = None) -> dict[str, list[tuple[Any, ...]]]:
    """Rows, index and dictionary as prepared, with the person's own value in front."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pq.write_table(
            pa.table([list(column) for column in zip(*rows, strict=True)], schema=SCHEMA), folder / "in.parquet"
        )
        job = {
            "do": "build",
            "kind": "parquet",
            "files": [f"{folder}/in.parquet"],
            "source_table": None,
            "table": table_to_json(table),
            "folder": f"{folder}",
            "units_in": str(units_in) if units_in else None,
            "parent": None,
        }
        here, there = socket.socketpair()
        with open_database({"memory_bytes": 2**28, "threads": 2}, job) as connection:
            Build(connection, job, here, 2**28).run()
        here.close()
        there.close()
        with duckdb.connect() as database:
            database.execute(
                f"ATTACH '{folder}/rows.duckdb' AS r (READ_ONLY); ATTACH '{folder}/units.duckdb' AS u (READ_ONLY)"
            )
            joined = 'r.main.{} JOIN (SELECT "#unit", "value" AS who, "key" FROM u.main.units) USING ("#unit")'
            return {
                "rows": database.execute(
                    'SELECT who, person, ward, pay, days, "pay#", "days#", "#rank"'
                    f' FROM {joined.format("rows")} ORDER BY "#rank"'
                ).fetchall(),
                "units": database.execute(
                    f'SELECT who, rows, "pay#abs", "days#abs", "key" FROM {joined.format("units")}'
                ).fetchall(),
            }


rows_of_few = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(1, 4)),
        st.sampled_from(["a", "b", "ééé"]),  # the last is cut
        st.one_of(st.none(), st.floats(-20, 20), st.sampled_from([float("nan"), float("inf"), 0.125])),
        st.integers(-9, 9),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=12, deadline=None)
@given(rows_of_few)
def test_everybody_elses_rows_codes_and_keys_are_the_same_without_one_person(rows: list[Row]) -> None:
    rows = [*rows, (5, "a", 1.0, 1), (6, "a", 1.0, 1)]
    leaver = rows[0][0] if rows[0][0] is not None else 5
    uncapped = Table(VISITS.name, VISITS.columns, VISITS.unit)
    before, after = prepare(rows, uncapped), prepare([row for row in rows if row[0] != leaver], uncapped)
    assert sorted(repr(row[:-1]) for row in before["rows"] if row[0] != leaver) == sorted(
        repr(row[:-1]) for row in after["rows"]
    )
    assert sorted(row for row in before["units"] if row[0] != leaver) == sorted(after["units"])


@settings(max_examples=8, deadline=None)
@given(rows_of_few)
def test_a_cap_touches_only_those_above_it_and_leaves_them_exactly_the_cap(rows: list[Row]) -> None:
    given_rows: dict[int, int] = defaultdict(int)
    for row in [*rows, (6, "a", 1.0, 1)]:
        if row[0] is not None:
            given_rows[row[0]] += 1
    kept = {who: rows_kept for who, rows_kept, *_ in prepare([*rows, (6, "a", 1.0, 1)])["units"]}
    assert kept == {who: min(3, count) for who, count in given_rows.items()}


def first_places(people: int, each: int, *, rank: str) -> list[int]:
    """How often the row that comes first by rank stood at each place of its person's rows in the file."""
    uncapped = Table(VISITS.name, VISITS.columns, VISITS.unit)
    rows: list[Row] = [(person, "a", None, place - 4) for place in range(each) for person in range(people)]
    seen = [0] * each
    first: dict[int, int] = {}
    ordered = prepare(rows, uncapped)["rows"]
    if rank == "place":
        ordered.sort(key=lambda row: row[4])
    for row in ordered:
        first.setdefault(row[0], row[4] + 4)
    for place in first.values():
        seen[place] += 1
    return seen


def test_ranks_do_not_depend_on_the_place_in_the_file() -> None:
    """With secret salts each of a person's rows is first with the same chance, wherever it stands."""
    assert chisquare(first_places(4000, 5, rank="#rank")).pvalue > FALSE_ALARM


def test_the_check_catches_ranks_in_file_order() -> None:
    assert chisquare(first_places(4000, 5, rank="place")).pvalue < FALSE_ALARM


def test_ranks_count_from_zero_and_are_drawn_afresh_for_every_version() -> None:
    rows: list[Row] = [(person, "a", None, place) for place in range(4) for person in range(500)]
    uncapped = Table(VISITS.name, VISITS.columns, VISITS.unit)
    first, second = ({(row[0], row[4]): row[-1] for row in prepare(rows, uncapped)["rows"]} for _ in range(2))
    assert all({first[person, place] for place in range(4)} == {0, 1, 2, 3} for person in range(500))
    same = sum(first[row] == second[row] for row in first)
    assert same / len(first) < 0.5, "a quarter of 2,000 rows keep their rank by chance, not half"
