"""A service process is killed at every commit of a scenario: what it had acknowledged is there, what
it had not is there whole or not at all, and no budget comes back."""

from typing import Any

import pytest
import sqlalchemy as sa

from service.core.amounts import Cost
from service.ledger.book import Attempt, Hold, Ledger
from tests.fixtures.crashing import Moment, die_at
from tests.fixtures.ledgers import ADMIN, GRANT, KINDS, TERMS, fresh_url, open_ledger

COST = Cost((1, 2, 3), 4)


def make_results(tx: sa.Connection) -> None:
    tx.exec_driver_sql("CREATE TABLE result (query_id TEXT)")


def open_shop(ledger: Ledger) -> None:
    ledger.open_account("shop", TERMS, GRANT, ADMIN)


def reserve(ledger: Ledger, query_id: str) -> None:
    ledger.reserve(Hold(query_id, "shop", "hk_ann", "hash", COST, 5, key=f"key of {query_id}"))


def answer(ledger: Ledger, query_id: str) -> None:
    """Settle, with a result stored in the same commit."""

    def store(tx: sa.Connection) -> None:
        tx.exec_driver_sql(f"INSERT INTO result VALUES ('{query_id}')")

    ledger.settle(query_id, "answered", store)


def fail(ledger: Ledger, query_id: str) -> None:
    ledger.settle(query_id, "failed")


def ration(ledger: Ledger) -> None:
    ledger.set_quota("shop", "hk_ann", 1000, ADMIN)


def grant(ledger: Ledger) -> None:
    ledger.grant("shop", GRANT, ADMIN)


# Every act is one commit.
SCENARIO: list[tuple[Any, tuple[str, ...]]] = [
    (open_shop, ()),
    (reserve, ("q_1",)),
    (answer, ("q_1",)),
    (reserve, ("q_2",)),
    (fail, ("q_2",)),
    (ration, ()),
    (reserve, ("q_3",)),
    (reserve, ("q_4",)),
    (answer, ("q_4",)),
    (grant, ()),
]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("commit", range(1, len(SCENARIO) + 1))
@pytest.mark.parametrize("kind", KINDS)
def test_a_process_killed_at_a_commit_loses_nothing_it_acknowledged(kind: str, commit: int, moment: Moment) -> None:
    url = fresh_url(kind)
    with open_ledger(url) as (store, _):
        store.write(make_results)
    acknowledged = die_at(url, SCENARIO, moment, commit)
    assert acknowledged == commit - 1
    survived = SCENARIO[: commit if moment == "after" else commit - 1]

    with open_ledger(url) as (store, ledger):
        assert ledger.verify().holds
        assert ledger.verify().entries == len(survived)
        reserved = [values[0] for act, values in survived if act is reserve]
        settled = [values[0] for act, values in survived if act in (answer, fail)]
        left = [query for query in reserved if query not in settled]
        assert ledger.recover() == left
        if survived:
            spent = tuple(cost * len(reserved) for cost in COST.orders)
            assert ledger.balance("shop").spent == spent
            assert ledger.balance("shop").delta_spent == COST.delta * len(reserved)
            assert ledger.quota("shop", "hk_ann").spent == 5 * len(reserved)
        for query in left:
            assert ledger.lookup("hk_ann", f"key of {query}") == Attempt("failed", query, "hash")
        with store.read() as tx:
            stored = set(tx.exec_driver_sql("SELECT query_id FROM result").scalars())
        assert stored == {values[0] for act, values in survived if act is answer}
        assert ledger.verify().holds


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_scenario_without_a_kill_runs_to_its_end(kind: str) -> None:
    """The check above would mean little if the child never got that far."""
    url = fresh_url(kind)
    with open_ledger(url) as (store, _):
        store.write(make_results)
    assert die_at(url, SCENARIO, "before", len(SCENARIO) + 1) is None
    with open_ledger(url) as (_, ledger):
        assert ledger.verify().entries == len(SCENARIO)
        assert ledger.recover() == ["q_3"]
