"""A panel's name may come to mean other data: what it showed before is not for the readers of what it shows now."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.catalog.declare import DatasetDeclaration, TableDeclaration
from service.catalog.keys import NewKey
from tests.fixtures.whole import DECLARED, Served, served

PATH = "/v1/panels/visits_by_ward"
SQL = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """Two datasets; `reader` may read the second only, `both` may ask of either."""
    monkeypatch.setattr("service.api.middleware.poll_cache.FRESH_S", -1.0)
    with served(tmp_path) as opened:
        shutil.copy(tmp_path / "sources/visits.parquet", tmp_path / "sources/annex.parquet")
        acts = opened.books.administration
        budget = {"unit": "patient", "epsilon": "10", "delta": "1e-6"}
        acts.put_dataset("annex", DatasetDeclaration.model_validate(budget), actor="test")
        source = {"source": {"kind": "parquet", "path": "annex.parquet"}}
        acts.put_table("annex", "visits", TableDeclaration.model_validate({**DECLARED, **source}), actor="test")
        acts.wait("annex", "visits")
        for name, role, datasets in (("reader", "viewer", ("annex",)), ("both", "analyst", ("annex", "clinic"))):
            opened.keys[name] = acts.create_key(NewKey(name, role, datasets), actor="test")[1]  # type: ignore[arg-type]
        yield opened


def put(house: Served, dataset: str, role: str) -> Any:
    body = {"dataset": dataset, "sql": SQL, "epsilon": "0.1", "budget": "1"}
    return house.ask("PUT", PATH, role, json=body)


@pytest.mark.parametrize("forgotten", [True, False])
def test_the_past_of_a_name_stays_with_those_who_could_read_it(house: Served, forgotten: bool) -> None:
    """Either the panel was deleted and its name taken again, or its owner turned it to other data."""
    assert put(house, "clinic", "both").status_code == 200
    assert house.ask("POST", f"{PATH}/refresh", "both").json()["state"] == "good"
    assert len(house.ask("GET", f"{PATH}/history", "viewer").json()) == 1
    assert house.ask("GET", f"{PATH}/history", "reader").status_code == 404
    if forgotten:
        assert house.ask("DELETE", PATH, "both").status_code == 204
    assert put(house, "annex", "both").status_code == 200
    assert house.ask("GET", f"{PATH}/history", "reader").json() == []
    assert "rows" not in house.ask("GET", PATH, "reader").json()
    assert house.ask("POST", f"{PATH}/refresh", "both").json()["state"] == "good"
    assert len(house.ask("GET", f"{PATH}/history", "reader").json()) == 1


def test_a_refresh_that_ends_late_does_not_fill_a_panel_of_the_same_name(house: Served) -> None:
    assert put(house, "clinic", "both").status_code == 200
    panels = house.walk.panels
    before = panels.get("visits_by_ward")
    assert before is not None
    house.ask("POST", f"{PATH}/refresh", "both")
    answered = panels.history("visits_by_ward")[0][1]
    house.ask("DELETE", PATH, "both")
    put(house, "annex", "both")
    panels.refreshed(before, query_id=answered, cost_pico=0, now="2026-01-01T00:00:00.000+00:00")
    after = panels.get("visits_by_ward")
    assert after is not None and after.query_id is None
