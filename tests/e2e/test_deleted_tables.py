"""What was deleted stays deleted: whoever imports meanwhile, whoever was killed, and whatever is declared since."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from service.catalog.declare import TableDeclaration
from service.catalog.tables import public_file, table
from service.core.errors import Conflict
from tests.fixtures.claimed import private, public, put, refused, write
from tests.fixtures.service import House, open_house

JAN, FEB = "orders/jan.parquet", "orders/feb.parquet"
TWICE = {"columns": {"customer_id": {"unique": True}}}  # customers come back, so such an import fails
OPEN = "/v1/datasets/twin/tables/open"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    opened = open_house(tmp_path, requests_per_minute=1_000_000)
    opened.ask("PUT", "/v1/datasets/twin", json={"unit": "customer", "epsilon": "3"})
    (tmp_path / "sources" / "orders").mkdir()
    for number, path in enumerate((JAN, FEB)):
        write(tmp_path / "sources" / path, number)
    yield opened
    opened.close()


@contextmanager
def importing(house: House, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Imports that begin in here end after it."""
    go_on = threading.Event()
    queue = house.books.administration._queue
    carry_out = queue._import

    def wait(*given: Any) -> None:
        go_on.wait(60)
        carry_out(*given)

    monkeypatch.setattr(queue, "_import", wait)
    yield
    go_on.set()


def fail(house: House, name: str, declared: dict[str, Any]) -> None:
    """Declare a table whose import fails."""
    dataset, table_name = name.split(".")
    response = house.ask("PUT", f"/v1/datasets/{dataset}/tables/{table_name}", json={**declared, **TWICE})
    assert response.status_code == 202
    house.books.administration.wait(dataset, table_name)
    assert house.ask("GET", response.headers["location"]).json()["state"] == "failed"


def killed_after_the_commit(house: House, dataset: str, table_name: str) -> None:
    """A deletion as a killed process leaves it: gone from the catalog, still prepared."""
    house.books.catalog.delete_table(dataset, table_name, lambda *_: None)


def served(house: House, dataset: str) -> set[str]:
    return set(house.books.catalog.schema(dataset).tables)


def prepared(house: House, dataset: str) -> set[str]:
    held = house.books.administration._importer.prepared(dataset)
    return set() if held is None else set(held.tables)


def test_a_deletion_beside_an_import_is_refused_and_changes_nothing(house: House) -> None:
    put(house, "twin.open", public(JAN))
    with house.books.administration._importer.still("twin") as still:
        assert still
        for _ in range(2):
            assert house.ask("DELETE", OPEN).status_code == 409
        refused(house, "shop.orders", private(JAN), "public in twin.open")
        refused(house, "twin.open", private(JAN), "public in twin.open")
    assert served(house, "twin") == {"open"}
    assert house.ask("DELETE", OPEN).status_code == 204
    assert prepared(house, "twin") == set()
    assert put(house, "shop.orders", private(JAN)).status_code == 202


def test_a_table_is_not_deleted_in_its_first_import(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    with importing(house, monkeypatch):
        house.ask("PUT", OPEN, json=public(JAN))
        response = house.ask("DELETE", OPEN)
        assert (response.status_code, "wait until" in response.json()["detail"]) == (409, True)
        refused(house, "shop.orders", private(JAN), "public in twin.open")
    house.books.administration.wait("twin", "open")
    refused(house, "shop.orders", private(JAN), "public in twin.open")
    assert house.ask("DELETE", OPEN).status_code == 204
    assert put(house, "shop.orders", private(JAN)).status_code == 202


def test_an_import_that_a_killed_process_left_does_not_keep_a_table(house: House) -> None:
    put(house, "twin.open", public(JAN))
    house.books.catalog.begin_import("twin", "more", TableDeclaration.model_validate(public(FEB)), lambda *_: None)
    assert house.ask("DELETE", OPEN).status_code == 204


@pytest.mark.parametrize("where", ["shop", "twin"])
def test_a_public_table_that_was_deleted_comes_back_by_its_own_import_only(house: House, where: str) -> None:
    """Its file is private by now: in another dataset, or in the same table."""
    put(house, "twin.open", public(JAN))
    killed_after_the_commit(house, "twin", "open")
    if where == "shop":
        put(house, "shop.orders", private(JAN))
    fail(house, "twin.open", public(FEB) if where == "shop" else private(JAN))
    assert served(house, "twin") == set() == prepared(house, "twin")
    house.books.administration.start()
    assert served(house, "twin") == set()


def test_a_private_table_that_was_deleted_comes_back_by_its_own_import_only(house: House) -> None:
    put(house, "shop.orders", private(JAN))
    killed_after_the_commit(house, "shop", "orders")
    fail(house, "shop.orders", private(FEB))
    assert served(house, "shop") == set()
    assert put(house, "shop.orders", private(FEB)).status_code == 202
    assert served(house, "shop") == {"orders"}


def test_what_is_left_of_a_deletion_goes_before_the_table_is_declared_again(house: House) -> None:
    put(house, "twin.open", public(JAN))
    killed_after_the_commit(house, "twin", "open")
    with house.books.administration._importer.still("twin"):
        refused(house, "twin.open", public(FEB), "another import")
    assert put(house, "twin.open", public(FEB)).status_code == 202


def test_a_version_of_before_the_deletion_is_not_followed(house: House) -> None:
    """Declared again by a process that did not see what was left: the number of the version tells."""
    put(house, "shop.orders", private(JAN))
    killed_after_the_commit(house, "shop", "orders")
    house.books.catalog.begin_import("shop", "orders", TableDeclaration.model_validate(private(FEB)), lambda *_: None)
    house.books.administration.start()
    assert served(house, "shop") == set()


def test_an_import_that_ends_after_its_table_was_deleted_serves_nothing(house: House) -> None:
    put(house, "twin.open", public(JAN))
    catalog = house.books.catalog
    built = catalog.schema("twin").tables["open"]
    model = TableDeclaration.model_validate(public(JAN))
    import_id = catalog.begin_import("twin", "open", model, lambda *_: None)
    with pytest.raises(Conflict):
        catalog.delete_table("twin", "open", lambda *_: None)
    catalog.delete_table("twin", "open", lambda *_: None, left={import_id})
    catalog.finish_import(import_id, built, data_version=2, detail="", sizes=lambda profiles: {})
    assert catalog.find_import(import_id)["state"] == "failed"
    catalog.begin_import("twin", "open", model, lambda *_: None)
    assert served(house, "twin") == set()


@pytest.mark.parametrize("claimed", [True, False])
def test_the_catalog_does_not_follow_to_a_public_table_whose_file_is_private(house: House, claimed: bool) -> None:
    put(house, "twin.open", public(JAN))

    def forget(tx: Any) -> None:
        tx.execute(table.update().values(serving=None, data_version=None))
        tx.execute(public_file.delete())

    house.books.store.write(forget)
    if claimed:
        put(house, "shop.orders", private(JAN))
    house.books.administration.start()
    assert served(house, "twin") == (set() if claimed else {"open"})
