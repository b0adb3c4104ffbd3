"""What the first version stored is still read, served and verified: a ledger file of its own making.

tests/fixtures/v1 holds that file, every question that was asked of it and what was answered. No prepared data is
beside it, so an answer can only come from the stored releases; a question that would be paid for fails here. The
file holds every shape, law and clip of primitive, undeclared keys, found bounds and caps, a topped-up release, panels,
a failed query, and an entry of every kind.
"""

import gzip
import json
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from service.app import create_app
from service.core.aggregates import MAX, MIN, MODE, QUANTILE
from service.ledger.verify import verify
from service.privacy.noise.laws import GAUSSIAN, LAWS
from service.privacy.primitives.chosen import ChosenValue
from service.privacy.primitives.names import read, written
from service.privacy.primitives.noised import VECTORS, Part
from service.released.codec import pack, unpack
from service.settings import Settings
from service.store.database import Store
from service.store.migrate import upgrade

FIXTURE = Path(__file__).parents[1] / "fixtures" / "v1"
QUESTIONS = json.loads((FIXTURE / "questions.json").read_text())
SERVICE = json.loads((FIXTURE / "service.json").read_text())
NUMBERS = range(len(QUESTIONS))
FREE = {"epsilon": "0", "rho": None, "delta": "0", "share": "0"}


def settings(folder: Path) -> Settings:
    return Settings(data_dir=folder, time_step_ms=0, engine_workers=1, requests_per_minute=100_000)


def unpacked(folder: Path) -> Path:
    """The ledger alone in a data folder, brought to the newest revision."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "ledger.sqlite"
    with gzip.open(FIXTURE / "ledger.sqlite.gz") as source, path.open("wb") as target:
        shutil.copyfileobj(source, target)
    upgrade(settings(folder).store_url)
    return path


@dataclass(frozen=True, slots=True)
class Opened:
    client: TestClient

    def ask(self, method: str, path: str, role: str = "analyst", **more: Any) -> Any:
        headers = {"Authorization": f"Bearer {SERVICE['keys'][role]}", **more.pop("headers", {})}
        return self.client.request(method, path, headers=headers, **more)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    folder = tmp_path_factory.mktemp("first_version")
    unpacked(folder)
    with TestClient(create_app(settings(folder)), raise_server_exceptions=False) as client:
        yield Opened(client)


# --- The file itself ---


def primitives(path: Path) -> list[tuple[str, list[int], int]]:
    """Name, shape and number of stored values of every primitive of every release."""
    found = []
    with sqlite3.connect(path) as database:
        for (content,) in database.execute("SELECT content FROM release"):
            head, arrays = unpack(content)
            found += [(name, shape, arrays[f"primitive:{name}"].size) for name, shape in head["shapes"].items()]
    return found


def test_every_stored_primitive_name_can_be_read_and_is_written_the_same(tmp_path: Path) -> None:
    stored = primitives(unpacked(tmp_path))
    assert sorted({name for name, _, _ in stored}) == SERVICE["primitives"]
    for name, shape, size in stored:
        item = read(name)
        assert item is not None
        assert written(item) == name
        assert shape[0] * shape[1] == size


def test_every_shape_is_in_the_file_under_both_laws_and_all_clips(tmp_path: Path) -> None:
    items = [read(name) for name, _, _ in primitives(unpacked(tmp_path))]
    parts = [item for item in items if isinstance(item, Part)]
    assert {part.vector for part in parts} == set(VECTORS)
    assert {(part.clip, part.law) for part in parts} == {
        *((clip, law) for clip in ("rows", "cap", "pairs", "groups") for law in LAWS),
        ("l2", GAUSSIAN),
    }
    chosen = {(item.spec, item.epsilon == 0, item.law) for item in items if isinstance(item, ChosenValue)}
    kinds = [(QUANTILE, True), *((function, False) for function in (QUANTILE, MIN, MAX, MODE))]
    assert chosen == {(*kind, law) for kind in kinds for law in LAWS}


def test_the_journal_verifies_and_still_holds_the_head_that_was_kept(tmp_path: Path) -> None:
    unpacked(tmp_path)
    store = Store(settings(tmp_path).store_url)
    try:
        with store.read() as tx:
            verdict = verify(tx, (SERVICE["head"],))
    finally:
        store.close()
    assert verdict.holds, verdict.problem
    assert verdict.head == SERVICE["head"]


# --- The service on it ---


@pytest.mark.parametrize("number", [n for n in NUMBERS if not QUESTIONS[n]["request"].get("fresh")])
def test_a_question_asked_again_is_answered_from_store_for_nothing(opened: Opened, number: int) -> None:
    question = QUESTIONS[number]
    expected = {**question["response"], **question.get("replayed", {})}  # a better release may have come later
    answer = opened.ask("POST", "/v1/queries", json=question["request"])
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert {name: body["cost"][name] for name in FREE} == FREE
    assert body["cost"]["replay_of"] == (expected["cost"]["replay_of"] or expected["id"]), "it names who paid"
    assert body["data_version"] == expected["data_version"]
    added = ("clipped_share", "clipped")  # what later versions say beside
    shown = [{name: value for name, value in each.items() if name not in added} for each in body["columns"]]
    assert shown == expected["columns"]
    assert len(body["rows"]) == len(expected["rows"])
    for at in range(len(expected["columns"])):
        cells, low, high = ([row[at] for row in expected[name]] for name in ("rows", "low_95", "high_95"))
        found = [[row[at] for row in body[name]] for name in ("rows", "low_95", "high_95")]
        if at in question["computed"] and any(end is not None for end in low):
            assert_close(found, [cells, low, high])
        else:
            assert found == [cells, low, high]


def assert_close(found: list[list[Any]], expected: list[list[Any]]) -> None:
    """Intervals of what is computed from aggregates come from random copies, and values are rounded to them."""
    for cell, low, high, was, was_low, was_high in zip(*found, *expected, strict=True):
        if was_low is None or was is None:
            assert (cell, low, high) == (was, was_low, was_high)
            continue
        width = was_high - was_low
        assert cell == pytest.approx(was, abs=width / 20)
        assert low == pytest.approx(was_low, abs=width)
        assert high == pytest.approx(was_high, abs=width)


def test_beside_what_a_later_version_wrote_the_rest_is_still_served(tmp_path: Path) -> None:
    with sqlite3.connect(unpacked(tmp_path)) as database:
        for query_id, core, content in database.execute("SELECT query_id, core, content FROM release").fetchall():
            head, arrays = unpack(content)
            head["shapes"]["v2 cubes"] = [1, 2]
            later = pack(head, {**arrays, "primitive:v2 cubes": np.array([1, 2])})
            changed = (later, query_id, core)
            database.execute("UPDATE release SET content = ? WHERE query_id = ? AND core = ?", changed)
    with TestClient(create_app(settings(tmp_path)), raise_server_exceptions=False) as client:
        answer = Opened(client).ask("POST", "/v1/queries", json=QUESTIONS[0]["request"])
    assert answer.json()["rows"] == QUESTIONS[0]["response"]["rows"]


@pytest.mark.parametrize("number", [n for n in NUMBERS if "key" in QUESTIONS[n]])
def test_an_attempt_under_its_old_key_is_still_the_same_attempt(opened: Opened, number: int) -> None:
    question = QUESTIONS[number]
    headers = {"Idempotency-Key": question["key"]}
    again = opened.ask("POST", "/v1/queries", json=question["request"], headers=headers)
    assert (again.status_code, again.json()) == (200, question["response"])
    other = opened.ask("POST", "/v1/queries", json=QUESTIONS[0]["request"], headers=headers)
    assert other.json()["code"] == "idempotency-key-reused"


def test_every_old_answer_is_there_under_its_id(opened: Opened) -> None:
    for question in QUESTIONS:
        answer = opened.ask("GET", f"/v1/queries/{question['response']['id']}", "viewer")
        assert (answer.status_code, answer.json()) == (200, question["response"])


def test_the_history_lists_the_old_questions_with_what_they_took(opened: Opened) -> None:
    found = {line["id"]: line for line in opened.ask("GET", "/v1/queries?limit=1000").json()}
    assert len(SERVICE["history"]) > len(QUESTIONS), "panels, a failure and a refusal are in it too"
    for line in SERVICE["history"]:
        assert found[line["id"]] == line
    assert {line["status"] for line in SERVICE["history"]} == {"answered", "failed"}


@pytest.mark.parametrize("name", SERVICE["panels"])
def test_a_panel_is_still_served(opened: Opened, name: str) -> None:
    panel = SERVICE["panels"][name]
    shown = opened.ask("GET", f"/v1/panels/{name}", "viewer")
    assert shown.status_code == 200
    # A panel with a period is due again by now: it finds its stored release and its time of refresh moves.
    moving = {"refreshed_at", "next_refresh_at", "runs_out_on"}
    fixed = {field: value for field, value in panel["shown"].items() if field not in moving}
    none = {"bounds_change": None}  # later versions say it
    assert {field: value for field, value in shown.json().items() if field not in moving} == fixed | none
    history = opened.ask("GET", f"/v1/panels/{name}/history", "viewer").json()
    assert history == [point | none for point in panel["history"]]


def test_a_panel_refreshed_again_on_the_same_data_costs_nothing(opened: Opened) -> None:
    before = SERVICE["panels"]["by_ward"]["shown"]
    done = opened.ask("POST", "/v1/panels/by_ward/refresh")
    assert (done.status_code, done.json()["state"], done.json()["budget"]) == (200, "good", before["budget"])


def test_declarations_and_budget_are_what_they_were(opened: Opened) -> None:
    shown = opened.ask("GET", "/v1/datasets/clinic").json()
    for name, table in SERVICE["schema"]["tables"].items():
        assert {field: shown["tables"][name][field] for field in table} == table, "fields were only added"
    assert [shown[field] for field in ("name", "unit", "data_version")] == [
        SERVICE["schema"][field] for field in ("name", "unit", "data_version")
    ]
    assert opened.ask("GET", "/v1/datasets/clinic/declaration", "admin").json() == SERVICE["declaration"]
    budget = opened.ask("GET", "/v1/datasets/clinic/budget").json()
    assert budget.pop("weak").startswith("weak promise")
    assert budget == SERVICE["budget"]
    verdict = opened.ask("POST", "/v1/ledger/verify", "admin").json()
    assert verdict["holds"]
    newest = opened.ask("GET", f"/v1/audit?after={verdict['entries'] - 1}", "admin").json()
    assert [(entry["body"]["act"], entry["previous"]) for entry in newest] == [("source.carry", SERVICE["head"])]
    assert newest[0]["hash"] == verdict["head"], "claims were looked through once, and nothing was charged"
