"""What the data itself tells must not reach analysts for free: no counts, extremes, paths, sizes or timings."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.admin import COMMAND_LINE
from service.catalog.declare import TableDeclaration
from tests.fixtures.service import House, open_house

ROWS, LARGEST = 12_347, 98_765


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("metadata")
    opened = open_house(folder, requests_per_minute=1_000_000, metrics=True)
    values = [i % 1000 for i in range(ROWS - 1)] + [LARGEST]
    table = pa.table({"person": list(range(ROWS)), "amount": values, "note": ["x"] * ROWS})
    pq.write_table(table, folder / "sources" / "payments.parquet")
    declared = TableDeclaration.model_validate(
        {
            "source": {"kind": "parquet", "path": "payments.parquet"},
            "private": True,
            "unit": {"column": "person"},
            "columns": {"amount": {"bounds": [0, 100_000]}},
        }
    )
    opened.books.administration.put_table("shop", "payments", declared, actor=COMMAND_LINE)
    opened.books.administration.wait("shop", "payments")
    yield opened
    opened.close()


def test_nothing_that_an_analyst_can_read_holds_a_measurement(house: House) -> None:
    assert "payments" in house.ask("GET", "/v1/datasets/shop", "analyst").json()["tables"]
    for role in ("analyst", "viewer"):
        for path in ("/v1/datasets", "/v1/datasets/shop", "/v1/datasets/shop/budget", "/v1/panels", "/openapi.json"):
            response = house.ask("GET", path, role)
            for measured in (str(ROWS), str(ROWS - 1), str(LARGEST), "payments.parquet"):
                assert measured not in response.text, f"{measured} in {path}"
            assert "server-timing" not in response.headers


def test_what_is_measured_is_for_admins_only(house: House) -> None:
    source = {"kind": "parquet", "path": "payments.parquet"}
    found = house.ask("POST", "/v1/datasets/shop/tables/payments/inspect", json=source)
    assert str(LARGEST) in found.text, "the admin does see it, so the test above looks for the right thing"
    for role in ("analyst", "viewer"):
        assert house.ask("POST", "/v1/datasets/shop/tables/payments/inspect", role, json=source).status_code == 403
        for path in ("/v1/datasets/shop/declaration", "/v1/datasets/shop/ledger", "/v1/audit", "/metrics", "/v1/keys"):
            assert house.ask("GET", path, role).status_code == 403


def test_the_journal_does_not_hold_what_an_inspection_saw(house: House) -> None:
    entries = house.ask("GET", "/v1/audit?limit=1000").text
    assert "table.inspect" in entries
    assert str(LARGEST) not in entries
    assert str(ROWS) not in entries


def test_an_undeclared_type_does_not_depend_on_values(house: House) -> None:
    """Numbers written as text stay text: one person's value must not change what everybody sees."""
    sources = Path(str(house.books.store.engine.url.database)).parent / "sources"
    for name, last in (("all_numbers", "7"), ("one_word", "seven")):
        text = "person,value\n" + "".join(f"{i},{i}\n" for i in range(50)) + f"50,{last}\n"
        (sources / f"{name}.csv").write_text(text)
        declared = TableDeclaration.model_validate(
            {
                "source": {"kind": "csv", "path": f"{name}.csv"},
                "private": True,
                "unit": {"column": "person"},
                "columns": {"person": {"type": "BIGINT"}},
            }
        )
        house.books.administration.put_table("shop", name, declared, actor=COMMAND_LINE)
        house.books.administration.wait("shop", name)
    tables = house.ask("GET", "/v1/datasets/shop", "analyst").json()["tables"]
    assert tables["all_numbers"]["columns"] == tables["one_word"]["columns"]
    assert tables["one_word"]["columns"]["value"] == {"type": "VARCHAR", "max_bytes": 256}
