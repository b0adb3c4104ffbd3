"""A fresh budget per period: from the database's clock, and never backwards."""

import pytest

from service.core.errors import BudgetExhausted
from service.ledger.book import Ledger
from service.ledger.windows import WindowKind, window_id
from service.store.database import Store
from tests.fixtures.ledgers import ADMIN, ask


def move_window(store: Store, day: str) -> None:
    """As if the current window had begun on another day."""
    store.write(lambda tx: tx.exec_driver_sql(f"UPDATE account SET window_id = '{day}'") and None)


@pytest.mark.parametrize(
    ("kind", "at", "expected"),
    [
        ("day", "2026-11-16T00:00:00.000Z", "2026-11-16"),
        ("day", "2026-11-16T23:59:59.999Z", "2026-11-16"),
        ("week", "2026-11-16T00:00:00.000Z", "2026-11-16"),
        ("week", "2026-11-22T23:59:59.999Z", "2026-11-16"),
        ("week", "2027-01-01T00:00:00.000Z", "2026-12-28"),
        ("month", "2028-02-29T12:00:00.000Z", "2028-02-01"),
    ],
)
def test_a_window_is_named_by_its_first_day(kind: WindowKind, at: str, expected: str) -> None:
    assert window_id(kind, at) == expected


@pytest.mark.parametrize("period", ["day", "week", "month"])
def test_a_new_window_starts_the_vectors_again(ledger: Ledger, store: Store, period: WindowKind) -> None:
    ledger.set_window("shop", period, ADMIN)
    ledger.set_quota("shop", "hk_ann", 9, ADMIN)
    ledger.reserve(ask((400, 600, 1000), delta=100, share=9))
    with pytest.raises(BudgetExhausted):
        ledger.reserve(ask())
    move_window(store, "2020-01-01")
    assert ledger.balance("shop").spent == (0, 0, 0)
    assert ledger.quota("shop", "hk_ann").spent == 0
    ledger.reserve(ask((400, 600, 1000), delta=100, share=9))
    with pytest.raises(BudgetExhausted):
        ledger.reserve(ask())
    assert [entry.kind for entry in ledger.entries()].count("window") == 2


def test_a_clock_set_back_brings_no_second_budget(ledger: Ledger, store: Store) -> None:
    ledger.set_window("shop", "day", ADMIN)
    ledger.reserve(ask((400, 600, 1000)))
    move_window(store, "2999-01-01")
    with pytest.raises(BudgetExhausted):
        ledger.reserve(ask())


def test_setting_or_changing_a_window_gives_nothing_back(ledger: Ledger) -> None:
    ledger.reserve(ask((400, 600, 1000)))
    for period in ("month", "day", "week", None, "day"):
        ledger.set_window("shop", period, ADMIN)  # type: ignore[arg-type]
        with pytest.raises(BudgetExhausted):
            ledger.reserve(ask())


def test_without_a_window_a_budget_is_for_all_time(ledger: Ledger, store: Store) -> None:
    ledger.reserve(ask((400, 600, 1000)))
    move_window(store, "2020-01-01")
    with pytest.raises(BudgetExhausted):
        ledger.reserve(ask())


def test_failures_are_counted_for_life_not_per_window(ledger: Ledger, store: Store) -> None:
    ledger.set_window("shop", "day", ADMIN)
    asked = ask()
    ledger.reserve(asked)
    ledger.settle(asked.query_id, "failed")
    move_window(store, "2020-01-01")
    ledger.reserve(ask())
    assert ledger.balance("shop").failures == 1
