"""Importing: what comes out, in which version, and what the admin hears of it."""

import threading
import time
from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest

from service.core.errors import Conflict, NotFound
from service.core.prepared import UNIT_COLUMNS, index_columns, row_columns
from service.core.schema import BIGINT, BOOLEAN, DATE, DOUBLE, TIMESTAMP, VARCHAR, Column, SqlType, UnitColumn
from service.engine.duckdb.importing.import_child import ImportOptions
from service.engine.duckdb.importing.importer import DuckDBImporter
from service.engine.reports import Progress
from service.engine.sources import Source
from tests.unit.engine.place import ORDERS, ROWS, TYPES, VISITS, Place, import_chain, import_visits, refuse
from tests.unit.engine.shop import table, write_parquet


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_every_kind_of_source_gives_the_same_table(place: Place) -> None:
    source = write_parquet(place.sources, "visits", ROWS, TYPES)
    whole = place.sources / "visits.parquet"
    (place.sources / "parts").mkdir()
    with duckdb.connect() as database:
        database.execute(f"COPY (FROM '{whole}') TO '{place.sources}/visits.csv'")
        database.execute(
            f"COPY (SELECT days, ward, person FROM '{whole}' LIMIT 2) TO '{place.sources}/parts/1.parquet'"
        )
        database.execute(f"COPY (FROM '{whole}' OFFSET 2) TO '{place.sources}/parts/2.parquet'")
        database.execute(f"ATTACH '{place.sources}/file.duckdb' AS f; CREATE TABLE f.visits AS FROM '{whole}'")
    seen = []
    for given in (
        source,
        Source("csv", "visits.csv"),
        Source("parquet", "parts"),
        Source("parquet", "parts/*.parquet"),
        Source("duckdb", "file.duckdb", "visits"),
        Source("duckdb", "file.duckdb", "main.visits"),
    ):
        prepared = place.importer.prepare("d", VISITS, given)
        assert prepared.rows == 4
        seen.append(place.read("visits", 'SELECT person, ward, days, "days#" FROM rows ORDER BY ALL'))
    assert seen[0] == [(7, "a", 3, 3), (7, "b", 12, 10), (8, "b", 4, 4), (9, "c", None, None)]
    assert all(other == seen[0] for other in seen)


def test_the_prepared_copy_has_the_names_and_types_that_everybody_relies_on(place: Place) -> None:
    """And every kind of column that can be declared."""
    columns = (
        Column("p", BIGINT),
        Column("b", BOOLEAN, Fraction(0), Fraction(1), Fraction(1)),
        Column("x", DOUBLE, Fraction(-1), Fraction(1), Fraction(1, 8)),
        Column("m", SqlType("DECIMAL", 10, 2), Fraction(0), Fraction(9), Fraction(1, 100)),
        Column("d", DATE, Fraction(0), Fraction(9), Fraction(1)),
        Column("s", TIMESTAMP, Fraction(0), Fraction(9), Fraction(1)),
        Column("t", VARCHAR),
    )
    types = ", ".join(f"{column.name} {column.type}" for column in columns)
    row = (1, True, 0.5, "1.23", date(1970, 1, 2), datetime(1970, 1, 1), "a")
    source = write_parquet(place.sources, "all", [row], types)
    for declared in (table("private", *columns, unit=UnitColumn("p")), table("public", *columns, unit=None)):
        place.importer.prepare("d", declared, source)
        assert described(place, declared.name, "rows") == row_columns(declared)
        if declared.private:
            assert described(place, declared.name, "units") == index_columns(declared)
    assert described(place, "#units", "units").items() >= UNIT_COLUMNS.items()


def described(place: Place, name: str, inner: str) -> dict[str, SqlType]:
    found = place.read(name, f"DESCRIBE {inner}")
    decimal = SqlType("DECIMAL", 10, 2)
    return {column: decimal if kind == str(decimal) else SqlType(kind) for column, kind, *_ in found}


def test_columns_that_nobody_declares_take_the_files_own_type_whatever_they_hold(place: Place) -> None:
    types = {
        "a": ("INTEGER", "BIGINT"), "b": ("UTINYINT", "BIGINT"), "c": ("UBIGINT", "DECIMAL(38,0)"),
        "d": ("FLOAT", "DOUBLE"), "e": ("DECIMAL(9,3)", "DECIMAL(9,3)"), "f": ("VARCHAR", "VARCHAR"),
        "g": ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP"), "h": ("DATE", "DATE"), "i": ("BOOLEAN", "BOOLEAN"),
        "j": ("STRUCT(a INTEGER)", None), "k": ("DECIMAL(9,3)[]", None), "l": ("BLOB", None),
    }  # fmt: skip
    source = write_parquet(place.sources, "all", [], ", ".join(f"{name} {kind}" for name, (kind, _) in types.items()))
    assert place.importer.column_types(source) == {name: own for name, (_, own) in types.items()}
    (place.sources / "numbers.csv").write_text("n\n1\n")
    assert place.importer.column_types(Source("csv", "numbers.csv")) == {"n": "VARCHAR"}


def test_the_admin_hears_what_was_lost(place: Place) -> None:
    prepared = import_visits(place)
    assert prepared.data_version == 1
    assert [warning.split(" ", 1)[0] for warning in prepared.warnings] == ["20.0%", "25.0%", "25.0%"]
    assert "no unit" in prepared.warnings[0]
    assert "days" in prepared.warnings[1]
    assert "ward" in prepared.warnings[2]


LONG = table(
    "notes",
    Column("who", VARCHAR, max_bytes=8),
    Column("n", VARCHAR, max_bytes=5),
    Column("code", VARCHAR, unique=True, max_bytes=4),
    unit=UnitColumn("who"),
)
NOTES: list[tuple[object, ...]] = [
    ("anna", "short", "c1"), ("anna", "longer", "c2"), ("a" * 8, "éééé", "longcode1"), ("a" * 8 + "1", "x", "c3"),
    ("a" * 8 + "2", "y", "longcode2"), (None, "z", "c4"),
]  # fmt: skip


def test_long_texts_are_cut_long_keys_are_missing_and_the_admin_hears_how_many(place: Place) -> None:
    source = write_parquet(place.sources, "notes", NOTES, "who VARCHAR, n VARCHAR, code VARCHAR")
    prepared = place.importer.prepare("d", LONG, source)
    assert place.read("notes", "SELECT who, n, code FROM rows ORDER BY ALL") == [
        ("a" * 8, "éé", None),
        ("anna", "longe", "c2"),
        ("anna", "short", "c1"),
    ]
    assert prepared.warnings[1:] == (
        "2 values of who have more than 8 bytes and count as missing: keys are never cut. Declare a larger max_bytes.",
        "2 values of n have more than 5 bytes and were cut.",
        "2 values of code have more than 4 bytes and count as missing: keys are never cut. Declare a larger max_bytes.",
    )
    short = replace(LONG, columns=LONG.columns | {"who": Column("who", VARCHAR, max_bytes=2)})
    refuse(place, short, source, "no row of the source has a unit of at most 2 bytes")


def test_a_table_that_was_declared_before_texts_had_a_limit_is_prepared_as_it_was(place: Place) -> None:
    source = write_parquet(place.sources, "notes", NOTES, "who VARCHAR, n VARCHAR, code VARCHAR")
    before = {name: replace(column, max_bytes=None) for name, column in LONG.columns.items()}
    prepared = place.importer.prepare("d", replace(LONG, columns=before), source)
    assert place.read("notes", "SELECT max(strlen(who)), max(strlen(n)), max(strlen(code)) FROM rows") == [(9, 8, 9)]
    assert len(prepared.warnings) == 1


def test_progress_is_told_in_steps(place: Place) -> None:
    told: list[Progress] = []
    source = write_parquet(place.sources, "visits", ROWS, TYPES)
    place.importer.prepare("d", VISITS, source, told.append)
    assert told[0].step == 0
    assert [progress.step for progress in told] == sorted(progress.step for progress in told)
    assert all(progress.step < progress.steps and progress.part < progress.parts for progress in told)


def test_rows_are_ordered_by_unit_also_when_sorted_in_ranges(place: Place) -> None:
    with duckdb.connect() as database:
        database.execute(
            "COPY (SELECT (hash(i) % 5000)::BIGINT AS person, 'a' AS ward, i % 20 AS days FROM range(400000) t(i))"
            f" TO '{place.sources}/big.parquet'"
        )
    told: list[Progress] = []
    place.importer = DuckDBImporter(place.data, [place.sources], ImportOptions(100 * 2**20, threads=2))
    place.importer.prepare("d", VISITS, Source("parquet", "big.parquet"), told.append)
    assert max(progress.parts for progress in told) > 1
    checks = (
        'count(*), count(*) FILTER (WHERE "#unit" < before), count(DISTINCT "#unit"),'
        ' count(DISTINCT ("#unit", "#rank")), sum("days#"), count(*) FILTER (WHERE "days#" <> least(days, 10))'
    )
    (row,) = place.read(
        "visits", f'SELECT {checks} FROM (SELECT *, lag("#unit") OVER (ORDER BY rowid) AS before FROM rows)'
    )
    expected = sum(min(number % 20, 10) for number in range(400_000))
    assert row == (400_000, 0, 5000, 400_000, expected, 0)
    assert place.read("visits", 'SELECT sum(rows), sum("days#abs") FROM units') == [(400_000, expected)]


def test_codes_of_units_never_change_and_new_people_get_new_ones(place: Place) -> None:
    import_visits(place)
    before = dict(place.read("#units", 'SELECT "value", "#unit" FROM units'))
    keys = dict(place.read("#units", 'SELECT "value", "key" FROM units'))
    assert sorted(before) == [7, 8, 9]
    assert len(set(keys.values())) == 3
    import_visits(place, [(100, "a", 1), (8, "a", 1), (1, "b", 2)])
    after = dict(place.read("#units", 'SELECT "value", "#unit" FROM units'))
    assert {person: after[person] for person in before} == before
    assert sorted(after.values()) == [0, 1, 2, 3, 4]
    assert {
        person: key for person, key in place.read("#units", 'SELECT "value", "key" FROM units') if person in keys
    } == keys


def test_new_people_with_most_rows_get_the_lowest_codes(place: Place) -> None:
    """Rows are stored by code: those of heavy people lie together, before everybody else's."""
    import_visits(place, [(person, "a", 1) for person in range(50) for _ in range(person + 1)])
    codes = dict(place.read("#units", 'SELECT "value", "#unit" FROM units'))
    assert codes == {person: 49 - person for person in range(50)}
    import_visits(place, [(person, "a", 1) for person in (60, 61, 61, 7)])
    later = dict(place.read("#units", 'SELECT "value", "#unit" FROM units'))
    assert later == codes | {61: 50, 60: 51}


def test_an_import_without_new_people_keeps_the_dictionary_file(place: Place) -> None:
    import_visits(place)
    first = place.manifest.units_file
    import_visits(place, ROWS[:2])
    assert place.manifest.units_file == first
    assert place.manifest.data_version == 2


def test_a_cap_on_rows_of_a_unit_keeps_its_lowest_ranks(place: Place) -> None:
    rows: list[tuple[object, ...]] = [(1, "a", day % 10) for day in range(50)] + [(2, "a", 1), (3, "b", 2)]
    prepared = import_visits(place, rows, replace(VISITS, max_rows_per_unit=5))
    assert prepared.rows == 7
    assert place.read("visits", "SELECT rows FROM units ORDER BY rows DESC") == [(5,), (1,), (1,)]
    assert any("max_rows_per_unit" in warning for warning in prepared.warnings)


def test_units_are_reached_through_a_chain_of_foreign_keys(place: Place) -> None:
    import_chain(place)
    assert place.read("parts", "SELECT part FROM rows ORDER BY part") == [("x",), ("y",)]
    people = dict(place.read("#units", 'SELECT "#unit", "value" FROM units'))
    assert [people[unit] for _, unit in place.read("parts", 'SELECT part, "#unit" FROM rows ORDER BY part')] == [1, 2]


def test_a_new_version_of_a_table_brings_those_that_hang_on_it_along(place: Place) -> None:
    import_chain(place)
    orders = write_parquet(place.sources, "orders", [(10, 2), (12, 1), (99, 5)], "order_id BIGINT, person BIGINT")
    place.importer.prepare("d", ORDERS, orders)
    assert place.manifest.data_version == 4
    people = dict(place.read("#units", 'SELECT "#unit", "value" FROM units'))
    found = {part: people[unit] for part, unit in place.read("parts", 'SELECT part, "#unit" FROM rows')}
    assert found == {"x": 2, "z": 1, "w": 5}


def test_a_table_is_removed_unless_others_hang_on_it(place: Place) -> None:
    import_chain(place)
    with pytest.raises(Conflict):
        place.importer.remove("d", "orders")
    assert place.importer.remove("d", "parts") == 4
    assert sorted(place.manifest.tables) == ["lines", "orders"]
    assert place.importer.remove("d", "parts") is None
    assert place.manifest.data_version == 4


def test_what_comes_before_a_removal_has_the_dataset_for_itself(place: Place) -> None:
    import_chain(place)

    def refuse_beside() -> None:
        with pytest.raises(Conflict):
            place.importer.remove("d", "lines")
        raise NotFound("there is no such table")

    with pytest.raises(NotFound):
        place.importer.remove("d", "parts", first=refuse_beside)
    assert sorted(place.manifest.tables) == ["lines", "orders", "parts"]


def test_public_tables_have_no_units(place: Place) -> None:
    wards = table(
        "wards",
        Column("ward", VARCHAR, unique=True),
        Column("beds", BIGINT, Fraction(0), Fraction(5), Fraction(1)),
        unit=None,
    )
    source = write_parquet(
        place.sources, "wards", [("a", 3), ("b", 9), (None, 1), (None, 2)], "ward VARCHAR, beds BIGINT"
    )
    place.importer.prepare("d", wards, source)
    assert place.read("wards", "FROM rows ORDER BY beds") == [(None, 1, 1), (None, 2, 2), ("a", 3, 3), ("b", 9, 5)]
    assert place.manifest.units_file is None
    twice = write_parquet(place.sources, "twice", [("a", 3), ("a", 9)], "ward VARCHAR, beds BIGINT")
    refuse(place, wards, twice, "unique")


def test_the_type_of_units_may_change_when_nobody_else_holds_codes(place: Place) -> None:
    import_visits(place)
    text = replace(VISITS, columns={**VISITS.columns, "person": Column("person", VARCHAR)})
    source = write_parquet(place.sources, "visits", ROWS, TYPES)
    place.importer.prepare("d", text, source)
    assert place.manifest.unit_type == "VARCHAR"
    assert sorted(place.read("#units", 'SELECT "value" FROM units')) == [("7",), ("8",), ("9",)]


def test_two_imports_of_one_dataset_exclude_each_other(place: Place) -> None:
    started, proceed = threading.Event(), threading.Event()

    def hold(_: Progress) -> None:
        started.set()
        proceed.wait(20)

    source = write_parquet(place.sources, "visits", ROWS, TYPES)
    first = threading.Thread(target=place.importer.prepare, args=("d", VISITS, source, hold))
    first.start()
    try:
        assert started.wait(20)
        with pytest.raises(Conflict):
            place.importer.prepare("d", VISITS, source)
    finally:
        proceed.set()
        first.join()
    assert place.manifest.data_version == 1


def test_leftovers_are_cleaned_and_the_serving_version_is_not(place: Place) -> None:
    import_visits(place)
    serving = place.files()
    (place.folder / "_build-dead" / "visits").mkdir(parents=True)
    (place.folder / "_build-dead" / "visits" / "rows.duckdb").write_text("x")
    (place.folder / "visits" / "v9.duckdb").write_text("x")
    place.importer.clean()
    assert place.files() == serving
    assert not list(place.folder.glob("_build-*"))


def test_files_of_the_version_before_stay_for_one_more_import(place: Place) -> None:
    for number in range(1, 4):
        import_visits(place)
        kept = {f"visits/v{version}.duckdb" for version in (number - 1, number) if version > 0}
        assert {file for file in place.files() if file.startswith("visits/")} == kept


def test_a_columns_own_name_in_the_file_is_found(place: Place) -> None:
    with duckdb.connect() as database:
        database.execute(f"COPY (SELECT 1 AS \"Person Id\", 'a' AS WARD, 2 AS days) TO '{place.sources}/named.parquet'")
    columns = {**VISITS.columns, "person": Column("person", BIGINT, source_name="Person Id")}
    assert place.importer.prepare("d", replace(VISITS, columns=columns), Source("parquet", "named.parquet")).rows == 1


def test_inspection_suggests_a_declaration(place: Place) -> None:
    with duckdb.connect() as database:
        database.execute(
            "COPY (SELECT i AS id, i % 77 AS person, 'w' || (i % 3) AS ward, (i / 4)::DOUBLE AS x,"
            " DATE '2024-01-01' + (i % 30)::INTEGER AS \"day\", CASE WHEN i % 2 = 0 THEN i END AS gap,"
            f" (i % 100) / 4::DECIMAL(10,2) AS pay FROM range(1000) t(i)) TO '{place.sources}/in.csv'"
        )
    found = place.importer.inspect(Source("csv", "in.csv"))
    assert (found.rows, found.complete) == (1000, True)
    columns = {column.source_name: column for column in found.columns}
    assert {name: column.type for name, column in columns.items()} == {
        "id": "BIGINT",
        "person": "BIGINT",
        "ward": "VARCHAR",
        "x": "DOUBLE",
        "day": "DATE",
        "gap": "BIGINT",
        "pay": "DOUBLE",
    }
    assert [name for name, column in columns.items() if column.unique] == ["id", "x"]
    assert columns["person"].unit_candidate
    assert not columns["gap"].unit_candidate
    assert columns["ward"].domain == ("w0", "w1", "w2")
    assert columns["gap"].null_share == 0.5
    assert (columns["id"].low, columns["id"].high) == ("0", "999")
    assert (columns["day"].low, columns["day"].high) == ("2024-01-01", "2024-01-30")


def test_days_beyond_the_calendar_are_missing(place: Place) -> None:
    declared = table("t", Column("p", BIGINT), Column("d", DATE), Column("s", TIMESTAMP), unit=UnitColumn("p"))
    with duckdb.connect() as database:
        database.execute(
            "COPY (SELECT * FROM (VALUES (1, DATE 'infinity', TIMESTAMP '-infinity'),"
            " (2, DATE '9999-12-31', TIMESTAMP '9999-12-31 23:59:59.999999'),"
            " (3, DATE '10000-01-01', TIMESTAMP '10000-01-01'), (4, DATE '0001-01-01', TIMESTAMP '0001-01-01'),"
            f" (5, DATE '0001-01-01 (BC)', TIMESTAMP '0001-01-01 (BC)')) t(p, d, s)) TO '{place.sources}/t.parquet'"
        )
    place.importer.prepare("d", declared, Source("parquet", "t.parquet"))
    found = place.read("t", "SELECT p, d IS NULL, s IS NULL FROM rows ORDER BY p")
    assert found == [(1, True, True), (2, False, False), (3, True, True), (4, False, False), (5, True, True)]


@pytest.mark.parametrize("name", ["rows", "units", "value", "select"])
def test_any_other_name_may_be_a_table_and_a_column(place: Place, name: str) -> None:
    source = write_parquet(place.sources, "t", [(1, 2), (1, 3)], f'"{name}" BIGINT, p BIGINT')
    columns = (Column(name, BIGINT, Fraction(0), Fraction(9), Fraction(1)), Column("p", BIGINT))
    declared = table(name, *columns, unit=UnitColumn(name))
    assert place.importer.prepare("d", replace(declared, max_rows_per_unit=1), source).rows == 1


def test_an_import_serves_from_a_rung_on_however_soon_it_is_ready(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who watches the version learns how long it took in coarse steps only; without a step, when it was ready."""
    slept: list[float] = []
    monkeypatch.setattr("service.engine.duckdb.importing.import_child.time.sleep", slept.append)
    import_visits(place)
    assert slept == []
    place.importer = DuckDBImporter(place.data, [place.sources], ImportOptions(threads=2, step_s=1000.0))
    began = time.monotonic()
    import_visits(place)
    took = time.monotonic() - began
    (waited,) = slept
    assert 60 - took <= waited <= 60, "beyond a minute, the next whole one"
    place.importer = DuckDBImporter(place.data, [place.sources], ImportOptions(threads=2, step_s=50.0))
    import_visits(place)
    assert 50 - 10 <= slept[1] <= 50
