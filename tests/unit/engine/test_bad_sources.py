"""Sources and declarations that can not be imported: refused in words, and whatever served before still does."""

import copy
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest

from service.core.errors import CatalogRefused, SourceRefused
from service.core.schema import BIGINT, DOUBLE, VARCHAR, Column, SqlType, UnitColumn, UnitVia
from service.engine.duckdb.importing.import_child import ImportOptions
from service.engine.duckdb.importing.importer import DuckDBImporter
from service.engine.duckdb.importing.reading import ImportRefused, open_relation
from service.engine.sources import Source
from tests.unit.engine.place import LINES, ORDERS, TYPES, VISITS, Place, import_chain, import_visits, refuse
from tests.unit.engine.shop import table, write_parquet


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A version that serves, and must still serve after everything that follows."""
    place = Place(tmp_path_factory.mktemp("served"))
    import_visits(place)
    return place


def write_and_leave_log(file: Path) -> Path:
    """A DuckDB file whose table is in its log only, as a writer that was killed leaves it; where the log lies."""
    write = (
        f"import duckdb, os; c = duckdb.connect({str(file)!r}); c.execute('CHECKPOINT');"
        f" c.execute('CREATE TABLE visits ({TYPES})'); c.execute('INSERT INTO visits VALUES (7, NULL, 3)');"
        " os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", write], check=True)
    log = file.with_name(file.name + ".wal")
    assert log.stat().st_size > 0
    return log


class TestBadInput:
    def test_uniqueness_that_the_data_breaks(self, served: Place) -> None:
        columns = {**VISITS.columns, "person": replace(VISITS.columns["person"], unique=True)}
        refuse(served, replace(VISITS, columns=columns), Source("parquet", "visits.parquet"), "unique")

    def test_a_missing_column(self, served: Place) -> None:
        columns = {**VISITS.columns, "nurse": Column("nurse", VARCHAR)}
        refuse(served, replace(VISITS, columns=columns), Source("parquet", "visits.parquet"), "no column nurse")

    def test_a_missing_unit_column(self, served: Place) -> None:
        refuse(served, replace(VISITS, unit=UnitColumn("patient")), Source("parquet", "visits.parquet"), "not declared")

    def test_a_column_that_has_become_another_type(self, served: Place) -> None:
        source = write_parquet(
            served.sources, "typed", [(1, "a", "many"), (2, "b", "few")], "person BIGINT, ward VARCHAR, days VARCHAR"
        )
        refuse(served, VISITS, source, "can be read as BIGINT")

    def test_bounds_that_no_value_meets(self, served: Place) -> None:
        source = write_parquet(served.sources, "beyond", [(1, "a", 11), (2, "b", -1)], TYPES)
        refuse(served, VISITS, source, "within its bounds")

    def test_units_that_are_all_null(self, served: Place) -> None:
        source = write_parquet(served.sources, "nobody", [(None, "a", 1)], TYPES)
        refuse(served, VISITS, source, "unit")

    def test_a_truncated_file(self, served: Place) -> None:
        whole = (served.sources / "visits.parquet").read_bytes()
        (served.sources / "cut.parquet").write_bytes(whole[: len(whole) // 2])
        refuse(served, VISITS, Source("parquet", "cut.parquet"), "could not be read")

    def test_garbage_inside_a_parquet_file(self, served: Place) -> None:
        whole = bytearray((served.sources / "visits.parquet").read_bytes())
        for place in range(4, len(whole) - 200, 3):
            whole[place] ^= 0xA5
        (served.sources / "garbage.parquet").write_bytes(bytes(whole))
        refuse(served, VISITS, Source("parquet", "garbage.parquet"), "")

    @pytest.mark.parametrize("kind", ["parquet", "csv", "duckdb"])
    def test_a_file_of_another_kind(self, served: Place, kind: Any) -> None:
        (served.sources / "noise.bin").write_bytes(bytes(range(256)) * 50)
        refuse(served, VISITS, Source(kind, "noise.bin", "t" if kind == "duckdb" else None), "")

    def test_an_empty_csv(self, served: Place) -> None:
        (served.sources / "empty.csv").write_text("")
        refuse(served, VISITS, Source("csv", "empty.csv"), "")

    def test_a_view_in_a_duckdb_file_is_somebody_elses_sql(self, served: Place) -> None:
        with duckdb.connect(str(served.sources / "view.duckdb")) as database:
            database.execute(
                "CREATE VIEW visits AS SELECT 1 AS person, content AS ward, 1 AS days FROM read_text('/etc/passwd')"
            )
        refuse(served, VISITS, Source("duckdb", "view.duckdb", "visits"), "no such table")

    @pytest.mark.parametrize("log", ["file", "link", "link to nothing"])
    def test_a_duckdb_file_with_a_log_beside_it(self, served: Place, tmp_path: Path, log: str) -> None:
        """What is in the log was neither claimed nor hashed, and a link leads out of the source folders."""
        file = served.sources / f"logged {log}.duckdb"
        left = write_and_leave_log(tmp_path / "left.duckdb")
        shutil.copy(tmp_path / "left.duckdb", file)
        beside = file.with_name(file.name + ".wal")
        if log == "file":
            shutil.copy(left, beside)
        else:
            beside.symlink_to(left if log == "link" else tmp_path / "nothing")
        source = Source("duckdb", file.name, "visits")
        refuse(served, VISITS, source, ".wal lies beside")
        with pytest.raises(SourceRefused) as refused:
            served.importer.column_types(source)
        assert "CHECKPOINT" in str(refused.value.extra["remedy"])

    def test_a_log_that_comes_and_goes_while_the_file_is_opened(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        left = write_and_leave_log(tmp_path / "left.duckdb")
        monkeypatch.setattr(os.path, "lexists", lambda _: False)
        with duckdb.connect() as database, pytest.raises(ImportRefused, match="lies beside"):
            open_relation(database, {"kind": "duckdb", "files": [str(left)[:-4]], "source_table": "visits"})

    def test_units_of_another_type_than_the_datasets(self, served: Place) -> None:
        other = table("other", Column("person", VARCHAR), unit=UnitColumn("person"))
        source = write_parquet(served.sources, "other", [("x",)], "person VARCHAR")
        refuse(served, other, source, "named by BIGINT")

    def test_more_memory_than_allowed(self, served: Place) -> None:
        with duckdb.connect() as database:
            database.execute(
                "COPY (SELECT 1::BIGINT AS person, repeat('x', 60000000) AS ward, 1::BIGINT AS days FROM range(12))"
                f" TO '{served.sources}/wide.parquet' (ROW_GROUP_SIZE 2048)"
            )
        narrow = copy.copy(served)
        narrow.importer = DuckDBImporter(served.data, [served.sources], ImportOptions(64 * 2**20, threads=1))
        refuse(narrow, VISITS, Source("parquet", "wide.parquet"), "")

    @pytest.mark.parametrize(
        "column",
        [
            Column("days", BIGINT, Fraction(0), None, Fraction(1)),
            Column("days", BIGINT, Fraction(5), Fraction(1), Fraction(1)),
            Column("days", BIGINT, Fraction(0), Fraction(1), Fraction(0)),
            Column("days", VARCHAR, Fraction(0), Fraction(1), Fraction(1)),
            Column("days", DOUBLE, Fraction(0), Fraction(1), Fraction(1, 2**60)),
            Column("days", BIGINT, Fraction(0), Fraction(2**62), Fraction(1)),
            Column("days", SqlType("DECIMAL", 38, 37), Fraction(0), Fraction(1), Fraction(10**5)),
            Column("days", BIGINT, Fraction(0), Fraction(0), Fraction(1, 2**130)),
        ],
    )
    def test_bounds_that_no_code_can_be_made_of(self, served: Place, column: Column) -> None:
        declared = replace(VISITS, columns={**VISITS.columns, "days": column})
        refuse(served, declared, Source("parquet", "visits.parquet"), "days")


def test_when_one_of_them_can_not_follow_nothing_changes(place: Place) -> None:
    import_chain(place)
    (place.sources / "parts.parquet").unlink()
    refuse(place, ORDERS, Source("parquet", "orders.parquet"), "no parquet file")


def test_foreign_keys_need_a_unique_private_target_of_the_same_type(place: Place) -> None:
    import_chain(place)
    source = Source("parquet", "lines.parquet")
    refuse(place, replace(LINES, unit=UnitVia("order_id", "nowhere", "id")), source, "imported before")
    refuse(place, replace(LINES, unit=UnitVia("order_id", "orders", "person")), source, "unique")
    text = table(
        "lines", Column("order_id", VARCHAR), Column("line", BIGINT), unit=UnitVia("order_id", "orders", "order_id")
    )
    refuse(place, text, source, "type")


def test_names_that_the_database_keeps_for_itself_are_refused(place: Place) -> None:
    source = write_parquet(place.sources, "t", [(1, 2)], "p BIGINT, rowid BIGINT")
    declared = table("t", Column("p", BIGINT), Column("rowid", BIGINT), unit=UnitColumn("p"))
    with pytest.raises(CatalogRefused):
        place.importer.prepare("d", declared, source)


def test_an_unreadable_file_can_not_be_inspected(place: Place) -> None:
    (place.sources / "noise.parquet").write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(SourceRefused):
        place.importer.inspect(Source("parquet", "noise.parquet"))
    assert not list(place.data.glob("inspect-*"))
