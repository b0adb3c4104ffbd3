"""Tampering is found, and the first broken entry is named."""

import hashlib
import json

import pytest
import sqlalchemy as sa

from service.ledger.book import Ledger
from service.ledger.journal import digest
from service.store.database import Store
from tests.fixtures.ledgers import ADMIN, ask

Prepared = tuple[Store, Ledger]


@pytest.fixture
def written(book: Prepared) -> Prepared:
    """Six entries: open, reserve, settle, reserve, settle (failed), note; and guards removed, as
    somebody with the database's own rights could."""
    store, ledger = book
    for outcome in ("answered", "failed"):
        asked = ask((10, 20, 30), delta=4, share=5)
        ledger.reserve(asked)
        ledger.settle(asked.query_id, outcome)  # type: ignore[arg-type]
    ledger.note("looked", {"at": "the data"}, ADMIN)
    assert ledger.verify().holds
    assert ledger.verify().entries == 6
    store.write(_remove_guards)
    return book


def _remove_guards(tx: sa.Connection) -> None:
    if tx.dialect.name == "postgresql":
        for table in ("entry", "account", "allowance", "hold", "head"):
            tx.exec_driver_sql(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        return
    for (name,) in tx.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'").all():
        tx.exec_driver_sql(f"DROP TRIGGER {name}")


def run(store: Store, *statements: str) -> None:
    def work(tx: sa.Connection) -> None:
        for statement in statements:
            tx.exec_driver_sql(statement)

    store.write(work)


TAMPERED = {
    "UPDATE entry SET who = 'hk_bob' WHERE number = 4": 4,
    "UPDATE entry SET at = '2020-01-01T00:00:00.000Z' WHERE number = 2": 2,
    "UPDATE entry SET body = replace(body, '30', '3') WHERE number = 2": 2,
    "DELETE FROM entry WHERE number = 3": 3,
    "DELETE FROM entry WHERE number >= 5": 5,
    "DELETE FROM entry": 1,
    "UPDATE entry SET previous = hash WHERE number = 5": 5,
}


@pytest.mark.parametrize("statement", TAMPERED)
def test_the_first_broken_entry_is_named(written: Prepared, statement: str) -> None:
    run(written[0], statement)
    verdict = written[1].verify()
    assert not verdict.holds
    assert verdict.broken_entry == TAMPERED[statement]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE account SET spent_1 = 0 WHERE id = 'dataset:shop'",
        "UPDATE account SET delta_spent = 7 WHERE id = 'dataset:shop'",
        "UPDATE account SET limit_2 = 2000 WHERE id = 'dataset:shop'",
        "UPDATE allowance SET failures = 0 WHERE id = 'dataset:shop'",
        "UPDATE allowance SET failures_allowed = 99 WHERE id = 'person:shop:hk_ann'",
        "UPDATE allowance SET open_holds = 1 WHERE id = 'dataset:shop'",
        "UPDATE allowance SET late = 1 WHERE id = 'person:shop:hk_ann'",
        "UPDATE allowance SET safety = 8 WHERE id = 'dataset:shop'",
        "UPDATE allowance SET paused = 1 WHERE id = 'dataset:shop'",
        "DELETE FROM allowance WHERE id = 'dataset:shop'",
        "DELETE FROM allowance WHERE id = 'person:shop:hk_ann'",
        "UPDATE hold SET owner = 'hk_bob'",
        "UPDATE hold SET late = 1",
        "UPDATE account SET spent_0 = 0 WHERE id = 'quota:shop:hk_ann'",
        "UPDATE promise SET epsilon_granted = 999",
        "UPDATE hold SET state = 'held'",
        "UPDATE hold SET principal = 'hk_bob'",
        "DELETE FROM hold",
        "DELETE FROM account WHERE id = 'quota:shop:hk_ann'",
        "INSERT INTO source VALUES ('sha256:abc', 'shop')",
        "INSERT INTO source_file VALUES ('/sources/a.csv', '', 'shop', '1:2')",
        "INSERT INTO source_content VALUES ('abc', '/sources/a.csv', 'shop', 1)",
    ],
)
def test_a_balance_that_the_entries_do_not_explain_is_found(written: Prepared, statement: str) -> None:
    run(written[0], statement)
    verdict = written[1].verify()
    assert verdict.problem is not None
    assert verdict.broken_entry is None


def _rechain(store: Store, changed: dict[int, str]) -> None:
    """What a careful forger does: change bodies and compute every later hash anew."""

    def work(tx: sa.Connection) -> None:
        previous = "0" * 64
        for row in tx.exec_driver_sql("SELECT * FROM entry ORDER BY number").all():
            body = changed.get(row.number, row.body)
            made = digest(row.number, row.at, row.kind, row.dataset, row.query_id, row.who, body, previous)
            values = {"body": body, "previous": previous, "hash": made, "number": row.number}
            tx.execute(
                sa.text("UPDATE entry SET body = :body, previous = :previous, hash = :hash WHERE number = :number"),
                values,
            )
            previous = made
        tx.execute(sa.text("UPDATE head SET hash = :hash"), {"hash": previous})

    store.write(work)


def test_a_forger_who_computes_all_hashes_anew_is_caught_by_the_sums(written: Prepared) -> None:
    store, ledger = written
    body = json.loads(ledger.entries()[1].body)
    body["orders"] = ["1", "2", "3"]
    _rechain(store, {2: json.dumps(body, sort_keys=True, separators=(",", ":"))})
    assert "spent_0" in str(ledger.verify().problem)


def test_a_forger_who_also_mends_the_sums_is_caught_by_a_head_kept_elsewhere(written: Prepared) -> None:
    store, ledger = written
    kept = ledger.verify().head
    _rechain(store, {6: '{"act":"nothing","what":{},"why":""}'})
    assert ledger.verify().holds
    verdict = ledger.verify((kept,))
    assert kept in str(verdict.problem)


def test_a_head_kept_elsewhere_still_occurs_after_more_entries(written: Prepared, url: str) -> None:
    del url
    ledger = written[1]
    kept = ledger.verify().head
    run(written[0], "UPDATE allowance SET paused = 0")
    assert ledger.verify((kept,)).holds


def test_an_overspent_journal_does_not_verify(written: Prepared) -> None:
    store, ledger = written
    body = json.loads(ledger.entries()[3].body)
    body["orders"] = ["500", "700", "2000"]
    _rechain(store, {4: json.dumps(body, sort_keys=True, separators=(",", ":"))})
    assert ledger.verify().broken_entry == 4


def test_the_export_can_be_checked_without_halftone(written: Prepared) -> None:
    """The rule as docs/budgets.md states it, written again here."""
    *lines, last = written[1].export()
    previous = "0" * 64
    for number, line in enumerate(lines, start=1):
        entry = json.loads(line)
        body = json.dumps(entry["body"], sort_keys=True, separators=(",", ":"))
        fields = [entry[name] for name in ("number", "at", "kind", "dataset", "query_id", "who")]
        text = json.dumps([*fields, body, previous], separators=(",", ":"))
        assert entry["number"] == number
        assert entry["previous"] == previous
        assert entry["hash"] == hashlib.sha256(text.encode()).hexdigest()
        previous = entry["hash"]
    assert json.loads(last) == {"format": "halftone-ledger/1", "entries": 6, "head": previous}


def test_text_beyond_ascii_hashes_the_same_on_both_stores(ledger: Ledger) -> None:
    """PostgreSQL computes the hash of a reserve itself; it must be the one that Python finds."""
    ledger.reserve(ask(principal='hk_"ännä"\\', key="ключ \u2028 \n 'q'"))
    ledger.reserve(ask(principal='hk_"ännä"\\', key="second"))
    assert ledger.verify().entries == 3
