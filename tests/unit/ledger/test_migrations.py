"""Migrations and models agree, and every released revision can be upgraded."""

import importlib
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from service.catalog.keys import Keys
from service.core.errors import DatasetPaused
from service.released.panels import Panels
from service.store.database import metadata, open_engine
from service.store.migrate import TABLE_MODULES, current, is_current, revisions, upgrade
from tests.fixtures.ledgers import ADMIN, GRANT, TERMS, ask, empty_url, fresh_url, open_ledger
from tests.fixtures.old_ledgers import write_old_ledger

for module in TABLE_MODULES:
    importlib.import_module(module)

POSTGRESQL_FACTS = (
    "SELECT 'constraint', conrelid::regclass::text || ' ' || conname, pg_get_constraintdef(oid) FROM pg_constraint"
    " WHERE conrelid <> 0 AND connamespace = 'public'::regnamespace",
    "SELECT 'column', table_name || '.' || column_name, data_type || is_nullable || coalesce(column_default, '')"
    " FROM information_schema.columns WHERE table_schema = 'public'",
    "SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "SELECT 'trigger', tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "SELECT 'function', proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
)


def facts(url: str) -> set[tuple[str, str, str]]:
    """Everything the database knows of its tables, constraints, indexes, triggers and functions."""
    engine = open_engine(url)
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            found = [
                (kind, name, statement)
                for kind, name, text in connection.exec_driver_sql("SELECT type, name, sql FROM sqlite_master")
                for statement in _clauses(text or "")
            ]
        else:
            found = [tuple(row) for query in POSTGRESQL_FACTS for row in connection.exec_driver_sql(query)]
    engine.dispose()
    return {fact for fact in found if "alembic_version" not in fact[1]}


def _clauses(statement: str) -> list[str]:
    """A CREATE TABLE as its parts, in no order: a column that was added later stands after the constraints."""
    flat = " ".join(statement.split())
    if not flat.startswith("CREATE TABLE"):
        return [flat]
    opening, closing = flat.index("("), flat.rindex(")")
    parts, depth = [""], 0
    for sign in flat[opening + 1 : closing]:
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return [flat[:opening].strip(), flat[closing + 1 :].strip(), *(part.strip() for part in parts)]


def test_models_and_migrations_make_the_same_database(kind: str) -> None:
    """Stronger than a comparison by Alembic, which sees neither checks nor triggers nor functions."""
    made, migrated = empty_url(kind), fresh_url(kind)
    engine = open_engine(made)
    with engine.execution_options(writes=True).begin() as connection:
        metadata.create_all(connection)
    engine.dispose()
    assert facts(made) == facts(migrated)


def test_alembic_sees_no_drift(kind: str) -> None:
    engine = open_engine(fresh_url(kind))
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


# The last revision whose ledger had its events in its accounts.
BEFORE_EVENTS = "0004"


@pytest.mark.parametrize("start", [name for name in revisions() if name > BEFORE_EVENTS])
def test_every_revision_upgrades_to_the_newest_and_keeps_its_budgets(kind: str, start: str) -> None:
    url = empty_url(kind)
    upgrade(url, start)
    assert current(url) == start
    with open_ledger(url) as (_, ledger):
        ledger.open_account("shop", TERMS, GRANT, ADMIN)
        ledger.reserve(ask((1, 2, 3)))
        before = list(ledger.export())
    upgrade(url)
    assert is_current(url)
    with open_ledger(url) as (_, ledger):
        assert ledger.balance("shop").spent == (1, 2, 3)
        assert list(ledger.export()) == before
        assert ledger.verify().holds


@pytest.mark.parametrize("start", [name for name in revisions() if name <= BEFORE_EVENTS])
def test_an_older_ledger_keeps_its_entries_and_its_events_become_those_of_persons(kind: str, start: str) -> None:
    url = empty_url(kind)
    upgrade(url, start)
    before = write_old_ledger(url)
    upgrade(url)
    assert is_current(url)
    with open_ledger(url) as (_, ledger):
        assert list(ledger.export()) == before
        verdict = ledger.verify()
        assert verdict.holds, verdict.problem
        assert ledger.balance("shop").spent == (3, 6, 9)
        assert ledger.quota("shop", "hk_cy").limit == 7
        shown = {one.owner: (one.failures, one.failures_allowed, one.open_holds) for one in ledger.events("shop")}
        assert shown == {None: (1, 10, 2), "hk_ann": (1, 4, 1), "hk_bob": (0, 3, 1), "hk_cy": (0, 3, 0)}
        assert ledger.balance("shop").safety == 4
        with pytest.raises(DatasetPaused):
            ledger.reserve(ask(principal="hk_bob"))
        assert ledger.recover() == ["q_2", "q_3"]
        ledger.reserve(ask(principal="hk_ann"))
        assert ledger.verify().holds
        assert ledger.balance("shop").failures == 3


def test_keys_of_before_are_persons_of_their_own(kind: str) -> None:
    url = empty_url(kind)
    upgrade(url, BEFORE_EVENTS)
    engine = open_engine(url)
    with engine.execution_options(writes=True).begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO catalog_key (prefix, secret_sha256, name, role, datasets, created_ms)"
            " VALUES ('abc', 'x', 'ann', 'analyst', '[]', 1)"
        )
    engine.dispose()
    upgrade(url)
    with open_ledger(url) as (store, _):
        assert [key["owner"] for key in Keys(store).every()] == ["abc"]


def test_panels_of_before_keep_their_rows_their_past_and_their_tables(kind: str) -> None:
    """One name that showed two datasets in turn: each past refresh goes to the readers of its answer."""
    url = empty_url(kind)
    upgrade(url, "0008")
    engine = open_engine(url)
    answer = (
        "INSERT INTO answer (query_id, principal, dataset, data_version, sql_text, asked_at, status, body, etag)"
        " VALUES ('{}', 'abc', '{}', 1, 'SELECT 1', 'then', 'answered', '', '')"
    )
    past = "INSERT INTO panel_refresh (panel, query_id, refreshed_at, share_pico) VALUES ('sales', '{}', '{}', 3)"
    with engine.execution_options(writes=True).begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO panel (name, dataset, owner, request, title, chart, unit, budget_pico, spent_pico,"
            " refresh_pico, query_id, state, state_code, state_detail, bounds_change)"
            " VALUES ('sales', 'shop', 'abc', 'asked', 'Sales', '{}', 'rho', 10, 7, 3, 'q_2', 'good', '', '', 'more')"
        )
        for query_id, dataset in (("q_1", "clinic"), ("q_2", "shop")):
            connection.exec_driver_sql(answer.format(query_id, dataset))
        for number in (1, 2, 3):  # the third has no answer any more
            connection.exec_driver_sql(past.format(f"q_{number}", f"day {number}"))
    engine.dispose()
    upgrade(url)
    with open_ledger(url) as (store, _):
        panels = Panels(store)
        (kept,) = panels.all()
        assert (kept.name, kept.dataset, kept.table_name, kept.spent_pico) == ("sales", "shop", "sales", 7)
        assert (kept.query_id, kept.bounds_change, kept.unit) == ("q_2", "more", "rho")
        assert panels.history(kept) == [("day 3", "q_3"), ("day 2", "q_2")]
        assert panels.history(replace(kept, dataset="clinic")) == [("day 1", "q_1")]
        panels.refreshed(kept, query_id="q_4", cost_pico=3, now="day 4")
        assert [at for at, _ in panels.history(kept)] == ["day 4", "day 3", "day 2"]


def test_upgrading_twice_or_at_the_same_time_is_harmless(kind: str) -> None:
    url = empty_url(kind)
    assert current(url) is None
    failures: list[BaseException] = []

    def run() -> None:
        try:
            upgrade(url)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert is_current(url)


def test_an_interrupted_upgrade_leaves_nothing_behind(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    url = empty_url(kind)
    with monkeypatch.context() as patched:
        patched.setattr("alembic.runtime.migration.HeadMaintainer.update_to_step", stop)
        with pytest.raises(KeyboardInterrupt):
            upgrade(url)
    assert current(url) is None
    assert facts(url) == set()
    upgrade(url)
    assert is_current(url)


def test_migrations_run_from_an_installed_package(tmp_path: Path) -> None:
    """From another folder, without a checkout on the path of the command."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    code = f"from service.store.migrate import upgrade; upgrade({url!r})"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        assert connection.execute("SELECT number FROM head").fetchone() == (0,)


def test_a_store_of_another_kind_is_refused() -> None:
    for url in ("sqlite://", "sqlite:///:memory:", "mysql://nowhere/x"):
        with pytest.raises((ValueError, sa.exc.ArgumentError)):
            open_engine(url)
