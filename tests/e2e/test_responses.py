"""Every operation's real responses are what their models say: no field more, none less, none that never comes.

One walk through the whole service (real store, ledger and engine). Each response is compared strictly with the model
that its route declares (tests/fixtures/documented.py); at the end nothing documented may have been left out.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel

from service.api.middleware.metrics import Metrics
from service.app import MARK
from service.core.amounts import Cost
from service.core.sizes import Profile, size_of_profile
from service.ledger import windows
from service.ledger.book import By, Hold
from service.ledger.journal import Journal
from service.ledger.tables import source as list_claim
from service.store.transaction import Transaction
from tests.fixtures.documented import routes
from tests.fixtures.profiled import put_size
from tests.fixtures.whole import DECLARED, SIZE, Served, served

COUNT = {"dataset": "clinic", "sql": "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward", "epsilon": "0.5"}
TOWNS = {"dataset": "clinic", "sql": "SELECT town, COUNT(*) AS n FROM visits GROUP BY town", "epsilon": "1",
         "delta": "1e-8"}  # fmt: skip
TWO = {"dataset": "clinic", "epsilon": "1", "sql": "WITH a AS (SELECT COUNT(*) AS n FROM visits), b AS (SELECT"
       " SUM(cost) AS c FROM visits WHERE ward = 'a') SELECT n, c FROM a CROSS JOIN b"}  # fmt: skip
CAPPED = {"dataset": "clinic", "sql": "SELECT SUM(cost) AS c FROM visits", "epsilon": "1",
          "bounds": {"unit_sum": {"visits.cost": 200}}}  # fmt: skip
SUM = {"dataset": "clinic", "sql": "SELECT SUM(cost) AS c FROM visits", "epsilon": "1"}
FEW = {"kind": "parquet", "path": "few.parquet"}
OPEN = {"kind": "parquet", "path": "open.parquet"}
PATIENTS = {"source": FEW, "private": True, "unit": {"column": "patient"}, "columns": {"patient": {"unique": True}}}
STAYS = {**DECLARED, "unit": {"via": {"column": "patient", "references": "patients.patient"}}}
PUBLIC = {"source": OPEN, "private": False, "columns": {"ward": {}}, "rest": "leave"}
NOTHING = {"unit": "patient", "epsilon": "1"}
STEP_MS = 300  # how long a new query is at least on its way


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.api.middleware.poll_cache.FRESH_S", -1.0)
        with served(tmp_path_factory.mktemp("clinic"), time_step_ms=STEP_MS) as house:
            for part in (asks, estimates, polls, fits_defaults, declares, keeps_books, hands_out_keys, operates):
                part(house, patch)
            yield house


def good(house: Served, method: str, path: str, role: str = "analyst", **more: Any) -> Any:
    """A request that succeeds; 503 is what /readyz says on a bad day."""
    response = house.ask(method, path, role, **more)
    assert response.status_code < 400 or path == "/readyz", f"{method} {path}: {response.text}"
    return response


def asks(house: Served, patch: pytest.MonkeyPatch) -> None:
    with house.walk.engine.slot("clinic", 10, "somebody else"):  # the only one: whoever asks now must wait
        waiting = good(house, "POST", "/v1/queries", json={**COUNT, "wait": 0})
        path = waiting.headers["location"]
        good(house, "GET", path)
    good(house, "GET", f"{path}/events")
    good(house, "DELETE", path)
    stored = good(house, "GET", path)
    good(house, "GET", path, headers={"If-None-Match": stored.headers["etag"]})
    for question in (COUNT, {**COUNT, "rho": "0.01", "epsilon": None}, TOWNS, TWO, CAPPED):
        for form in ("json", "flat", "csv", "arrow"):
            good(house, "POST", f"/v1/queries?format={form}", json=question)
    for form in ("flat", "csv", "arrow"):
        good(house, "GET", f"{path}?format={form}")
        good(house, "POST", f"/v1/queries?format={form}", json={**COUNT, "fresh": True})
    good(house, "GET", "/v1/queries")


def estimates(house: Served, patch: pytest.MonkeyPatch) -> None:
    accurate = {name: COUNT[name] for name in ("dataset", "sql")} | {"accuracy": {"output": "n", "half_width": 40}}
    for question in (COUNT, accurate, TOWNS, TWO, {"queries": [COUNT, TOWNS]}):
        good(house, "POST", "/v1/estimates", json=question)
    defaults = {"epsilon": "0.1", "delta": "1e-9"}
    clinic = good(house, "GET", "/v1/datasets/clinic/declaration", "admin").json()
    del clinic["tables"]
    good(house, "PUT", "/v1/datasets/clinic", "admin", json={**clinic, "defaults": defaults})
    good(house, "POST", "/v1/estimates", json={name: TOWNS[name] for name in ("dataset", "sql")})


def polls(house: Served, patch: pytest.MonkeyPatch) -> None:
    everything = {
        "sql": "SELECT ward, COUNT(*) AS n, SUM(cost) AS c FROM visits GROUP BY ward",
        "delta": "1e-9", "min_units": 2, "weights": {"n": 2, "c": 1}, "dialect": "postgres", "chart": {"kind": "bar"},
        "bounds": {"rows_per_unit": 3, "groups_per_unit": 2, "columns": {"visits.cost": [0, 50]},
                   "unit_sum": {"visits.cost": None}, "clip": "l1", "slots": "pairs"},
    }  # fmt: skip
    wanted = COUNT | {"budget": "2", "refresh": "PT1H", "title": "Visits"}
    unpriced = {name: value for name, value in wanted.items() if name != "epsilon"}
    good(house, "PUT", "/v1/panels/first", json=wanted)
    good(house, "GET", "/v1/panels/first", "viewer")
    good(house, "POST", "/v1/panels/first/refresh")
    good(house, "PUT", "/v1/panels/full", json=wanted | everything)
    good(house, "PUT", "/v1/panels/rho", json=unpriced | {"rho": "0.01"})
    good(house, "PUT", "/v1/panels/share", json=unpriced | {"share": "0.01"})
    good(house, "PUT", "/v1/panels/wide", json=unpriced | {"accuracy": {"output": "n", "half_width": 40}})
    shown = good(house, "GET", "/v1/panels/first")
    good(house, "GET", "/v1/panels/first", headers={"If-None-Match": shown.headers["etag"]})
    for form in ("flat", "csv", "arrow"):
        good(house, "GET", f"/v1/panels/first?format={form}", "viewer")
    for form in ("json", "flat", "csv"):
        good(house, "GET", f"/v1/panels/first/history?format={form}", "viewer")
    good(house, "GET", "/v1/panels")
    good(house, "GET", "/v1/panels", "viewer")
    good(house, "DELETE", "/v1/panels/full")


def fits_defaults(house: Served, patch: pytest.MonkeyPatch) -> None:
    put_size(house.books, "clinic", "visits", size_of_profile(Profile((225, 225, 450, 0), 1.0, "q_first"), 8))
    good(house, "POST", "/v1/queries", json=SUM | {"bounds": {"rows_per_unit": 1}})
    good(house, "PUT", "/v1/panels/fitted", json=COUNT | {"budget": "2"})
    good(house, "POST", "/v1/panels/fitted/refresh")
    put_size(house.books, "clinic", "visits", size_of_profile(Profile((900, 0), 1.0, "q_second"), 2))
    (kept,) = good(house, "GET", "/v1/datasets/clinic/defaults", "admin").json()
    assert (kept["before"]["rows_per_unit"], kept["after"]["rows_per_unit"]) == (4, 1)
    (changed,) = good(house, "POST", "/v1/datasets/clinic/defaults/refit", "admin", json={"reason": "new"}).json()
    assert changed["after"] == kept["after"]
    good(house, "POST", "/v1/panels/fitted/refresh")
    assert good(house, "GET", "/v1/panels/fitted").json()["bounds_change"].startswith("rows_per_unit 4 → 1")
    put_size(house.books, "clinic", "visits", SIZE)


def declares(house: Served, patch: pytest.MonkeyPatch) -> None:
    good(house, "GET", "/v1/datasets", "viewer")
    good(house, "PUT", "/v1/datasets/other", "admin", json=NOTHING | {"epsilon_per_query_max": "0.5"})
    good(house, "GET", "/v1/datasets/other", "admin")
    good(house, "DELETE", "/v1/datasets/other?reason=done", "admin")
    good(house, "POST", "/v1/datasets/clinic/tables/visits/inspect", "admin", json=DECLARED["source"])
    pq.write_table(pa.table({"patient": range(9), "ward": list("abcabcabc")}), house.folder / "sources" / "few.parquet")
    pq.write_table(
        pa.table({"patient": range(9), "ward": list("cbacbacba")}), house.folder / "sources" / "open.parquet"
    )
    house.books.store.write(claim_list)
    for table, declared in (("wards", PUBLIC), ("patients", PATIENTS), ("stays", STAYS)):
        started = good(house, "PUT", f"/v1/datasets/clinic/tables/{table}", "admin", json=declared)
        good(house, "GET", started.headers["location"], "admin")
        house.books.administration.wait("clinic", table)
        assert good(house, "GET", started.headers["location"], "admin").json()["state"] == "done"
    good(house, "GET", "/v1/datasets/clinic/tables/patients/dependents", "admin")
    good(house, "POST", "/v1/datasets/clinic/tables/patients/profile", "admin", json={"share": "0.002"})
    good(house, "GET", "/v1/datasets/clinic", "viewer")
    good(house, "GET", "/v1/datasets/clinic/declaration", "admin")
    good(house, "DELETE", "/v1/datasets/clinic/tables/wards", "admin")


def claim_list(tx: Transaction) -> None:
    """An entry as it was written before claims were per file."""
    body = {"fingerprint": "0" * 64, "why": "import of clinic.gone"}
    tx.execute(list_claim.insert().values(fingerprint="0" * 64, dataset="clinic"))
    Journal.lock(tx).append("source", body, who="hk_admin", dataset="clinic")


def restored(house: Served) -> None:
    """The mark of another journal lies in the data folder: nothing is charged until an admin accepts it."""
    house.books.ledger.mark()
    file = house.folder / MARK
    mark = json.loads(file.read_text())
    mark["marks"] = [{**mark["marks"][-1], "hash": "f" * 64}]
    file.write_text(json.dumps(mark))
    assert good(house, "POST", "/v1/ledger/verify", "admin").json()["restored"]
    good(house, "POST", "/v1/ledger/accept-restore", "admin", json={"reason": "a copy of last night"})
    again = house.ask("POST", "/v1/ledger/accept-restore", "admin", json={"reason": "again"})
    assert again.status_code == 409


def keeps_books(house: Served, patch: pytest.MonkeyPatch) -> None:
    prefix = house.keys["analyst"].split("_")[1]
    clinic = good(house, "GET", "/v1/datasets/clinic/declaration", "admin").json()
    del clinic["tables"]
    good(house, "POST", "/v1/datasets/clinic/grants", "admin", json={"epsilon": "90", "reason": "less"})
    good(house, "PUT", f"/v1/datasets/clinic/quotas/{prefix}", "admin", json={"share": "0.9"})
    good(house, "GET", "/v1/datasets/clinic/budget")
    good(house, "PUT", f"/v1/datasets/clinic/quotas/{prefix}", "admin", json={"share": None})
    for act in ("pause", "resume"):
        good(house, "POST", f"/v1/datasets/clinic/{act}", "admin", json={"reason": "a look"})
    raised = clinic | {"ceiling": {"epsilon": "200", "delta": "1e-6"}, "window": "day"}
    good(house, "PUT", "/v1/datasets/clinic", "admin", json=raised)
    good(house, "GET", "/v1/datasets/clinic/budget?detail=orders")
    good(house, "GET", "/v1/datasets/clinic/events", "admin")
    patch.setattr(windows, "window_id", lambda kind, at: "2999-01-01")
    patch.setattr("service.ledger.accounts.window_id", lambda kind, at: "2999-01-01")
    good(house, "POST", "/v1/queries", json={**COUNT, "fresh": True})
    orders = len(house.books.ledger.balance("clinic").limits)
    house.books.ledger.reserve(Hold("q_left", "clinic", prefix, "hash", Cost((1,) * orders), 1))
    left = good(house, "GET", "/v1/queries").json()[0]
    house.books.ledger.settle("q_left", "failed", why="the process that ran it is gone")
    assert (left["id"], left["sql"], left["status"]) == ("q_left", None, "running")
    good(house, "GET", "/v1/queries")
    ledger = house.books.ledger
    cost = Cost((1,) * (len(ledger.terms("clinic").orders) + 1))
    ledger.reserve(Hold("q_slow", "clinic", "slow", "hash", cost, 1))
    ledger.late("q_slow")
    ledger.settle("q_slow", "answered")
    ledger.reset_safety("clinic", By("admin", "new sizes"))
    good(house, "POST", "/v1/ledger/verify", "admin")
    restored(house)
    journal = good(house, "GET", "/v1/datasets/clinic/ledger?limit=1000", "admin").json()
    assert {entry["kind"] for entry in journal} == {
        "open", "grant", "ceiling", "quota", "window", "reserve", "late", "settle", "safety", "pause", "resume",
        "source", "note",
    }  # fmt: skip


def hands_out_keys(house: Served, patch: pytest.MonkeyPatch) -> None:
    wanted = {"name": "for a while", "role": "viewer", "datasets": ["clinic"], "expires_at": "2999-01-01T00:00:00Z"}
    made = good(house, "POST", "/v1/keys", "admin", json=wanted).json()
    good(house, "DELETE", f"/v1/keys/{made['prefix']}", "admin")
    good(house, "GET", "/v1/keys", "admin")
    good(house, "GET", "/v1/audit?limit=1000", "admin")


def operates(house: Served, patch: pytest.MonkeyPatch) -> None:
    app: Any = house.client.app
    for path in ("/healthz", "/readyz"):
        good(house, "GET", path)
    patch.setattr(app.state, "parts", replace(app.state.parts, metrics=Metrics(), ready=lambda: ["engine"]))
    good(house, "GET", "/readyz")
    good(house, "GET", "/metrics", "admin")


def documented_forms(house: Served) -> set[tuple[str, str, str, str]]:
    """Every success of every operation, in every form that it offers."""
    return {
        (method.upper(), path, status, media_type)
        for path, operations in house.documented.app.openapi()["paths"].items()
        for method, operation in operations.items()
        for status, response in operation["responses"].items()
        if status < "400"
        for media_type in response.get("content", {"": {}})
    }


def models(declared: Any) -> Iterator[type[BaseModel]]:
    """A model and every model inside it."""
    if isinstance(declared, type) and issubclass(declared, BaseModel):
        yield declared
        for inner in declared.model_fields.values():
            yield from models(inner.annotation)
    for inner in get_args(declared):
        yield from models(inner)


def test_every_success_in_every_form_was_seen_and_fits_its_model(walked: Served) -> None:
    assert documented_forms(walked) - walked.documented.seen == set()


def test_no_model_has_a_field_that_never_comes(walked: Served) -> None:
    declared = {
        model
        for route in routes(walked.documented.app)
        for shape in (route.response_model, *(each.get("model") for each in route.responses.values()))
        for model in models(shape)
        if model.__module__.startswith("service.api.responses")
    }
    assert len(declared) > 40
    fields = {(model, name) for model in declared for name in model.model_fields}
    assert sorted(f"{model.__name__}.{name}" for model, name in fields - walked.documented.fields) == []
