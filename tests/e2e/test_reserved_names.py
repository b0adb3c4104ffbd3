"""Names that a new table may not have: over HTTP, from a catalog file, on the command line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.catalog.declare import TableDeclaration
from service.cli import main
from tests.fixtures.service import House, open_house

PLACES: dict[str, Any] = {"source": {"kind": "parquet", "path": "places.parquet"}, "private": False}
RESERVED = ["core_0", "core_1", "core_12", "core_007"]
CATALOG = """
datasets:
  club:
    unit: member
    epsilon: "2"
    tables:
      places: {source: {kind: parquet, path: places.parquet}, private: false}
      %s: {source: {kind: parquet, path: places.parquet}, private: false}
"""


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    opened = open_house(tmp_path)
    write_places(tmp_path)
    yield opened
    opened.close()


def write_places(folder: Path) -> None:
    pq.write_table(pa.table({"place": ["a", "b"]}), folder / "sources" / "places.parquet")


@pytest.mark.parametrize("name", RESERVED)
def test_over_http_a_reserved_name_is_refused_and_nothing_declared(house: House, name: str) -> None:
    response = house.ask("PUT", f"/v1/datasets/shop/tables/{name}", json=PLACES)
    assert (response.status_code, response.json()["code"]) == (422, "catalog-refused")
    assert "core_0, core_1" in response.json()["detail"]
    assert "another name" in response.json()["remedy"]
    assert house.ask("GET", "/v1/datasets/shop/declaration").json()["tables"] == {}


@pytest.mark.parametrize("name", ["%23keys", "__halftone", "_units", "Core_0"])
def test_names_of_our_own_fit_no_pattern(house: House, name: str) -> None:
    assert house.ask("PUT", f"/v1/datasets/shop/tables/{name}", json=PLACES).status_code == 422


def test_names_that_only_look_alike_are_free(house: House) -> None:
    for name in ("core", "core_", "core_a", "core_0a", "score_0"):
        assert house.ask("PUT", f"/v1/datasets/shop/tables/{name}", json=PLACES).status_code == 202
        house.books.administration.wait("shop", name)
    assert set(house.books.catalog.schema("shop").tables) == {"core", "core_", "core_a", "core_0a", "score_0"}


def test_a_table_that_was_declared_before_the_rule_keeps_working(house: House) -> None:
    declared = TableDeclaration.model_validate(PLACES)
    house.books.catalog.begin_import("shop", "core_0", declared, lambda *_: None)
    assert house.ask("PUT", "/v1/datasets/shop/tables/core_0", json=PLACES).status_code == 202
    house.books.administration.wait("shop", "core_0")
    assert "core_0" in house.ask("GET", "/v1/datasets/shop", "analyst").json()["tables"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.setenv("HALFTONE_DATA_DIR", str(tmp_path))
    (tmp_path / "sources").mkdir()
    write_places(tmp_path)
    assert main(["migrate"]) == 0
    capsys.readouterr()
    return tmp_path


@pytest.mark.parametrize("name", ["core_0", "'#keys'", "__halftone", "_units"])
def test_a_catalog_file_with_such_a_name_is_refused_before_any_of_it_is_done(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (folder / "catalog.yaml").write_text(CATALOG % name)
    assert main(["apply", str(folder / "catalog.yaml"), "--yes"]) == 1
    said = capsys.readouterr().err
    assert "core_0, core_1" in said if name == "core_0" else "begins with a letter" in said
    assert main(["dataset", "list"]) == 0
    assert "club" not in capsys.readouterr().out


def test_the_command_line_refuses_it_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "dataset.json").write_text('{"unit": "member", "epsilon": "2"}')
    (folder / "table.json").write_text(json.dumps(PLACES))
    assert main(["dataset", "put", "club", str(folder / "dataset.json")]) == 0
    for name, said in (
        ("core_3", "core_0, core_1"),
        ("#keys", "begins with a letter"),
        ("__halftone", "begins with a letter"),
        ("../outside", "begins with a letter"),
    ):
        assert main(["dataset", "table", "club", name, str(folder / "table.json")]) == 1
        assert said in capsys.readouterr().err
    assert main(["dataset", "put", "../outside", str(folder / "dataset.json")]) == 1
    assert "can not be the name of a dataset" in capsys.readouterr().err
    assert main(["dataset", "table", "club", "places", str(folder / "table.json")]) == 0
