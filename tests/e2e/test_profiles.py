"""Profiles over HTTP and at the command line: what admins may ask for, what analysts see, and what is refused."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.cli import main
from service.core.sizes import BINS
from service.walk import profiling
from tests.fixtures.service import House, open_house

PATH = "/v1/datasets/shop/tables/orders"
ORDERS: dict[str, Any] = {
    "source": {"kind": "parquet", "path": "orders.parquet"},
    "private": True,
    "unit": {"column": "customer"},
}
PUBLIC = {"source": {"kind": "parquet", "path": "codes.parquet"}, "private": False}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profiles")


@pytest.fixture(scope="module")
def house(folder: Path) -> Iterator[House]:
    """2,000 customers with one order and 2,000 with three, and a public table."""
    opened = open_house(folder, requests_per_minute=1_000_000)
    customers = [*range(4000), *range(2000), *range(2000)]
    pq.write_table(pa.table({"customer": customers}), folder / "sources" / "orders.parquet")
    pq.write_table(pa.table({"code": [1, 2, 3]}), folder / "sources" / "codes.parquet")
    for table, declared in (("orders", ORDERS), ("codes", PUBLIC)):
        assert opened.ask("PUT", f"/v1/datasets/shop/tables/{table}", json=declared).status_code == 202
        opened.books.administration.wait("shop", table)
    yield opened
    opened.close()


def test_analysts_see_the_profile_with_its_noise_and_its_cost(house: House) -> None:
    tables = house.ask("GET", "/v1/datasets/shop", "analyst").json()["tables"]
    assert (tables["codes"]["size"], tables["codes"]["profile"]) == (None, None)
    shown, size = tables["orders"]["profile"], tables["orders"]["size"]
    assert shown["words"].startswith("about ") and ", half of the customers have at most " in shown["words"]
    assert [(each["fewest_rows"], each["most_rows"]) for each in shown["bins"][:4]] == [(1, 1), (2, 2), (3, 4), (5, 8)]
    assert (len(shown["bins"]), shown["bins"][-1]["most_rows"]) == (BINS, None)
    assert abs(shown["bins"][0]["units"] - 2000) < 30 * shown["noise_std"]
    assert shown["cost"]["rho"] is None and 0 < float(shown["cost"]["share"]) <= 0.001
    assert "discrete Laplace" in shown["noise"]
    assert size["rows_per_unit_at_most"] == 8
    assert size["rows_at_most"] > 8000 and size["units_at_most"] > 3000


def test_an_admin_asks_again_and_pays_again(house: House) -> None:
    before = house.ask("GET", "/v1/datasets/shop", "viewer").json()["tables"]["orders"]["profile"]
    spent = house.books.ledger.balance("shop").spent[-1]
    made = house.ask("POST", f"{PATH}/profile", json={"share": "0.01", "reason": "a better one"})
    assert made.status_code == 201
    body = made.json()
    assert (body["table"], body["rows_per_unit_now"], body["rows_per_unit_next"]) == ("orders", 8, 8)
    assert body["profile"]["noise_std"] < before["noise_std"]
    after = house.ask("GET", "/v1/datasets/shop", "viewer").json()["tables"]["orders"]["profile"]
    assert after == body["profile"] != before
    assert house.books.ledger.balance("shop").spent[-1] > spent
    noted, reset = house.ask("GET", "/v1/audit?limit=1000").json()[-2:]
    what = noted["body"]
    assert (what["act"], what["what"]["subject"], what["why"]) == ("table.profile", "shop.orders", "a better one")
    assert (reset["kind"], reset["who"], reset["body"]["safety"]) == ("safety", noted["who"], "4")
    entries = house.ask("GET", "/v1/datasets/shop/ledger?limit=1000").json()
    charge = [entry for entry in entries if entry["kind"] == "reserve"][-1]
    assert (charge["who"], charge["body"]["receipt"]["profile"]) == ("import", "orders")
    assert house.ask("POST", "/v1/ledger/verify").json()["holds"]


@pytest.mark.parametrize("role", ["analyst", "viewer"])
def test_only_admins_may_buy_one(house: House, role: str) -> None:
    assert house.ask("POST", f"{PATH}/profile", role, json={}).status_code == 403


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (f"{PATH}/profile", {"share": "0"}, 422, "loss-out-of-range"),
        (f"{PATH}/profile", {"share": "-0.1"}, 422, "loss-out-of-range"),
        (f"{PATH}/profile", {"share": "0.5"}, 422, "loss-out-of-range"),
        (f"{PATH}/profile", {"share": "a lot"}, 422, "loss-out-of-range"),
        (f"{PATH}/profile", {"share": "1e-12"}, 422, "loss-out-of-range"),
        (f"{PATH}/profile", {"share": [1]}, 422, "request-malformed"),
        (f"{PATH}/profile", {"tables": "all"}, 422, "request-malformed"),
        ("/v1/datasets/shop/tables/codes/profile", {}, 422, "catalog-refused"),
        ("/v1/datasets/shop/tables/nowhere/profile", {}, 404, "not-found"),
        ("/v1/datasets/nowhere/tables/orders/profile", {}, 404, "dataset-unknown"),
    ],
)
def test_what_makes_no_sense_is_refused_and_costs_nothing(
    house: House, path: str, body: dict[str, Any], status: int, code: str
) -> None:
    before = house.books.ledger.balance("shop").spent
    refused = house.ask("POST", path, json=body)
    assert (refused.status_code, refused.json()["code"], refused.json()["budget_spent"]) == (status, code, False)
    assert house.books.ledger.balance("shop").spent == before


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"profile": {"share": "0"}}, "profile.share must be above zero"),
        ({"profile": {"share": "-1"}}, "profile.share must be above zero"),
        ({"profile": {"share": "0.11"}}, "may cost 0.000001 to 0.1 of the ceiling"),
        ({"profile": {"share": 2}}, "at most 1"),
        ({"profile": {"share": "some"}}, "plain decimal"),
        ({"profile": {"part": "0.1"}}, "part"),
        ({"profile": "yes"}, "profile"),
        ({"max_rows_per_unit": 0}, "max_rows_per_unit"),
        ({"private": False, "unit": None, "profile": {"share": "0.01"}}, "a public table's size is known exactly"),
    ],
)
def test_declarations_of_a_profile_that_make_no_sense_are_refused(
    house: House, changed: dict[str, Any], words: str
) -> None:
    refused = house.ask("PUT", f"{PATH}", json={**ORDERS, **changed})
    assert refused.status_code == 422
    assert words in json.dumps(refused.json())


def test_a_budget_without_room_refuses_and_says_what_is_left(house: House) -> None:
    house.ask("PUT", "/v1/datasets/poor", json={"unit": "customer", "epsilon": "0.001", "ceiling": {"epsilon": "9"}})
    pq_path = {"kind": "parquet", "path": "poor.parquet"}
    sources = Path(str(house.books.store.engine.url.database)).parent / "sources"
    pq.write_table(pa.table({"customer": [1, 2]}), sources / "poor.parquet")
    begun = house.ask("PUT", "/v1/datasets/poor/tables/orders", json={**ORDERS, "source": pq_path})
    house.books.administration.wait("poor", "orders")
    state = house.ask("GET", begun.headers["location"]).json()
    assert state["state"] == "done"
    assert "No profile was bought: 'poor' has epsilon 0.001 left" in state["detail"]
    refused = house.ask("POST", "/v1/datasets/poor/tables/orders/profile", json={})
    assert (refused.status_code, refused.json()["code"]) == (403, "budget-exhausted")
    shown = house.ask("GET", "/v1/datasets/poor").json()["tables"]["orders"]
    assert (shown["size"], shown["profile"]) == (None, None)


def test_the_command_line_profiles_one_table_or_all(
    house: House, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HALFTONE_DATA_DIR", str(folder))
    main(["dataset", "profile", "shop", "orders", "--reason", "from the shell"])
    said = capsys.readouterr().out
    assert "orders: about " in said and "A unit keeps at most 8 rows from the next import on." in said
    main(["dataset", "profile", "shop"])
    assert "codes" not in capsys.readouterr().out
    main(["dataset", "show", "shop"])
    assert json.loads(capsys.readouterr().out)["tables"]["orders"]["profile"]["words"].startswith("about ")


def fail_until_paused(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(profiling, "release_profile", lambda *_: 1 // 0)
        for _ in range(3):
            assert house.ask("POST", f"{PATH}/profile", json={}).json()["code"] == "answer-failed"
    assert house.books.ledger.allowance("shop", "import").paused
    assert house.ask("POST", f"{PATH}/profile", json={}).json()["code"] == "dataset-paused"


def test_profiles_that_failed_too_often_are_resumed_like_an_analyst(
    house: House, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_until_paused(house, monkeypatch)
    assert (
        house.ask("POST", "/v1/datasets/shop/resume", json={"owner": "import", "reason": "looked"}).status_code == 204
    )
    assert house.ask("POST", f"{PATH}/profile", json={}).status_code == 201
    fail_until_paused(house, monkeypatch)
    monkeypatch.setenv("HALFTONE_DATA_DIR", str(folder))
    main(["budget", "resume", "shop", "--analyst", "import", "--reason", "looked again"])
    assert "Resumed." in capsys.readouterr().out
    assert house.ask("POST", f"{PATH}/profile", json={}).status_code == 201


def test_profiles_can_be_paused_before_the_first_is_bought(house: House) -> None:
    house.ask("PUT", "/v1/datasets/empty", json={"unit": "customer", "epsilon": "1"})
    for act in ("pause", "resume"):
        assert (
            house.ask("POST", f"/v1/datasets/empty/{act}", json={"owner": "import", "reason": "r"}).status_code == 204
        )
