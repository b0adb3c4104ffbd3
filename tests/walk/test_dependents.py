"""What an import makes payable again is told before it, to admins; and what it bought is no answer to ask for."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.released import tables
from tests.fixtures.whole import DECLARED, PATIENTS, WARDS, Served, served

UNITS = {
    "source": {"kind": "parquet", "path": "patients.parquet"},
    "private": True,
    "unit": {"column": "patient"},
    "columns": {"patient": {"unique": True}, "age": {"bounds": [0, 100]}},
}
STAYS = {
    "source": {"kind": "parquet", "path": "stays.parquet"},
    "private": True,
    "profile": None,
    "unit": {"via": {"column": "patient", "references": "patients.patient"}},
    "columns": {"days": {"bounds": [0, 9]}},
}
FLOORS = {"source": {"kind": "parquet", "path": "floors.parquet"}, "private": False}
DECLARATIONS = {"visits": DECLARED, "patients": UNITS, "stays": STAYS, "floors": FLOORS}

QUESTIONS = {
    "SELECT COUNT(*) AS n FROM visits": {"visits"},
    "SELECT COUNT(*) AS n FROM patients": {"patients"},
    "SELECT SUM(days) AS n FROM stays": {"stays"},
    "SELECT COUNT(*) AS n FROM visits v JOIN floors f ON v.ward = f.ward": {"visits", "floors"},
    "WITH a AS (SELECT COUNT(*) AS n FROM visits WHERE cost > 3), b AS (SELECT COUNT(*) AS m FROM stays)"
    " SELECT n, m FROM a CROSS JOIN b": {"visits", "stays"},
}
BUILT = {"visits": {"visits"}, "patients": {"patients", "stays"}, "stays": {"stays"}, "floors": {"floors"}}


@pytest.fixture
def house(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr("service.api.middleware.poll_cache.FRESH_S", -1.0)
    with served(tmp_path) as opened:
        files = {
            "patients": {"patient": range(PATIENTS), "age": [n % 90 for n in range(PATIENTS)]},
            "stays": {"patient": range(PATIENTS), "days": [n % 9 for n in range(PATIENTS)]},
            "floors": {"ward": WARDS, "floor": [1, 2, 3]},
        }
        for table, columns in files.items():
            pq.write_table(pa.table(columns), tmp_path / "sources" / f"{table}.parquet")
            put(opened, table)
        yield opened


def put(house: Served, table: str) -> None:
    started = house.ask("PUT", f"/v1/datasets/clinic/tables/{table}", "admin", json=DECLARATIONS[table])
    assert started.status_code == 202, started.text
    house.books.administration.wait("clinic", table)
    assert house.ask("GET", started.headers["location"], "admin").json()["state"] == "done"


def question(sql: str) -> dict[str, Any]:
    return {"dataset": "clinic", "sql": sql, "epsilon": "0.1", "bounds": {"rows_per_unit": 4}}


def ask_all(house: Served) -> None:
    for sql in QUESTIONS:
        for status in (201, 200):  # the second for nothing, and no second answer to lose
            assert house.ask("POST", "/v1/queries", json=question(sql)).status_code == status


def free(house: Served) -> set[str]:
    """The questions that cost nothing today."""
    estimates = {sql: house.ask("POST", "/v1/estimates", json=question(sql)).json() for sql in QUESTIONS}
    return {sql for sql, estimate in estimates.items() if estimate["cost"]["replay_of"] is not None}


def dependents(house: Served, table: str) -> dict[str, Any]:
    found = house.ask("GET", f"/v1/datasets/clinic/tables/{table}/dependents", "admin")
    assert found.status_code == 200, found.text
    body: dict[str, Any] = found.json()
    return body


@pytest.mark.parametrize("table", sorted(BUILT))
def test_as_many_answers_become_payable_as_was_told(house: Served, table: str) -> None:
    assert dependents(house, table) == {"tables": sorted(BUILT[table]), "answers": 0, "panels": []}
    ask_all(house)
    before = free(house)
    assert before == set(QUESTIONS)
    told = dependents(house, table)
    put(house, table)
    lost = before - free(house)
    assert lost == {sql for sql, read in QUESTIONS.items() if read & BUILT[table]}
    assert (told["tables"], told["answers"]) == (sorted(BUILT[table]), len(lost))
    assert dependents(house, table)["answers"] == 0, "what was lost is not lost again"


def test_panels_are_named_that_show_an_answer_from_the_table(house: Served) -> None:
    for name, table in (("wards", "visits"), ("old", "patients"), ("nights", "stays")):
        body = question(f"SELECT COUNT(*) AS n FROM {table}") | {"budget": "1"}
        assert house.ask("PUT", f"/v1/panels/{name}", json=body).status_code == 200
        assert dependents(house, table)["panels"] == [], "it shows nothing yet"
        assert house.ask("POST", f"/v1/panels/{name}/refresh").json()["state"] == "good"
    assert dependents(house, "visits")["panels"] == ["wards"]
    assert dependents(house, "patients")["panels"] == ["nights", "old"], "stays reach their unit through patients"
    put(house, "stays")
    assert dependents(house, "stays")["panels"] == ["nights"], "it still waits for its refresh"


def test_a_release_that_does_not_say_what_it_reads_counts_where_it_may(house: Served) -> None:
    assert house.ask("POST", "/v1/queries", json=question("SELECT COUNT(*) AS n FROM visits")).status_code == 201
    put(house, "stays")
    unknown = tables.release.update().values(versions=None)
    house.books.store.write(lambda tx: tx.execute(unknown.values(data_version=versions(house)["visits"])))
    assert [dependents(house, table)["answers"] for table in ("visits", "stays")] == [1, 0]


def versions(house: Served) -> dict[str, int]:
    return dict(house.books.catalog.schema("clinic").versions)


def test_only_admins_are_told_and_only_of_tables_that_are_there(house: Served) -> None:
    path = "/v1/datasets/clinic/tables/{}/dependents"
    for role in ("viewer", "analyst"):
        assert house.ask("GET", path.format("visits"), role).status_code == 403
    missing = house.ask("GET", path.format("nothing"), "admin")
    assert (missing.status_code, missing.json()["table"]) == (404, "nothing")
    assert house.ask("GET", "/v1/datasets/none/tables/visits/dependents", "admin").status_code == 404


def test_the_charge_of_a_profile_is_no_query_that_could_be_read(house: Served) -> None:
    """It was paid for by an import, and has no answer of its own: that is said, and is no failure."""
    journal = house.ask("GET", "/v1/datasets/clinic/ledger?limit=1000", "admin").json()
    (bought,) = [entry["query_id"] for entry in journal if entry["kind"] == "reserve" and entry["who"] == "import"]
    for method in ("GET", "DELETE"):
        found = house.ask(method, f"/v1/queries/{bought}", "admin")
        assert (found.status_code, found.json()["code"]) == (404, "not-found"), found.text
        assert "profile" in found.json()["detail"] and found.json()["budget_spent"] is False
        hidden = house.ask(method, f"/v1/queries/{bought}", "analyst")
        absent = house.ask(method, "/v1/queries/q_nothing", "analyst")
        assert hidden.content.replace(bought.encode(), b"q_nothing") == absent.content
