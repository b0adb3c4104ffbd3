"""Migrations and models agree, and every released revision can be upgraded."""

import importlib
import re
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from service.store.database import metadata, open_engine
from service.store.migrate import TABLE_MODULES, current, is_current, revisions, upgrade
from tests.fixtures.ledgers import ADMIN, GRANT, TERMS, ask, empty_url, fresh_url, open_ledger

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
    """A CREATE TABLE as its lines: the order of constraints means nothing."""
    if not statement.startswith("CREATE TABLE"):
        return [" ".join(statement.split())]
    return [re.sub(r"\s+", " ", line).strip(" ,") for line in statement.splitlines()]


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


@pytest.mark.parametrize("start", revisions())
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
