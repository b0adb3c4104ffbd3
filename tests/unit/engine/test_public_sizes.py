"""The size of a public table is exact and reaches the catalog; that of a private one is not told."""

from pathlib import Path

import pytest

from service.app import open_books
from service.catalog.declare import DatasetDeclaration, TableDeclaration
from service.core.schema import BIGINT, DOUBLE, VARCHAR, Column, Table
from service.core.sizes import PublicSize
from service.settings import Settings
from service.store.migrate import upgrade
from tests.unit.engine.place import Place, import_visits
from tests.unit.engine.shop import write_parquet

DAYS = Table("days", {c.name: c for c in (Column("day", BIGINT), Column("label", VARCHAR), Column("x", DOUBLE))}, None)
TYPES = "day BIGINT, label VARCHAR, x DOUBLE"
NAN = float("nan")
ROWS: list[tuple[object, ...]] = [
    (1, "ab", 0.0),
    (1, "ä", -0.0),
    (2, "ab", NAN),
    (3, None, NAN),
    (None, "ab", NAN),
    (None, None, None),
    (None, "längst", 1.0),
]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_rows_most_frequent_values_and_longest_texts_are_exact(place: Place) -> None:
    source = write_parquet(place.sources, "days", ROWS, TYPES)
    assert place.importer.prepare("d", DAYS, source).size == PublicSize(
        7,
        {"day": 2, "label": 3, "x": 3},  # three NULLs join with nothing; 0.0 is -0.0, and NaN is NaN
        {"label": 7},  # bytes, not letters
    )


def test_an_empty_table_has_a_size_too(place: Place) -> None:
    source = write_parquet(place.sources, "days", [], TYPES)
    assert place.importer.prepare("d", DAYS, source).size == PublicSize(0, {"day": 0, "label": 0, "x": 0}, {"label": 0})


def test_what_a_value_is_is_what_a_join_finds_equal(place: Place) -> None:
    """Else a join could meet more rows than the most frequent value has."""
    source = write_parquet(place.sources, "days", ROWS, TYPES)
    size = place.importer.prepare("d", DAYS, source).size
    assert size is not None
    for column in DAYS.columns:
        met = f'SELECT max(n) FROM (SELECT count(*) AS n FROM rows a JOIN rows b ON a."{column}" = b."{column}"'
        ((most,),) = place.read("days", f"{met} GROUP BY a.rowid)")
        assert most == size.most_of_one_value[column]


def test_a_private_table_tells_no_size(place: Place) -> None:
    assert import_visits(place).size is None


def test_the_catalog_gives_it_to_planning(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, time_step_ms=0)
    (tmp_path / "sources").mkdir()
    write_parquet(tmp_path / "sources", "days", ROWS, TYPES)
    upgrade(settings.store_url)
    books = open_books(settings)
    try:
        declared = {"unit": "person", "epsilon": "1", "delta": "1e-6"}
        books.administration.put_dataset("shop", DatasetDeclaration.model_validate(declared), actor="admin")
        table = {"private": False, "source": {"kind": "parquet", "path": "days.parquet"}}
        books.administration.put_table("shop", "days", TableDeclaration.model_validate(table), actor="admin")
        books.administration.wait("shop", "days")
        size = books.catalog.schema("shop").sizes["days"]
    finally:
        books.close()
    assert isinstance(size, PublicSize)
    assert (size.rows, size.most_of_one_value["day"]) == (7, 2)
