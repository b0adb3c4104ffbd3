"""A place to import into, and a small table of visits to import."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest

from service.core.errors import CatalogRefused, SourceRefused
from service.core.schema import BIGINT, VARCHAR, Column, Table, UnitColumn, UnitVia
from service.engine.duckdb import manifest as manifests
from service.engine.duckdb.importing.import_child import ImportOptions
from service.engine.duckdb.importing.importer import DuckDBImporter
from service.engine.sources import Source
from tests.unit.engine.shop import table, write_parquet

MEMORY = 256 * 2**20
VISITS = table(
    "visits",
    Column("person", BIGINT),
    Column("ward", VARCHAR, domain=("a", "b")),
    Column("days", BIGINT, Fraction(0), Fraction(10), Fraction(1)),
    unit=UnitColumn("person"),
)
TYPES = "person BIGINT, ward VARCHAR, days BIGINT"
ROWS: list[tuple[object, ...]] = [(7, "a", 3), (8, "b", 4), (7, "b", 12), (None, "a", 1), (9, "c", None)]


class Place:
    """A data folder, a sources folder, an importer, and a look at what was prepared."""

    def __init__(self, folder: Path) -> None:
        self.data, self.sources = folder / "data", folder / "sources"
        self.sources.mkdir()
        self.importer = DuckDBImporter(self.data, [self.sources], ImportOptions(MEMORY, threads=2))
        self.folder = manifests.dataset_folder(self.data, "d")

    @property
    def manifest(self) -> manifests.Manifest:
        held = manifests.load_manifest(self.folder)
        assert held is not None
        return held

    def read(self, name: str, sql: str) -> list[tuple[Any, ...]]:
        """`sql` over the prepared file of a table (rows, units) or the dictionary ("#units")."""
        file = self.manifest.units_file if name == "#units" else self.manifest.tables[name].file
        with duckdb.connect(str(self.folder / str(file)), read_only=True) as database:
            return database.execute(sql).fetchall()

    def files(self) -> set[str]:
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*.duckdb*")}


def import_visits(place: Place, rows: list[tuple[object, ...]] = ROWS, declared: Table = VISITS) -> Any:
    source = write_parquet(place.sources, "visits", rows, TYPES)
    return place.importer.prepare("d", declared, source)


def refuse(place: Place, declared: Table, source: Source, words: str) -> None:
    """The import is refused in words, and whatever served before still does."""
    before = manifests.load_manifest(place.folder)
    files = place.files() if before else set()
    with pytest.raises((SourceRefused, CatalogRefused)) as refused:
        place.importer.prepare("d", declared, source)
    assert words in refused.value.detail
    assert manifests.load_manifest(place.folder) == before
    assert (place.files() if before else set()) == files


ORDERS = table("orders", Column("order_id", BIGINT, unique=True), Column("person", BIGINT), unit=UnitColumn("person"))
LINES = table(
    "lines",
    Column("order_id", BIGINT),
    Column("line", BIGINT, unique=True),
    unit=UnitVia("order_id", "orders", "order_id"),
)
PARTS = table("parts", Column("line", BIGINT), Column("part", VARCHAR), unit=UnitVia("line", "lines", "line"))


def import_chain(place: Place) -> None:
    orders = write_parquet(place.sources, "orders", [(10, 1), (11, 2), (12, None)], "order_id BIGINT, person BIGINT")
    lines = write_parquet(place.sources, "lines", [(10, 1), (11, 2), (12, 3), (99, 4)], "order_id BIGINT, line BIGINT")
    parts = write_parquet(place.sources, "parts", [(1, "x"), (2, "y"), (3, "z"), (4, "w")], "line BIGINT, part VARCHAR")
    for declared, source in ((ORDERS, orders), (LINES, lines), (PARTS, parts)):
        place.importer.prepare("d", declared, source)
