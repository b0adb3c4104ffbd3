"""What admins do, over HTTP with real files and a real ledger."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from service.catalog.apply import read_catalog
from tests.fixtures.service import House, open_house

ORDERS: dict[str, Any] = {
    "source": {"kind": "parquet", "path": "orders.parquet"},
    "private": True,
    "unit": {"column": "customer_id"},
    "columns": {"amount": {"type": "DECIMAL(10,2)", "bounds": [0, 5]}, "order_id": {"unique": True}},
}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("admin")
    opened = open_house(folder, requests_per_minute=1_000_000)
    write(
        folder / "sources" / "orders.parquet", [{"order_id": i, "customer_id": i % 5, "amount": i} for i in range(20)]
    )
    (folder / "outside.parquet").write_bytes((folder / "sources" / "orders.parquet").read_bytes())
    os.symlink(folder / "outside.parquet", folder / "sources" / "link.parquet")
    yield opened
    opened.close()


def write(file: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), file)


def put(house: House, table: str, declared: dict[str, Any]) -> dict[str, Any]:
    begun = house.ask("PUT", f"/v1/datasets/shop/tables/{table}", json=declared)
    assert begun.status_code == 202, begun.text
    deadline = time.monotonic() + 60
    while True:
        state: dict[str, Any] = house.ask("GET", begun.headers["location"]).json()
        if state["state"] != "running":
            return state
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_table_is_imported_and_analysts_see_only_its_declaration(house: House) -> None:
    state = put(house, "orders", ORDERS)
    assert (state["state"], state["percent"]) == ("done", 100)
    assert "outside its bounds" in state["detail"], "the admin hears about clamping"
    shown = house.ask("GET", "/v1/datasets/shop", "analyst").json()
    assert shown["tables"]["orders"]["columns"]["amount"] == {"type": "DECIMAL(10,2)", "bounds": [0, 5], "step": 0.01}
    assert shown["data_version"] == 1
    assert house.ask("GET", f"/v1/imports/{state['id']}", "analyst").status_code == 403
    assert state["started_at"] <= state["finished_at"]


def test_a_declaration_comes_back_as_it_would_be_applied(house: House) -> None:
    put(house, "orders", ORDERS)
    declared = house.ask("GET", "/v1/datasets/shop/declaration").json()
    assert declared["tables"]["orders"]["source"] == ORDERS["source"]
    assert read_catalog(yaml.safe_dump({"datasets": {"shop": declared}})).datasets["shop"].unit == "customer"
    assert house.ask("GET", "/v1/datasets/shop/declaration", "analyst").status_code == 403


def test_a_table_of_a_duckdb_file_is_imported(house: House) -> None:
    folder = house.books.store.engine.url.database
    assert folder is not None
    with duckdb.connect(str(Path(folder).parent / "sources" / "till.duckdb")) as till:
        till.execute("CREATE TABLE slips AS SELECT i AS slip, i % 5 AS customer_id FROM range(50) t(i)")
    source = {"kind": "duckdb", "path": "till.duckdb", "table": "slips"}
    declared = {"source": source, "private": True, "unit": {"column": "customer_id"}}
    assert put(house, "slips", declared)["state"] == "done"
    del source["table"]
    assert house.ask("PUT", "/v1/datasets/shop/tables/slips", json=declared).status_code == 422
    assert house.ask("DELETE", "/v1/datasets/shop/tables/slips").status_code == 204


def test_uniqueness_that_does_not_hold_is_refused_and_the_old_version_serves(house: House) -> None:
    put(house, "orders", ORDERS)
    before = house.ask("GET", "/v1/datasets/shop").json()
    state = put(house, "orders", {**ORDERS, "columns": {"customer_id": {"unique": True}}})
    assert state["state"] == "failed"
    assert "unique" in state["detail"]
    assert house.ask("GET", "/v1/datasets/shop").json() == before


def test_inspection_is_for_admins_and_leaves_an_entry(house: House) -> None:
    path = "/v1/datasets/shop/tables/orders/inspect"
    found = house.ask("POST", path, json=ORDERS["source"]).json()
    assert {column["source_name"] for column in found["columns"]} == {"order_id", "customer_id", "amount"}
    assert house.ask("POST", path, "analyst", json=ORDERS["source"]).status_code == 403
    assert house.ask("GET", "/v1/audit?limit=1000").json()[-1]["body"]["act"] == "table.inspect"
    early = house.ask("POST", "/v1/datasets/not_yet/tables/orders/inspect", json=ORDERS["source"])
    assert early.status_code == 200, "one looks before one declares"
    seen = house.ask("GET", "/v1/audit?limit=1000").json()[-1]
    assert (seen["dataset"], seen["body"]["what"]["subject"]) == (None, "not_yet.orders")
    assert house.ask("POST", "/v1/ledger/verify").json()["holds"]


@pytest.mark.parametrize(
    "path",
    ["../outside.parquet", "/etc/passwd", "link.parquet", "https://x.example/a.parquet", "nowhere.parquet", "a\x00b"],
)
def test_only_files_inside_the_source_folders_are_read(house: House, path: str) -> None:
    declared = {**ORDERS, "source": {"kind": "parquet", "path": path}}
    response = house.ask("PUT", "/v1/datasets/shop/tables/bad", json=declared)
    assert (response.status_code, response.json()["code"]) == (422, "source-refused")
    assert "bad" not in house.ask("GET", "/v1/datasets/shop").json()["tables"]


def test_the_same_people_under_another_name_are_refused(house: House) -> None:
    put(house, "orders", ORDERS)
    assert house.ask("PUT", "/v1/datasets/twin", json={"unit": "customer", "epsilon": "3"}).status_code in (200, 201)
    response = house.ask("PUT", "/v1/datasets/twin/tables/orders", json=ORDERS)
    assert (response.status_code, response.json()["code"]) == (409, "conflict")


@pytest.mark.parametrize("name", ["Shop", "sh%20op", "1shop", "x" * 64, "%3Cb%3E", "a%00"])
def test_names_are_plain(house: House, name: str) -> None:
    assert house.ask("PUT", f"/v1/datasets/{name}", json={"unit": "a", "epsilon": "1"}).status_code in (404, 422)


def test_deleting_and_declaring_again_does_not_refill_the_budget(house: House) -> None:
    declared = {"unit": "guest", "epsilon": "2", "delta": "1e-6"}
    assert house.ask("PUT", "/v1/datasets/inn", json=declared).status_code == 201
    grant = {"epsilon": "1", "reason": "half for now"}
    assert house.ask("POST", "/v1/datasets/inn/grants", json=grant).status_code == 201
    opened = house.books.ledger.balance("inn")
    assert house.ask("DELETE", "/v1/datasets/inn?reason=over").status_code == 204
    assert house.ask("GET", "/v1/datasets/inn").status_code == 404
    assert house.ask("DELETE", "/v1/datasets/inn").status_code == 404
    declared["epsilon"] = "1"
    declared["ceiling"] = {"epsilon": "2", "delta": "1e-6"}  # type: ignore[assignment]
    house.ask("PUT", "/v1/datasets/inn", json=declared)
    assert house.books.ledger.balance("inn") == opened


def test_a_grant_stays_within_the_ceiling_and_a_higher_ceiling_is_a_new_promise(house: House) -> None:
    assert house.ask("PUT", "/v1/datasets/cafe", json={"unit": "guest", "epsilon": "1"}).status_code == 201
    over = house.ask("POST", "/v1/datasets/cafe/grants", json={"epsilon": "2", "reason": "more"})
    assert (over.status_code, over.json()["code"]) == (422, "loss-out-of-range")
    raised = {"unit": "guest", "epsilon": "2", "ceiling": {"epsilon": "2"}}
    assert house.ask("PUT", "/v1/datasets/cafe", json=raised).status_code == 200
    assert house.books.ledger.balance("cafe").epsilon_granted == 2 * 10**12
    kinds = [entry["kind"] for entry in house.ask("GET", "/v1/datasets/cafe/ledger").json()]
    assert kinds == ["open", "note", "ceiling", "note"]
    lower = {"unit": "guest", "epsilon": "1", "ceiling": {"epsilon": "1"}}
    assert house.ask("PUT", "/v1/datasets/cafe", json=lower).status_code == 409


def test_an_epsilon_above_the_ceiling_does_not_weaken_the_promise_by_the_way(house: House) -> None:
    """Only a declaration that names a ceiling raises it; without one the epsilon moves below what was promised."""
    promised = {"unit": "guest", "epsilon": "3", "delta": "1e-6"}
    assert house.ask("PUT", "/v1/datasets/pub", json=promised).status_code == 201
    over = house.ask("PUT", "/v1/datasets/pub", json={**promised, "epsilon": "5"})
    assert (over.status_code, over.json()["code"]) == (422, "loss-out-of-range")
    assert "`ceiling`" in over.json()["remedy"]
    assert house.ask("PUT", "/v1/datasets/pub", json={**promised, "epsilon": "2"}).status_code == 200
    balance = house.books.ledger.balance("pub")
    assert (balance.epsilon_granted, balance.terms.epsilon_ceiling) == (2 * 10**12, 3 * 10**12)


def test_a_grant_stays_when_only_other_things_are_declared_anew(house: House) -> None:
    declared = {"unit": "guest", "epsilon": "2"}
    assert house.ask("PUT", "/v1/datasets/bar", json=declared).status_code == 201
    assert house.ask("POST", "/v1/datasets/bar/grants", json={"epsilon": "1", "reason": "slowly"}).status_code == 201
    assert house.ask("PUT", "/v1/datasets/bar", json={**declared, "unit": "regular"}).status_code == 200
    assert house.books.ledger.balance("bar").epsilon_granted == 10**12
    assert house.ask("PUT", "/v1/datasets/bar", json={**declared, "window": "month"}).status_code == 200
    assert house.books.ledger.balance("bar").window == "month"


def test_declaring_the_same_again_changes_nothing(house: House) -> None:
    declared = {"unit": "customer", "epsilon": "3", "delta": "1e-6"}
    before = len(house.ask("GET", "/v1/audit?limit=1000").json())
    assert house.ask("PUT", "/v1/datasets/shop", json=declared).status_code == 200
    assert len(house.ask("GET", "/v1/audit?limit=1000").json()) == before


@pytest.mark.parametrize(
    "large",
    [
        {"epsilon": "20.000000000001"},
        {"epsilon": "1", "delta": "0.0011"},
        {"epsilon": "1", "ceiling": {"epsilon": "21", "delta": "0"}},
    ],
)
def test_a_weak_promise_must_be_said_out_loud(house: House, large: dict[str, Any]) -> None:
    name = f"weak_{len(house.ask('GET', '/v1/datasets').json())}"
    refused = house.ask("PUT", f"/v1/datasets/{name}", json={"unit": "guest"} | large)
    assert (refused.status_code, refused.json()["field"]) == (422, "weak")
    assert "weak promise" in refused.json()["detail"] and '"weak": true' in refused.json()["remedy"]
    declared = {"unit": "guest", "weak": True} | large
    made = house.ask("PUT", f"/v1/datasets/{name}", json=declared)
    assert made.status_code == 201
    assert "is above" in made.json()["weak"] == house.ask("GET", f"/v1/datasets/{name}").json()["weak"]
    assert house.ask("PUT", f"/v1/datasets/{name}", json={"unit": "other guest"} | large).status_code == 200
    assert house.ask("GET", "/v1/datasets/shop").json()["weak"] is None


def test_at_the_edge_a_promise_is_not_weak_and_raising_it_beyond_must_be_said(house: House) -> None:
    edge = {"unit": "guest", "epsilon": "20", "delta": "0.001"}
    assert house.ask("PUT", "/v1/datasets/edge", json=edge).json()["weak"] is None
    raised = edge | {"ceiling": {"epsilon": "30", "delta": "0.001"}}
    assert house.ask("PUT", "/v1/datasets/edge", json=raised).status_code == 422
    assert house.ask("PUT", "/v1/datasets/edge", json=raised | {"weak": True}).status_code == 200
    assert house.ask("GET", "/v1/datasets/edge").json()["ceiling"] == {"epsilon": "30", "delta": "0.001"}


def test_quotas_are_set_for_keys_that_exist(house: House) -> None:
    prefix = house.keys["analyst"].split("_")[1]
    assert house.ask("PUT", f"/v1/datasets/shop/quotas/{prefix}", json={"share": "0.25"}).status_code == 200
    assert house.books.ledger.quota("shop", prefix).limit == 25 * 10**10
    assert house.ask("PUT", "/v1/datasets/shop/quotas/nobody", json={"share": "0.25"}).status_code == 404
    assert house.ask("PUT", f"/v1/datasets/shop/quotas/{prefix}", json={"share": None}).status_code == 200


def test_pause_and_resume_are_entries_with_a_reason(house: House) -> None:
    assert house.ask("POST", "/v1/datasets/shop/pause", json={"reason": "looking"}).status_code == 204
    assert house.books.ledger.balance("shop").paused
    assert house.ask("POST", "/v1/datasets/shop/resume", json={"reason": "looked"}).status_code == 204
    assert not house.books.ledger.balance("shop").paused
    assert house.ask("POST", "/v1/datasets/shop/pause", json={"reason": ""}).status_code == 422


def test_a_person_is_resumed_by_name_or_by_key_and_their_events_are_shown(house: House) -> None:
    made = house.ask("POST", "/v1/keys", json={"name": "second", "role": "analyst", "owner": "Ann B."}).json()
    assert made["owner"] == "Ann B."
    listed = {key["prefix"]: key["owner"] for key in house.ask("GET", "/v1/keys").json()}
    assert listed[made["prefix"]] == "Ann B."
    alone = house.keys["analyst"].split("_")[1]
    assert listed[alone] == alone
    whom = {"owner": "Ann B.", "reason": "too many failures"}
    assert house.ask("POST", "/v1/datasets/shop/pause", json=whom).status_code == 204
    shown = house.ask("GET", "/v1/datasets/shop/events").json()
    assert not shown["paused"] and shown["safety_factor"] == 4
    assert {"owner": "Ann B.", "paused": True}.items() <= shown["owners"][0].items()
    by_key = {"key": made["prefix"], "reason": "looked into it"}
    assert house.ask("POST", "/v1/datasets/shop/resume", json=by_key).status_code == 204
    assert not house.books.ledger.allowance("shop", "Ann B.").paused
    entry = house.ask("GET", "/v1/audit?limit=1000").json()[-1]
    assert (entry["kind"], entry["body"]["owner"], entry["body"]["why"]) == ("resume", "Ann B.", "looked into it")


def test_whom_to_resume_must_be_somebody(house: House) -> None:
    path = "/v1/datasets/shop/resume"
    assert house.ask("POST", path, json={"owner": "nobody", "reason": "r"}).status_code == 404
    assert house.ask("POST", path, json={"key": "nobody", "reason": "r"}).status_code == 404
    both = {"owner": "nobody", "key": "nobody", "reason": "r"}
    assert house.ask("POST", path, json=both).status_code == 422
    assert house.ask("GET", "/v1/datasets/nowhere/events").status_code == 404
    assert house.ask("GET", "/v1/datasets/shop/events", "analyst").status_code == 403
    assert house.ask("POST", path, "analyst", json={"reason": "r"}).status_code == 403


def test_keys_are_shown_once_stored_as_hash_and_expire(house: House) -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=0.6)).isoformat()
    made = house.ask("POST", "/v1/keys", json={"name": "short", "role": "viewer", "expires_at": soon}).json()
    assert made["key"] not in house.ask("GET", "/v1/keys").text
    assert (made["datasets"], made["expires_at"][:10]) == ([], soon[:10])
    secret = made["key"].split("_", 2)[2]
    store = house.books.store.engine.url.database
    assert store is not None
    assert secret.encode() not in Path(store).read_bytes()
    headers = {"Authorization": f"Bearer {made['key']}"}
    assert house.client.get("/v1/datasets", headers=headers).status_code == 200
    time.sleep(0.7)
    assert house.client.get("/v1/datasets", headers=headers).status_code == 401
    past = {"name": "late", "role": "viewer", "expires_at": "2020-01-01T00:00:00Z"}
    assert house.ask("POST", "/v1/keys", json=past).status_code == 422
    assert (
        house.ask("POST", "/v1/keys", json={"name": "x", "role": "analyst", "datasets": ["nowhere"]}).status_code == 422
    )
    assert house.ask("POST", "/v1/keys", json={"name": "<script>", "role": "analyst"}).status_code == 422


def test_the_last_admin_key_can_not_be_revoked(house: House) -> None:
    mine = house.keys["admin"].split("_")[1]
    refused = house.ask("DELETE", f"/v1/keys/{mine}")
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert house.ask("DELETE", "/v1/keys/nobody").status_code == 404
    other = house.ask("POST", "/v1/keys", json={"name": "second", "role": "admin"}).json()
    assert house.ask("DELETE", f"/v1/keys/{other['prefix']}").status_code == 204


def test_a_table_that_others_stand_on_can_not_be_deleted(house: House) -> None:
    put(house, "orders", ORDERS)
    lines = {
        "source": {"kind": "parquet", "path": "lines.parquet"},
        "private": True,
        "unit": {"via": {"column": "order_id", "references": "orders.order_id"}},
    }
    folder = house.books.store.engine.url.database
    assert folder is not None
    write(Path(folder).parent / "sources" / "lines.parquet", [{"order_id": i % 20, "pieces": i} for i in range(40)])
    assert put(house, "lines", lines)["state"] == "done"
    assert house.ask("DELETE", "/v1/datasets/shop/tables/orders").status_code == 409
    assert house.ask("DELETE", "/v1/datasets/shop/tables/lines?reason=done").status_code == 204
    assert "lines" not in house.ask("GET", "/v1/datasets/shop").json()["tables"]
    assert house.ask("DELETE", "/v1/datasets/shop/tables/lines").status_code == 404


def test_a_dataset_that_a_panel_shows_can_not_be_deleted(house: House) -> None:
    panel = {"dataset": "shop", "sql": "SELECT COUNT(*) AS n FROM orders", "epsilon": "0.1", "budget": "1"}
    assert house.ask("PUT", "/v1/panels/orders_now", json=panel).status_code in (200, 201)
    refused = house.ask("DELETE", "/v1/datasets/shop")
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert house.ask("DELETE", "/v1/panels/orders_now").status_code == 204


def test_every_act_is_in_the_chain_and_the_chain_holds(house: House) -> None:
    assert house.ask("POST", "/v1/ledger/verify").json()["holds"] is True
    for entry in house.ask("GET", "/v1/audit?limit=1000").json():
        assert entry["who"]
        assert house.keys["admin"] not in str(entry)


@pytest.mark.parametrize("query", ["limit=１", "limit=٣", "after=²"])
def test_digits_of_other_scripts_are_no_digits_in_an_address(house: House, query: str) -> None:
    assert house.ask("GET", f"/v1/audit?{query}").status_code == 422
