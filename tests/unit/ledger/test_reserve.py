"""Charging: all accounts or none, to the last unit and no further."""

import pytest

from service.core.amounts import CLOSED, Cost
from service.core.errors import BudgetExhausted, Conflict, DatasetUnknown
from service.ledger.book import Hold, Ledger
from service.store.transaction import Transaction
from tests.fixtures.ledgers import ADMIN, ask


def test_a_charge_moves_the_dataset_and_the_quota_together(ledger: Ledger) -> None:
    entry = ledger.reserve(ask((1, 2, 3), delta=4, share=5))
    assert entry == 2
    balance = ledger.balance("shop")
    assert (balance.spent, balance.delta_spent) == ((1, 2, 3), 4)
    assert ledger.quota("shop", "hk_ann").spent == 5
    assert balance.left == (399, 598, 997)


def test_what_is_written_with_a_charge_stands_or_falls_with_it(ledger: Ledger) -> None:
    seen: list[str] = []
    ledger.reserve(ask((1, 2, 3)), lambda tx: seen.append("written"))
    assert seen == ["written"]

    def refuse(tx: Transaction) -> None:
        raise Conflict("not now")

    with pytest.raises(Conflict, match="not now"):
        ledger.reserve(ask((1, 2, 3)), refuse)
    with pytest.raises(BudgetExhausted):
        ledger.reserve(ask((1000, 1000, 1001)), lambda tx: seen.append("never"))
    assert (seen, ledger.balance("shop").spent) == (["written"], (1, 2, 3))
    assert ledger.verify().holds


def test_the_last_unit_fits_and_the_next_does_not(ledger: Ledger) -> None:
    ledger.reserve(ask((CLOSED, CLOSED, 999)))
    ledger.reserve(ask((CLOSED, CLOSED, 1)))
    with pytest.raises(BudgetExhausted):
        ledger.reserve(ask((CLOSED, CLOSED, 1)))
    assert ledger.balance("shop").spent == (CLOSED, CLOSED, 1000)


def test_one_order_with_room_is_enough_and_closed_orders_stay_closed(ledger: Ledger) -> None:
    ledger.reserve(ask((399, 10, CLOSED)))
    ledger.reserve(ask((300, 10, 1)))
    assert ledger.balance("shop").spent == (699, 20, CLOSED)
    with pytest.raises(BudgetExhausted):
        ledger.reserve(ask((1, 581, 1)))
    ledger.reserve(ask((1, 580, 1)))


def test_spent_amounts_saturate_instead_of_overflowing(ledger: Ledger) -> None:
    for _ in range(3):
        ledger.reserve(ask((CLOSED, 1, CLOSED)))
    assert ledger.balance("shop").spent == (CLOSED, 3, CLOSED)


def test_a_refusal_names_the_account_its_remainder_and_the_cost(ledger: Ledger) -> None:
    ledger.reserve(ask((1, 100, 1)))
    with pytest.raises(BudgetExhausted) as caught:
        ledger.reserve(ask((401, 501, 1001)))
    facts = caught.value.extra
    assert facts["account"] == "dataset"
    assert (facts["remaining"], facts["cost"]) == ("9.99e-10", "1.001e-9"), "at the order that shows as remaining"
    assert "shop" in caught.value.detail
    assert "ask for less" in str(facts["remedy"])


def test_delta_has_a_limit_of_its_own(ledger: Ledger) -> None:
    ledger.reserve(ask(delta=99))
    with pytest.raises(BudgetExhausted) as caught:
        ledger.reserve(ask(delta=2))
    assert caught.value.extra["currency"] == "delta"
    ledger.reserve(ask(delta=1))
    assert ledger.balance("shop").delta_spent == 100


def test_a_refused_quota_leaves_the_dataset_untouched(ledger: Ledger) -> None:
    ledger.set_quota("shop", "hk_ann", 10, ADMIN)
    ledger.reserve(ask(share=10))
    before = ledger.balance("shop")
    with pytest.raises(BudgetExhausted) as caught:
        ledger.reserve(ask(share=1, key="refused"))
    assert caught.value.extra["account"] == "quota"
    assert ledger.balance("shop") == before
    assert ledger.lookup("hk_ann", "refused") is None
    ledger.reserve(ask(share=1, principal="hk_bob"))


def test_analysts_share_one_budget_whatever_their_quotas_say(ledger: Ledger) -> None:
    ledger.reserve(ask((400, 600, 1000), principal="hk_ann"))
    with pytest.raises(BudgetExhausted):
        ledger.reserve(ask((1, 1, 1), principal="hk_bob"))


def test_a_dataset_without_an_account_is_unknown(ledger: Ledger) -> None:
    with pytest.raises(DatasetUnknown):
        ledger.reserve(ask(dataset="nowhere"))


@pytest.mark.parametrize(
    "cost",
    [
        Cost((1, 2)),
        Cost((1, 2, 3, 4)),
        Cost((-1, 2, 3)),
        Cost((1, 2, 0)),
        Cost((1, 2, 3), -1),
        Cost((1, 2, CLOSED + 1)),
        Cost((1.0, 2, 3)),  # type: ignore[arg-type]
        Cost((1, 2, float("nan"))),  # type: ignore[arg-type]
        Cost((1, 2, True)),
    ],
)
def test_a_cost_that_is_no_cost_is_a_bug(ledger: Ledger, cost: Cost) -> None:
    with pytest.raises(AssertionError):
        ledger.reserve(Hold("q_bad", "shop", "hk_ann", "hash", cost, 1))
    assert ledger.balance("shop").spent == (0, 0, 0)


def test_history_shows_own_charges_and_no_time_of_settling(ledger: Ledger) -> None:
    first, second = ask((1, 2, 3), delta=4, share=5), ask()
    ledger.reserve(first)
    ledger.reserve(ask(principal="hk_bob"))
    ledger.reserve(second)
    ledger.settle(first.query_id, "answered")
    past = ledger.history("hk_ann")
    assert [line.query_id for line in past] == [second.query_id, first.query_id]
    assert (past[1].cost, past[1].share) == (Cost((1, 2, 3), 4), 5)
    assert ledger.history("hk_ann", dataset="other") == []
