"""Many clients at the end of a budget: exactly as many succeed as fit."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.core.errors import BudgetExhausted
from service.ledger.book import Ledger, NoRoomYet
from service.store.database import Store
from tests.fixtures.ledgers import ADMIN, ask, open_ledger

CLIENTS = 64


def race(ledgers: list[Ledger], share: int = 1, cost: tuple[int, ...] = (400, 600, 1)) -> int:
    """How many of 64 clients at once are served."""

    def client(number: int) -> bool:
        ledger, asked = ledgers[number % len(ledgers)], ask(cost, share=share, principal=f"hk_{number % 8}")
        while True:
            try:
                ledger.reserve(asked)
                ledger.settle(asked.query_id, "answered")
                return True
            except NoRoomYet:
                time.sleep(0.001)
            except BudgetExhausted:
                return False

    with ThreadPoolExecutor(CLIENTS) as pool:
        return sum(pool.map(client, range(CLIENTS)))


def test_on_the_last_hundredth_exactly_as_many_succeed_as_fit(ledger: Ledger) -> None:
    ledger.reserve(ask((400, 600, 990)))
    assert race([ledger]) == 10
    assert ledger.balance("shop").spent[2] == 1000
    assert sum(ledger.quota("shop", f"hk_{n}").spent for n in range(8)) == 10


def test_the_same_with_four_service_processes_worth_of_connections(ledger: Ledger, url: str) -> None:
    ledger.reserve(ask((400, 600, 990)))
    with open_ledger(url) as (_, second), open_ledger(url) as (_, third), open_ledger(url) as (_, fourth):
        assert race([ledger, second, third, fourth]) == 10
    assert ledger.balance("shop").spent[2] == 1000


def test_quotas_are_raced_for_just_as_well(ledger: Ledger) -> None:
    for number in range(8):
        ledger.set_quota("shop", f"hk_{number}", 7, ADMIN)
    assert race([ledger], share=2, cost=(1, 1, 1)) == 8 * 3
    assert ledger.balance("shop").spent == (24, 24, 24)


def test_works_that_fail_in_a_batch_take_no_neighbour_with_them(ledger: Ledger, store: Store) -> None:
    """Half of the works raise after they wrote: their writes are gone, the others' are not."""

    def client(number: int) -> None:
        def work(tx: object) -> None:
            ledger.note("kept" if number % 2 else "lost", {"client": number}, ADMIN, tx=tx)  # type: ignore[arg-type]
            if number % 2 == 0:
                raise ValueError(number)

        if number % 2:
            return store.write(work)
        with pytest.raises(ValueError, match=f"^{number}$"):
            store.write(work)
        return None

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(client, range(CLIENTS)))
    notes = [entry.body for entry in ledger.entries(limit=200) if entry.kind == "note"]
    assert len(notes) == CLIENTS // 2
    assert all("kept" in body for body in notes)
