"""A panel's name is of its dataset: whoever can not read a dataset can not learn from a name what it shows."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from service.catalog.declare import DatasetDeclaration, TableDeclaration
from service.catalog.keys import NewKey
from service.released.panels import Panel
from service.released.publish import Publisher
from service.walk.panel_refresh import Refresher, RefreshTools
from tests.fixtures.postgres import new_database
from tests.fixtures.whole import DECLARED, Served, served

NAME = "visits_by_ward"
PATH = f"/v1/panels/{NAME}"
SQL = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
NOW = "2100-01-01T00:00:00.000+00:00"
OF_ANY_RESPONSE = {"x-request-id", "date"}


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """Two datasets; `reader` and `asker` may read the second only, `both` may ask of either. Time stands still."""
    monkeypatch.setattr("service.api.middleware.poll_cache.FRESH_S", -1.0)
    monkeypatch.setattr("service.walk.panel_refresh.now_text", lambda: NOW)
    with served(tmp_path) as opened:
        shutil.copy(tmp_path / "sources/visits.parquet", tmp_path / "sources/annex.parquet")
        acts = opened.books.administration
        budget = {"unit": "patient", "epsilon": "10", "delta": "1e-6"}
        acts.put_dataset("annex", DatasetDeclaration.model_validate(budget), actor="test")
        source = {"source": {"kind": "parquet", "path": "annex.parquet"}, "reason": "a copy for this test"}
        acts.put_table("annex", "visits", TableDeclaration.model_validate({**DECLARED, **source}), actor="test")
        acts.wait("annex", "visits")
        for name, role, datasets in (
            ("reader", "viewer", ("annex",)),
            ("asker", "analyst", ("annex",)),
            ("both", "analyst", ("annex", "clinic")),
        ):
            opened.keys[name] = acts.create_key(NewKey(name, role, datasets), actor="test")[1]  # type: ignore[arg-type]
        yield opened


def put(house: Served, dataset: str, role: str, **more: Any) -> Any:
    body = {"dataset": dataset, "sql": SQL, "epsilon": "0.1", "budget": "1", **more}
    return house.ask("PUT", PATH, role, json=body)


def stored(house: Served, dataset: str) -> Panel:
    found = house.walk.panels.get(dataset=dataset, name=NAME)
    assert found is not None
    return found


def seen(response: Any) -> tuple[int, bytes, dict[str, str]]:
    """All that a caller gets."""
    headers = {name: value for name, value in response.headers.items() if name not in OF_ANY_RESPONSE}
    return response.status_code, response.content, headers


def without_a_panel(house: Served) -> Iterator[tuple[int, bytes, dict[str, str]]]:
    """What keys of the annex see under the name before they use it; nothing is changed by looking."""
    for query in ("", "?dataset=clinic", "?dataset=annex", "?dataset=nowhere"):
        for role in ("reader", "asker"):
            yield seen(house.ask("GET", f"{PATH}{query}", role))
            yield seen(house.ask("GET", f"{PATH}/history{query}", role))
            yield seen(house.ask("DELETE", f"{PATH}{query}", role))
            yield seen(house.ask("POST", f"{PATH}/refresh{query}", role))
            yield seen(house.ask("GET", "/v1/panels", role))
    yield seen(put(house, "clinic", "asker"))


def with_one_that_waits(house: Served) -> Iterator[tuple[int, bytes, dict[str, str]]]:
    """Named, looked at and forgotten."""
    for _ in range(2):
        yield seen(put(house, "annex", "asker"))
    yield from looking(house)
    yield seen(house.ask("DELETE", PATH, "asker"))
    yield seen(house.ask("GET", PATH, "asker"))


def looking(house: Served) -> Iterator[tuple[int, bytes, dict[str, str]]]:
    for role in ("reader", "asker"):
        for query in ("", "?dataset=annex", "?dataset=clinic"):
            yield seen(house.ask("GET", f"{PATH}{query}", role))
            yield seen(house.ask("GET", f"{PATH}/history{query}", role))
        yield seen(house.ask("GET", "/v1/panels", role))


def with_an_answer(house: Served) -> Iterator[tuple[int, bytes, dict[str, str]]]:
    yield seen(house.ask("POST", f"{PATH}/refresh", "asker"))
    yield seen(put(house, "annex", "asker", title="Wards"))
    yield seen(put(house, "annex", "asker"))
    yield from looking(house)


def show_in_clinic(house: Served) -> None:
    assert put(house, "clinic", "analyst", title="Not for the annex").status_code == 200
    assert house.ask("POST", f"{PATH}/refresh", "analyst").json()["state"] == "good"


def test_a_name_of_an_unreadable_dataset_changes_no_byte(house: Served) -> None:
    """Status, body and headers, for every way to name a panel, without a panel of one's own and with one that waits."""
    before = [list(without_a_panel(house)), list(with_one_that_waits(house))]
    show_in_clinic(house)
    assert [list(without_a_panel(house)), list(with_one_that_waits(house))] == before
    statuses = [[status for status, _, _ in part] for part in before]
    assert {200, 404} <= set(statuses[0]) and statuses[0][-1] == 404
    assert statuses[1][:2] == [200, 200] and statuses[1][-2:] == [204, 404]


def test_nor_does_it_when_ones_own_panel_has_an_answer(house: Served) -> None:
    assert put(house, "annex", "asker").status_code == 200
    assert house.ask("POST", f"{PATH}/refresh", "asker").json()["state"] == "good"
    before = list(with_an_answer(house))
    show_in_clinic(house)
    assert list(with_an_answer(house)) == before
    assert stored(house, "annex").table_name == NAME
    assert stored(house, "clinic").table_name == f"clinic__{NAME}"


def test_whoever_reads_both_says_which_is_meant(house: Served) -> None:
    for dataset in ("annex", "clinic"):
        assert put(house, dataset, "both", title=dataset).status_code == 200
    for role in ("both", "admin"):
        for method, path in (("GET", PATH), ("GET", f"{PATH}/history"), ("POST", f"{PATH}/refresh"), ("DELETE", PATH)):
            refused = house.ask(method, path, role)
            assert (refused.status_code, refused.json()["field"]) == (409, "dataset")
            assert "annex, clinic" in refused.json()["detail"]
            assert refused.json()["remedy"] == "say which: ?dataset=annex"
        for dataset in ("annex", "clinic"):
            assert house.ask("GET", f"{PATH}?dataset={dataset}", role).json()["title"] == dataset
    assert house.ask("GET", f"{PATH}?dataset=No", "both").status_code == 422
    assert house.ask("POST", f"{PATH}/refresh?dataset=clinic", "both").json()["dataset"] == "clinic"
    assert [len(house.ask("GET", f"{PATH}/history?dataset={each}", "both").json()) for each in ("annex", "clinic")] == [
        0,
        1,
    ]
    assert house.ask("DELETE", f"{PATH}?dataset=clinic", "both").status_code == 204
    assert house.ask("GET", PATH, "both").json()["dataset"] == "annex"


def test_in_one_tick_both_are_refreshed_each_under_its_own_attempt(house: Served) -> None:
    for dataset in ("annex", "clinic"):
        assert put(house, dataset, "both", refresh="PT1H").status_code == 200
    house.walk.refresher.tick()
    for dataset in ("annex", "clinic"):
        shown = house.ask("GET", f"{PATH}?dataset={dataset}", "both").json()
        assert (shown["state"], shown["dataset"], shown["budget"]["spent"]) == ("good", dataset, "0.1")


def test_kept_polls_are_of_the_panel_that_the_key_and_the_address_name(
    house: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for dataset in ("annex", "clinic"):
        put(house, dataset, "both")
        house.ask("POST", f"{PATH}/refresh?dataset={dataset}", "both")
    monkeypatch.setattr("service.api.middleware.poll_cache.FRESH_S", 3600.0)
    for _ in range(2):  # the second time from memory
        assert house.ask("GET", PATH, "reader").json()["dataset"] == "annex"
        assert house.ask("GET", PATH, "viewer").json()["dataset"] == "clinic"
        for dataset in ("annex", "clinic"):
            assert house.ask("GET", f"{PATH}?dataset={dataset}", "both").json()["dataset"] == dataset
        assert house.ask("GET", PATH, "both").status_code == 409


def test_each_is_published_as_a_table_of_its_own(house: Served) -> None:
    url, walk = new_database(), house.walk
    publisher = Publisher(url, schema="boards", reader=None)
    refresher = Refresher(RefreshTools(walk.answerer, walk.answers, walk.panels, house.books.keys, publisher, 60))
    for dataset in ("annex", "clinic"):
        put(house, dataset, "both")
        refresher.refresh(stored(house, dataset))
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as reader:
        for dataset, table in (("annex", NAME), ("clinic", f"clinic__{NAME}")):
            rows = reader.execute(f"SELECT n FROM boards.{table} ORDER BY ward").fetchall()
            shown = house.ask("GET", f"{PATH}?dataset={dataset}", "both").json()["rows"]
            assert [row[0] for row in rows] == [n for _, n in sorted(shown)]
        refresher.forget(stored(house, "annex"))
        assert reader.execute(f"SELECT COUNT(*) FROM boards.clinic__{NAME}").fetchall() == [(3,)]
        with pytest.raises(psycopg.errors.UndefinedTable):
            reader.execute(f"SELECT 1 FROM boards.{NAME}")
    publisher.close()


@pytest.mark.parametrize("forgotten", [True, False])
def test_the_past_of_a_name_stays_with_those_who_could_read_it(house: Served, forgotten: bool) -> None:
    """Whether the panel was deleted or stays: its owner names other data the same way."""
    assert put(house, "clinic", "both").status_code == 200
    assert house.ask("POST", f"{PATH}/refresh", "both").json()["state"] == "good"
    assert len(house.ask("GET", f"{PATH}/history", "viewer").json()) == 1
    assert house.ask("GET", f"{PATH}/history", "reader").status_code == 404
    if forgotten:
        assert house.ask("DELETE", PATH, "both").status_code == 204
    assert put(house, "annex", "both").status_code == 200
    assert house.ask("GET", f"{PATH}/history", "reader").json() == []
    assert "rows" not in house.ask("GET", PATH, "reader").json()
    assert house.ask("POST", f"{PATH}/refresh?dataset=annex", "both").json()["state"] == "good"
    assert len(house.ask("GET", f"{PATH}/history", "reader").json()) == 1


def test_a_refresh_that_ends_late_does_not_fill_a_panel_of_the_same_name(house: Served) -> None:
    assert put(house, "clinic", "both").status_code == 200
    panels = house.walk.panels
    before = stored(house, "clinic")
    house.ask("POST", f"{PATH}/refresh", "both")
    answered = panels.history(before)[0][1]
    house.ask("DELETE", PATH, "both")
    put(house, "annex", "both")
    put(house, "clinic", "analyst")
    panels.refreshed(before, query_id=answered, cost_pico=0, now=NOW)
    assert stored(house, "annex").query_id is None
    assert stored(house, "clinic").query_id is None, "it is another key's by now"
