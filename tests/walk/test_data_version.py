"""Data replaced in mid-question: price, codes and answer are always of one version."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from service.catalog.store import Catalog
from service.catalog.tables import dataset as dataset_table
from service.catalog.tables import table as table_table
from service.core.errors import TooBusy
from service.core.plan import Loss
from service.core.request import Ask
from service.store.database import Store
from service.store.migrate import upgrade
from tests.fixtures.postgres import new_database
from tests.fixtures.slots import ZeroEngine, answerer_of
from tests.fixtures.whole import ANALYST, clinic, import_again

PICO = 10**12
SUM = Ask("clinic", "SELECT SUM(cost) AS s FROM visits", Loss("epsilon", PICO))


class Interrupted:
    """The real engine; right before a slot is given, something happens."""

    dialect = "duckdb"

    def __init__(self, engine: Any, happens: Callable[[], None]) -> None:
        self._engine = engine
        self._happens = happens

    @contextmanager
    def slot(self, dataset: str, wait_s: float, caller: str = "") -> Iterator[Any]:
        self._happens()
        with self._engine.slot(dataset, wait_s, caller) as slot:
            yield slot

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def test_a_question_priced_before_an_import_is_priced_again_after_it(tmp_path: Path) -> None:
    with clinic(tmp_path, epsilon="100") as (books, walk):
        happened = []

        def once() -> None:
            if not happened:
                happened.append(True)
                import_again(books, tmp_path, cost={"type": "BIGINT", "bounds": [0, 50]})

        answerer = answerer_of(books, walk, Interrupted(walk.engine, once))
        answer = json.loads(answerer.submit(SUM, ANALYST, None, "", 60).body or b"")
        assert answer["data_version"] == books.catalog.schema("clinic").data_version == 2
        assert answer["receipt"]["bounds"]["columns"] == {"cost": ["0", "50"]}
        assert answer["columns"][0]["half_width_95"] == pytest.approx(4 * 50 * 3, rel=0.01), "the new bounds' noise"
        assert books.ledger.balance("clinic").spent[-1] == PICO, "charged once"


def test_data_that_never_holds_still_is_refused_before_any_charge(tmp_path: Path) -> None:
    with clinic(tmp_path, epsilon="100") as (books, walk):
        wrong = answerer_of(books, walk, ZeroEngine(data_version=99))
        with pytest.raises(TooBusy, match="being replaced"):
            wrong.submit(SUM, ANALYST, None, "", 60)
        assert books.ledger.balance("clinic").spent[-1] == 0


def test_an_answer_of_an_older_version_is_no_replay(tmp_path: Path) -> None:
    with clinic(tmp_path, epsilon="100") as (books, walk):
        first = json.loads(walk.answerer.submit(SUM, ANALYST, None, "", 60).body or b"")
        import_again(books, tmp_path)
        assert walk.answerer.estimate(SUM, ANALYST)["replay_of"] is None
        second = json.loads(walk.answerer.submit(SUM, ANALYST, None, "", 60).body or b"")
        assert (first["data_version"], second["data_version"]) == (1, 2)
        assert second["cost"]["epsilon"] == "1"


def serving(cost_high: int) -> str:
    """A served table as the catalog stores it, recognisable by a bound."""
    column = {
        "name": "cost", "type": "BIGINT", "low": "0", "high": str(cost_high), "step": "1",
        "domain": None, "unique": False, "source_name": None,
    }  # fmt: skip
    table = {"name": "visits", "unit": ["cost"], "expected_rows": None, "max_rows_per_unit": None, "columns": [column]}
    return json.dumps(table)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_declarations_and_version_are_read_at_one_moment(tmp_path: Path, kind: str) -> None:
    """Between any two statements of a reader a writer replaces both; they must still belong together."""
    url = f"sqlite:///{tmp_path / 'store.sqlite'}" if kind == "sqlite" else new_database()
    upgrade(url)
    store = Store(url)
    declared = json.dumps({"unit": "patient", "epsilon": "1", "delta": "1e-6"})
    version = 0

    def replace_data(tx: sa.Connection) -> None:
        tx.execute(dataset_table.update().values(data_version=version))
        tx.execute(table_table.update().values(serving=serving(version)))

    def begin(tx: sa.Connection) -> None:
        tx.execute(dataset_table.insert().values(name="clinic", declaration=declared, data_version=0, created_ms=0))
        tx.execute(table_table.insert().values(dataset="clinic", name="visits", declaration="{}", serving=serving(0)))

    store.write(begin)
    reads = []

    @sa.event.listens_for(store.engine, "after_cursor_execute")
    def meddle(connection: sa.Connection, cursor: Any, statement: str, *_: Any) -> None:
        nonlocal version
        if "catalog_" in statement and statement.lstrip().startswith("SELECT"):
            reads.append(statement)
            version += 1
            store.write(replace_data)

    catalog = Catalog(store)
    for _ in range(5):
        schema = catalog.schema("clinic")
        assert schema.tables["visits"].columns["cost"].high == schema.data_version
    assert len(reads) == 5, "and every reader was meddled with"
    sa.event.remove(store.engine, "after_cursor_execute", meddle)
    store.close()
