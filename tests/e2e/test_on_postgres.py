"""The whole service on a real PostgreSQL store, with two processes that share budget and data."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.postgres import new_database
from tests.fixtures.process import Running, run, start

COUNT = {"dataset": "club", "sql": "SELECT COUNT(*) AS n FROM members", "epsilon": "0.5", "fresh": True}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Running]]:
    folder = tmp_path_factory.mktemp("postgres")
    sources = folder / "data" / "sources"
    sources.mkdir(parents=True)
    pq.write_table(
        pa.table({"member": list(range(500)), "age": [20 + i % 50 for i in range(500)]}), sources / "m.parquet"
    )
    store = {"HALFTONE_LEDGER_URL": new_database(), "HALFTONE_TIME_STEP_MS": "0"}
    run(folder, "migrate", **store)
    keys = {"admin": run(folder, "key", "create", "--role", "admin", **store)}
    first = start(folder, "serve", keys=keys, **store)
    second_folder = tmp_path_factory.mktemp("second")
    (second_folder / "data").symlink_to(folder / "data")
    second = start(second_folder, "serve", keys=keys, **store)
    yield first, second
    first.stop()
    second.stop()


def declare(running: Running) -> None:
    assert (
        running.ask("PUT", "/v1/datasets/club", "admin", json={"unit": "member", "epsilon": "2.4"}).status_code == 201
    )
    table: dict[str, Any] = {
        "source": {"kind": "parquet", "path": "m.parquet"},
        "private": True,
        "unit": {"column": "member"},
        "columns": {"age": {"bounds": [0, 100]}},
    }
    begun = running.ask("PUT", "/v1/datasets/club/tables/members", "admin", json=table)
    deadline = time.monotonic() + 60
    while running.ask("GET", begun.headers["location"], "admin").json()["state"] == "running":
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_two_processes_share_one_budget_and_both_answer(pair: tuple[Running, Running]) -> None:
    first, second = pair
    declare(first)
    statuses = [side.ask("POST", "/v1/queries", "admin", json=COUNT).status_code for side in (first, second) * 2]
    assert statuses == [201] * 4
    for side in pair:
        refused = side.ask("POST", "/v1/queries", "admin", json=COUNT)
        assert (refused.status_code, refused.json()["code"]) == (403, "budget-exhausted")
    assert second.ask("POST", "/v1/ledger/verify", "admin").json()["holds"] is True


def test_a_key_revoked_through_one_process_is_refused_by_the_other(pair: tuple[Running, Running]) -> None:
    first, second = pair
    made = first.ask("POST", "/v1/keys", "admin", json={"name": "brief", "role": "viewer"}).json()
    second.keys["brief"] = made["key"]
    assert second.ask("GET", "/v1/datasets", "brief").status_code == 200
    assert first.ask("DELETE", f"/v1/keys/{made['prefix']}", "admin").status_code == 204
    assert second.ask("GET", "/v1/datasets", "brief").status_code == 401


def test_the_store_is_the_database_and_not_a_file(pair: tuple[Running, Running]) -> None:
    assert not list(Path(pair[0].folder / "data").glob("*.sqlite"))
