"""The database itself refuses what the ledger would never do."""

import pytest
import sqlalchemy as sa

from service.core.amounts import CLOSED
from service.ledger.book import Ledger
from service.ledger.claims import SourceFile, Wanted
from service.store.database import Store
from tests.fixtures.ledgers import ADMIN, ask

CLAIM = Wanted("shop", "orders", True, (SourceFile("/sources/orders.csv", "1:2", "abc"),))

FORBIDDEN = {
    "changing an entry": "UPDATE entry SET body = '{}' WHERE number = 1",
    "removing an entry": "DELETE FROM entry",
    "an entry out of order": "INSERT INTO entry SELECT number + 5, at, kind, dataset, query_id, who, body, previous,"
    " hash FROM entry WHERE number = 1",
    "an entry of an unknown kind": "INSERT INTO entry SELECT 4, at, 'refund', dataset, query_id, who, body,"
    " (SELECT hash FROM head), 'h' FROM entry WHERE number = 1",
    "removing the head": "DELETE FROM head",
    "removing an account": "DELETE FROM account",
    "removing a promise": "DELETE FROM promise",
    "moving a file": "UPDATE source_file SET dataset = 'other'",
    "removing a file": "DELETE FROM source_file",
    "changing what a file held": "UPDATE source_content SET private = 0",
    "forgetting what a file held": "DELETE FROM source_content",
    "a refund": "UPDATE account SET spent_2 = 0 WHERE id = 'dataset:shop'",
    "a refund of delta": "UPDATE account SET delta_spent = 0 WHERE id = 'dataset:shop'",
    "a rename": "UPDATE account SET id = 'dataset:shop2' WHERE id = 'dataset:shop'",
    "overspending every order": "UPDATE account SET spent_0 = 401, spent_1 = 601, spent_2 = 1001"
    " WHERE id = 'dataset:shop'",
    "overspending delta": "UPDATE account SET delta_spent = 101 WHERE id = 'dataset:shop'",
    "overspending a quota": "UPDATE account SET spent_0 = 21 WHERE id = 'quota:shop:hk_ann'",
    "passing the sentinel": f"UPDATE account SET spent_0 = {CLOSED + 1} WHERE id = 'dataset:shop'",
    "a limit that reopens closed orders": f"UPDATE account SET limit_0 = {CLOSED} WHERE id = 'dataset:shop'",
    "a grant beyond the ceiling": "UPDATE promise SET epsilon_granted = 1001",
    "a negative count of failures": "UPDATE allowance SET failures = -1",
    "forgetting a failure": "UPDATE allowance SET failures = failures - 1 WHERE id = 'dataset:shop'",
    "forgetting a late answer": "UPDATE allowance SET late = late - 1 WHERE id = 'dataset:shop'",
    "more in flight than may still fail": "UPDATE allowance SET open_holds = 3 WHERE id = 'person:shop:hk_ann'",
    "no safety": "UPDATE allowance SET safety = 0",
    "removing an allowance": "DELETE FROM allowance",
    "two attempts under one key": "INSERT INTO hold (query_id, dataset, principal, key, request_hash, owner, process,"
    " late, state) SELECT 'q_other', dataset, principal, key, request_hash, owner, process, 0, state FROM hold"
    " WHERE key = 'k'",
    "a state that is none": "UPDATE hold SET state = 'refunded'",
}


@pytest.mark.parametrize("act", FORBIDDEN)
def test_the_database_refuses(ledger: Ledger, store: Store, act: str) -> None:
    ledger.set_quota("shop", "hk_ann", 20, ADMIN)
    ledger.claim_files(CLAIM, ADMIN)
    ledger.reserve(ask((1, 2, 3), delta=4, share=5, key="k"))
    slow = ask((1, 1, 1), share=0)
    ledger.reserve(slow)
    ledger.late(slow.query_id)
    ledger.settle(slow.query_id, "failed")
    with pytest.raises(sa.exc.DBAPIError):
        store.write(lambda tx: tx.exec_driver_sql(FORBIDDEN[act]) and None)


def test_integers_stay_integers(ledger: Ledger, store: Store, kind: str) -> None:
    """9223372036854775807 + 1 is a float in SQLite, without a word. PostgreSQL refuses by itself."""
    del ledger
    halves = ("1.5",) if kind == "sqlite" else ()  # PostgreSQL rounds it to an integer on assignment
    for value in ("9223372036854775807 + 1", "1e300", "'many'", *halves):
        for column in ("account SET orders", "allowance SET failures_allowed"):
            statement = f"UPDATE {column} = {value}"
            with pytest.raises(sa.exc.DBAPIError):
                store.write(lambda tx, s=statement: tx.exec_driver_sql(s) and None)  # type: ignore[misc]


def test_whole_tables_can_not_be_emptied(kind: str, store: Store, ledger: Ledger) -> None:
    for table in ("entry", "account", "allowance", "promise", "source_file", "source_content", "head"):
        statement = f"DELETE FROM {table}" if kind == "sqlite" else f"TRUNCATE {table} CASCADE"
        ledger.claim_files(CLAIM, ADMIN)
        with pytest.raises(sa.exc.DBAPIError):
            store.write(lambda tx, s=statement: tx.exec_driver_sql(s) and None)  # type: ignore[misc]
