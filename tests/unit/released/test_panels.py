"""Panels: one turn per period, one payer per line, history kept."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from service.core.amounts import parse_epsilon
from service.core.ask_codec import request_to_text
from service.core.errors import CatalogRefused, Conflict
from service.core.plan import Loss
from service.core.request import Ask
from service.released import tables
from service.released.panels import Panel, Panels, parse_period
from service.store.database import Store
from tests.fixtures.postgres import new_database

DUE = "2026-01-01T00:00:00.000+00:00"
LATER = "2026-01-03T12:00:00.000+00:00"


def asking(sql: str, epsilon: str = "0.1") -> str:
    body = {"dataset": "shop", "sql": sql, "epsilon": epsilon}
    return request_to_text(Ask("shop", sql, Loss("epsilon", parse_epsilon(epsilon))), body)


PANEL = Panel(
    name="sales",
    dataset="shop",
    owner="abc",
    request=asking("SELECT COUNT(*) AS n FROM orders"),
    title="Sales",
    chart="{}",
    refresh_seconds=3600,
    unit="epsilon",
    budget_pico=10,
    next_refresh_at=DUE,
)


@pytest.fixture(params=["sqlite", "postgresql"])
def panels(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Panels]:
    url = f"sqlite:///{tmp_path / 'store.sqlite'}" if request.param == "sqlite" else new_database()
    store = Store(url)
    store.write(lambda tx: tables.metadata.create_all(tx, tables=[tables.panel, tables.panel_refresh]))
    yield Panels(store)
    store.close()


@pytest.mark.parametrize(
    ("text", "seconds"), [("PT1H", 3600), ("P1D", 86400), ("P1W", 604800), ("PT90M", 5400), ("P1DT12H", 129600)]
)
def test_periods_are_iso_durations(text: str, seconds: int) -> None:
    assert parse_period(text) == seconds


@pytest.mark.parametrize("text", ["", "P", "PT", "1h", "PT30S", "PT0M", "P-1D", "P1Y", "PT1H ", "P99999D"])
def test_other_periods_are_refused(text: str) -> None:
    with pytest.raises(CatalogRefused, match="ISO 8601"):
        parse_period(text)


def test_a_turn_is_taken_once_and_missed_periods_are_not_made_up(panels: Panels) -> None:
    panels.put(PANEL)
    (due,) = panels.due(LATER)
    assert panels.take_turn(due, LATER)
    assert not panels.take_turn(due, LATER), "a second process with the same reading comes too late"
    assert panels.due(LATER) == []
    moved = panels.get(dataset="shop", name="sales")
    assert moved is not None
    assert moved.next_refresh_at == "2026-01-03T13:00:00.000+00:00"


def test_the_line_is_never_overdrawn(panels: Panels) -> None:
    panels.put(PANEL)
    assert [panels.pay(PANEL, 4) for _ in range(4)] == [True, True, False, False]
    spent = panels.get(dataset="shop", name="sales")
    assert spent is not None
    assert spent.spent_pico == 8


def test_changing_a_panel_keeps_what_it_spent(panels: Panels) -> None:
    panels.put(PANEL)
    panels.pay(PANEL, 7)
    assert panels.put(replace(PANEL, title="New")).spent_pico == 7


def test_a_panel_of_another_key_can_not_be_taken_over(panels: Panels) -> None:
    panels.put(PANEL)
    with pytest.raises(Conflict, match="another key"):
        panels.put(replace(PANEL, owner="xyz"))


def test_a_failed_refresh_keeps_the_last_good_answer(panels: Panels) -> None:
    panels.put(PANEL)
    panels.refreshed(PANEL, query_id="q_1", cost_pico=3, now=DUE)
    panels.stale(PANEL, "budget-exhausted", "no budget")
    panel = panels.get(dataset="shop", name="sales")
    assert panel is not None
    assert (panel.state, panel.state_code, panel.query_id) == ("stale", "budget-exhausted", "q_1")
    assert panel.refreshed_at == DUE
    assert panels.history(PANEL) == [(DUE, "q_1")]


def test_the_day_on_which_the_money_runs_out_is_named() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    panel = replace(PANEL, refresh_seconds=86400, budget_pico=100, spent_pico=40, next_refresh_at=start.isoformat())
    assert replace(panel, refresh_pico=20).runs_out_on() == (start + timedelta(days=3)).date().isoformat()
    assert panel.runs_out_on() is None
    assert replace(panel, refresh_pico=20, refresh_seconds=None).runs_out_on() is None


def test_a_new_title_or_line_keeps_the_answer_and_another_question_does_not(panels: Panels) -> None:
    panels.put(PANEL)
    panels.refreshed(PANEL, query_id="q_1", cost_pico=3, now=DUE)
    same = panels.put(replace(PANEL, title="New", budget_pico=50))
    assert (same.query_id, same.state, same.next_refresh_at) == ("q_1", "good", DUE)
    spelled = panels.put(replace(PANEL, request=asking("SELECT COUNT(*) AS n FROM orders", "0.10")))
    assert (spelled.query_id, spelled.state) == ("q_1", "good"), "0.10 is the same question as 0.1"
    other = panels.put(replace(PANEL, request=asking("SELECT COUNT(*) AS n FROM customers")))
    assert (other.query_id, other.state) == (None, "waiting")


def test_a_line_in_another_unit_starts_anew(panels: Panels) -> None:
    panels.put(PANEL)
    panels.pay(PANEL, 7)
    assert panels.put(replace(PANEL, unit="rho")).spent_pico == 0


def test_what_was_not_charged_is_given_back_and_never_more(panels: Panels) -> None:
    panels.put(PANEL)
    panels.pay(PANEL, 7)
    panels.give_back(PANEL, 7)
    panels.give_back(PANEL, 7)
    back = panels.get(dataset="shop", name="sales")
    assert back is not None
    assert back.spent_pico == 0


def test_two_datasets_have_panels_of_one_name_that_share_nothing(panels: Panels) -> None:
    first, second = panels.put(PANEL), panels.put(replace(PANEL, dataset="annex", owner="xyz", budget_pico=5))
    assert panels.pay(first, 7)
    assert not panels.pay(second, 7), "its own line is shorter"
    panels.refreshed(first, query_id="q_1", cost_pico=7, now=DUE)
    panels.stale(second, "too-busy", "later")
    assert panels.history(second) == []
    assert [panel.dataset for panel in panels.named("sales", None)] == ["annex", "shop"]
    assert panels.named("sales", ["annex"]) == [
        replace(second, state="stale", state_code="too-busy", state_detail="later")
    ]
    assert panels.named("sales", []) == []
    assert panels.take_turn(first, LATER)
    assert [panel.dataset for panel in panels.due(LATER)] == ["annex"]
    panels.delete(second)
    kept = panels.get(dataset="shop", name="sales")
    assert kept is not None
    assert (kept.spent_pico, kept.query_id, kept.state) == (7, "q_1", "good")


def test_every_panel_is_published_under_a_name_of_its_own_and_keeps_it(panels: Panels) -> None:
    first, second = panels.put(PANEL), panels.put(replace(PANEL, dataset="annex"))
    assert (first.table_name, second.table_name) == ("sales", "annex__sales")
    squatter = panels.put(replace(PANEL, name="hut__sales"))
    assert panels.put(replace(PANEL, dataset="hut")).table_name == "hut__sales_2" != squatter.table_name
    panels.delete(first)
    other = asking("SELECT COUNT(*) AS n FROM customers")
    assert panels.put(replace(PANEL, dataset="annex", request=other)).table_name == "annex__sales"
    assert panels.put(PANEL).table_name == "sales"


def test_names_of_tables_stay_within_what_postgresql_keeps(panels: Panels) -> None:
    long = replace(PANEL, name="n" * 63)
    names = {panels.put(replace(long, dataset=f"{letter}" * 63)).table_name for letter in "abc"}
    alike = {panels.put(replace(long, dataset="d" * 62 + letter)).table_name for letter in "abc"}
    assert len(names | alike) == 6
    assert max(len(name) for name in names | alike) == 63
