"""Panels from end to end: one charge per refresh on new data, none per poll, and a state for every bad day."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from service.catalog.keys import NewKey
from service.core.amounts import show_pico
from service.released import tables
from service.released.panels import Panel
from service.released.publish import Publisher
from service.walk.panel_refresh import Refresher, RefreshTools
from tests.fixtures.postgres import new_database
from tests.fixtures.whole import Served, import_again, served

NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.api.middleware.poll_cache.FRESH_S", -1.0)  # every poll reaches the route
        with served(tmp_path_factory.mktemp("clinic"), epsilon="100") as opened:
            yield opened


@dataclass(slots=True)
class Board:
    """One panel of the house, with a name and a question of its own."""

    house: Served
    number: int = field(default_factory=lambda: next(NUMBERS))
    began: int = 0

    def __post_init__(self) -> None:
        self.began = self._spent()

    @property
    def name(self) -> str:
        return f"wards{self.number}"

    @property
    def path(self) -> str:
        return f"/v1/panels/{self.name}"

    @property
    def wanted(self) -> dict[str, Any]:
        return {
            "dataset": "clinic",
            "sql": f"SELECT ward, COUNT(*) AS n FROM visits WHERE cost > -{self.number} GROUP BY ward",
            "epsilon": "0.1",
            "refresh": "PT1H",
            "budget": "0.25",
            "title": "Visits by ward",
        }

    def put(self, **changed: Any) -> dict[str, Any]:
        return self._json("PUT", self.path, json={**self.wanted, **changed})

    @property
    def stored(self) -> Panel:
        found = self.house.walk.panels.get(dataset="clinic", name=self.name)
        assert found is not None
        return found

    def get(self, query: str = "") -> Any:
        return self._json("GET", self.path + query, "viewer")

    def refresh(self) -> dict[str, Any]:
        return self._json("POST", f"{self.path}/refresh")

    def new_data(self, **columns: Any) -> int:
        """Import again; the version that serves from now on."""
        import_again(self.house.books, self.house.folder, **columns)
        return self.house.books.catalog.schema("clinic").data_version

    @property
    def cost(self) -> str:
        """What the dataset was charged since this panel began."""
        return show_pico(self._spent() - self.began)

    def _spent(self) -> int:
        return self.house.books.ledger.balance("clinic").spent[-1]

    def _json(self, method: str, path: str, role: str = "analyst", **more: Any) -> Any:
        response = self.house.ask(method, path, role, **more)
        assert response.status_code == 200, response.text
        return response.json()

    def refresher(self, publisher: Publisher | None = None) -> Refresher:
        """Another service process over the same store."""
        walk = self.house.walk
        return Refresher(RefreshTools(walk.answerer, walk.answers, walk.panels, self.house.books.keys, publisher, 60))


@pytest.fixture
def board(house: Served) -> Iterator[Board]:
    made = Board(house)
    yield made
    for left in house.walk.panels.named(made.name, None):
        house.walk.panels.delete(left)


def test_a_panel_is_refreshed_in_its_time_and_polled_for_nothing(board: Board) -> None:
    made = board.put()
    assert (made["state"], made["budget"]["per_refresh"], made["budget"]["unit"]) == ("waiting", "0.1", "epsilon")
    assert board.get()["state"] == "waiting"
    board.house.walk.refresher.tick()
    first = board.get()
    assert (first["state"], len(first["rows"]), first["budget"]["spent"]) == ("good", 3, "0.1")
    assert first["low_95"][0][1] < first["rows"][0][1] < first["high_95"][0][1]
    for _ in range(3):
        assert board.get()["rows"] == first["rows"]
        assert board.get("?format=flat")[0]["n"] == first["rows"][0][1]
    assert board.cost == "0.1"
    soon = datetime.now(UTC)
    assert first["runs_out_on"] in {(soon + timedelta(hours=h)).date().isoformat() for h in (1, 2, 3)}


def test_a_jump_that_bounds_make_is_marked(board: Board) -> None:
    def declare(rows: int) -> None:
        declared = {"unit": "patient", "epsilon": "100", "delta": "1e-6", "defaults": {"rows_per_unit": rows}}
        assert board.house.ask("PUT", "/v1/datasets/clinic", "admin", json=declared).status_code == 200

    board.put()
    assert board.refresh()["bounds_change"] is None
    declare(2)
    try:
        assert board.refresh()["bounds_change"] == "rows_per_unit 4 → 2"
        assert board.get()["bounds_change"] == "rows_per_unit 4 → 2"
        assert [point["bounds_change"] for point in board.get("/history")] == ["rows_per_unit 4 → 2", None]
        assert [point["bounds_change"] for point in board.get("/history?limit=1")] == ["rows_per_unit 4 → 2"]
    finally:
        declare(4)


def test_on_unchanged_data_a_refresh_is_free_and_adds_nothing_to_the_history(board: Board) -> None:
    board.put()
    first = board.refresh()
    again = board.refresh()
    assert again["refreshed_at"] > first["refreshed_at"]
    assert (again["state"], again["budget"]["spent"], board.cost) == ("good", "0.1", "0.1")
    assert len(board.get("/history")) == 1
    version = board.new_data()
    board.refresh()
    history = board.get("/history")
    assert [point["data_version"] for point in history] == [version, version - 1]
    for point in history:
        for row, low, high in zip(point["rows"], point["low_95"], point["high_95"], strict=True):
            assert low[1] < row[1] < high[1]
    series = board.get("/history?format=flat")
    assert len(series) == 6 and set(series[0]) == {
        "released_at", "ward", "n", "n_low_95", "n_high_95", "n_clipped_share",
    }  # fmt: skip
    text = board.house.ask("GET", f"{board.path}/history?format=csv", "viewer").text
    assert text.splitlines()[0] == "released_at,ward,n,n_low_95,n_high_95,n_clipped_share"


def test_the_line_covers_two_refreshes_and_then_the_last_answer_stays(board: Board) -> None:
    board.put()
    board.refresh()
    version = board.new_data()
    good = board.refresh()
    assert good["budget"]["spent"] == "0.2"
    board.new_data()
    stale = board.refresh()
    assert (stale["state"], stale["state_code"]) == ("stale", "budget-exhausted")
    assert stale["refreshed_at"] == good["refreshed_at"]
    assert "line" in stale["state_detail"]
    shown = board.get()
    assert (shown["data_version"], shown["state"], board.cost) == (version, "stale", "0.2")
    board.put(budget="0.5")
    assert board.refresh()["state"] == "good", "a longer line goes on"


def test_an_empty_budget_is_a_state_and_gives_the_line_back(board: Board) -> None:
    board.put(budget="5")
    first = board.get() | board.refresh()
    administration, version = board.house.books.administration, board.house.books.catalog.schema("clinic").data_version
    spent = show_pico(board.house.books.ledger.balance("clinic").spent[-1])
    administration.grant("clinic", spent, None, actor="test", reason="no more")
    board.new_data()
    stale = board.refresh()
    administration.grant("clinic", "100", None, actor="test", reason="go on")
    assert (stale["state"], stale["state_code"]) == ("stale", "budget-exhausted")
    assert stale["budget"]["spent"] == first["budget"]["spent"] == "0.1"
    assert board.get()["data_version"] == version


def test_a_query_that_the_catalog_no_longer_knows_is_a_state(board: Board) -> None:
    board.put(sql="SELECT ward, SUM(cost) AS n FROM visits GROUP BY ward")
    board.refresh()
    board.new_data(cost=None)
    stale = board.refresh()
    board.new_data()
    assert (stale["state"], stale["state_code"]) == ("stale", "construct-refused")
    assert len(board.get()["rows"]) == 3, "the last good answer stays readable"
    assert int(board.house.ask("GET", board.path, "viewer").headers["age"]) >= 0
    assert board.refresh()["state"] == "good", "and it goes on when the catalog knows it again"


def test_a_revoked_owner_is_a_state_too(board: Board) -> None:
    prefix, secret = board.house.books.administration.create_key(NewKey("leaves", "analyst", ("clinic",)), actor="test")
    headers = {"Authorization": f"Bearer {secret}"}
    assert board.house.client.put(board.path, json=board.wanted, headers=headers).status_code == 200
    board.house.walk.refresher.refresh(board.stored)
    board.house.books.administration.revoke_key(prefix, actor="test")
    stale = board.house.walk.refresher.refresh(board.stored)
    assert (stale.state, stale.state_code) == ("stale", "owner-revoked")
    assert board.get()["rows"]


def test_several_processes_take_one_turn(board: Board) -> None:
    board.put()
    for one in (board.refresher(), board.refresher(), board.refresher()):
        one.tick()
    assert len(board.house.walk.panels.history(board.stored)) == 1
    assert board.cost == "0.1"


def test_the_line_pays_for_what_is_charged_even_when_data_changes_in_between(board: Board) -> None:
    """Found to be current, then an import finishes before it is asked: the walk charges, so the line must pay."""
    board.put()
    board.refresh()
    refresher = board.refresher()
    is_current = refresher._is_current

    def late(*given: Any) -> bool:
        assert is_current(*given)
        board.new_data()
        return False

    refresher._is_current = late  # type: ignore[method-assign]
    refresher.refresh(board.stored)
    assert (board.get()["budget"]["spent"], board.cost) == ("0.2", "0.2")


def test_etags_ages_and_roles(board: Board) -> None:
    board.put()
    board.refresh()
    ask, path = board.house.ask, board.path
    first = ask("GET", path, "viewer")
    assert first.headers["cache-control"].startswith("private")
    same = ask("GET", path, "viewer", headers={"If-None-Match": first.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    stale = ask("GET", path, "viewer", headers={"If-None-Match": '"of another day"'})
    assert (stale.status_code, stale.content) == (200, first.content)
    assert ask("GET", "/v1/panels/nothing", "viewer").status_code == 404
    assert ask("PUT", path, "viewer", json=board.wanted).status_code == 403
    assert ask("POST", f"{path}/refresh", "viewer").status_code == 403
    assert ask("DELETE", path, "viewer").status_code == 403
    assert ask("PUT", path, "other", json=board.wanted).status_code == 409
    assert ask("DELETE", path, "other").status_code == 403
    assert ask("DELETE", path).status_code == 204
    assert ask("GET", path, "viewer").status_code == 404


@pytest.mark.parametrize("accept", ["image/png", "text/html;q=0.9", "application/json;q=0"])
def test_a_form_that_nobody_offers_is_refused_before_anything_is_charged(board: Board, accept: str) -> None:
    board.put()
    query = {"dataset": "clinic", "sql": "SELECT COUNT(*) AS n FROM visits", "epsilon": "0.1"}
    for method, path, body in (("GET", board.path, None), ("POST", "/v1/queries", query)):
        response = board.house.ask(method, path, json=body, headers={"Accept": accept})
        assert (response.status_code, response.json()["code"]) == (406, "not-acceptable")
        assert response.headers["content-type"] == "application/problem+json"
    assert board.cost == "0"


def test_published_panels_follow_refreshes_and_go_with_the_panel(board: Board) -> None:
    url = new_database()
    publisher = Publisher(url, schema="boards", reader=None)
    refresher = board.refresher(publisher)
    board.put()
    refresher.refresh(board.stored)
    refresher.refresh(board.stored)
    board.new_data()
    refresher.refresh(board.stored)
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as reader:
        rows = reader.execute(f"SELECT released_at, ward, n, n_low, n_high FROM boards.{board.name}").fetchall()
        assert len({row[0] for row in rows}) == 2 and len(rows) == 6
        reader.execute(f"DROP TABLE boards.{board.name}")  # whatever went wrong there …
        restarted = board.refresher(publisher)
        restarted.refresh(board.stored)  # … is made up for without new data and without a charge
        assert reader.execute(f"SELECT COUNT(*) FROM boards.{board.name}").fetchall() == [(3,)]
        restarted.forget(board.stored)
        with pytest.raises(psycopg.errors.UndefinedTable):
            reader.execute(f"SELECT 1 FROM boards.{board.name}")
    publisher.close()
    assert board.cost == "0.2"


def test_a_panel_that_could_never_be_refreshed_is_refused_at_once(board: Board) -> None:
    response = board.house.ask("PUT", board.path, "analyst", json={**board.wanted, "budget": "0.09"})
    assert (response.status_code, response.json()["field"]) == (422, "budget")
    assert "does not cover one refresh, which costs 0.1" in response.json()["detail"]


def test_whoever_may_ask_sees_the_panels_query_as_put_takes_it(board: Board) -> None:
    made = board.put(bounds={"rows_per_unit": 3})
    given = {name: board.wanted[name] for name in ("sql", "epsilon")} | {"bounds": {"rows_per_unit": 3}}
    assert made["query"] == given
    assert board.put(**made["query"])["query"] == given, "it goes round"
    assert "query" not in board.get()
    assert all("query" not in panel for panel in board.house.ask("GET", "/v1/panels", "viewer").json())


def test_a_panel_stored_by_an_earlier_version_goes_on(board: Board) -> None:
    """Such a panel holds the body of its request: it is shown, refreshed and put again as if nothing had happened."""
    body = {"dataset": "clinic", "sql": board.wanted["sql"], "epsilon": "0.10", "delta": None, "rho": None,
            "share": None, "accuracy": None, "bounds": None, "min_units": None, "weights": None, "dialect": "duckdb",
            "fresh": False}  # fmt: skip
    board.put(epsilon="0.10")
    earlier = tables.panel.update().where(tables.panel.c.name == board.name).values(request=json.dumps(body))
    board.house.books.store.write(lambda tx: tx.execute(earlier))
    shown = board.house.ask("GET", board.path, "analyst").json()
    assert shown["query"] == {"sql": board.wanted["sql"], "epsilon": "0.10"}
    assert (board.refresh()["state"], board.cost) == ("good", "0.1")
    rows = board.get()["rows"]
    assert board.put(epsilon="0.10")["state"] == "good"
    assert (board.get()["rows"], board.cost) == (rows, "0.1")


def test_a_line_may_be_counted_in_share(board: Board) -> None:
    """A question priced by accuracy pays with whatever is cheapest: its line is a share of the budget.
    (Last in this file: Gaussian noise closes the order in which `cost` counts.)"""
    made = board.put(epsilon=None, accuracy={"output": "n", "half_width": 400})
    assert made["budget"]["unit"] == "share"
    assert made["runs_out_on"] is not None
    done = board.refresh()
    assert done["budget"]["spent"] == made["budget"]["per_refresh"] != "0"
