"""What admins do, and what they can not do."""

from dataclasses import replace

import pytest
import sqlalchemy as sa

from service.core.amounts import Terms
from service.core.errors import BudgetExhausted, Conflict, DatasetUnknown, LossOutOfRange
from service.ledger.book import By, Grant, Ledger
from service.privacy.accounting.costs import limits, open_terms, selection_limit
from service.store.database import Store
from tests.fixtures.ledgers import ADMIN, GRANT, TERMS, ask

HALF = Grant(epsilon=500, delta=100, limits=(-50, 300, 500), delta_limit=50)
HIGHER = replace(TERMS, epsilon_ceiling=2000, delta_ceiling=400, delta_selection=200)
DOUBLE = Grant(epsilon=2000, delta=400, limits=(900, 1500, 2000), delta_limit=200)


def test_registering_again_does_not_refill(ledger: Ledger) -> None:
    ledger.reserve(ask())
    ledger.open_account("shop", TERMS, GRANT, ADMIN)
    assert ledger.balance("shop").spent == (1, 2, 3)
    with pytest.raises(Conflict):
        ledger.open_account("shop", HIGHER, DOUBLE, ADMIN)


def test_terms_come_back_exactly(ledger: Ledger) -> None:
    assert ledger.terms("shop") == TERMS


def test_a_grant_can_fall_to_what_is_spent_and_rise_to_the_ceiling(ledger: Ledger) -> None:
    ledger.grant("shop", HALF, ADMIN)
    assert ledger.balance("shop").limits == HALF.limits
    ledger.reserve(ask((1, 300, 1)))
    with pytest.raises(BudgetExhausted):
        ledger.reserve(ask((1, 1, 500)))
    ledger.grant("shop", GRANT, ADMIN)
    ledger.reserve(ask((1, 1, 500)))
    with pytest.raises(Conflict):
        ledger.grant("shop", HALF, ADMIN)
    assert ledger.balance("shop").limits == GRANT.limits


def test_a_grant_beyond_the_ceiling_is_refused(ledger: Ledger) -> None:
    with pytest.raises(LossOutOfRange):
        ledger.grant("shop", replace(GRANT, epsilon=1001, limits=(400, 600, 1001)), ADMIN)
    with pytest.raises(LossOutOfRange):
        ledger.grant("shop", replace(GRANT, delta=201), ADMIN)
    with pytest.raises(LossOutOfRange):
        ledger.grant("shop", replace(GRANT, delta_limit=101), ADMIN)


def test_raising_the_ceiling_is_an_act_of_its_own(ledger: Ledger) -> None:
    ledger.reserve(ask())
    ledger.raise_ceiling("shop", HIGHER, DOUBLE, By("hk_admin", "the council agreed"))
    balance = ledger.balance("shop")
    assert (balance.terms, balance.limits, balance.spent) == (HIGHER, DOUBLE.limits, (1, 2, 3))
    last = ledger.entries(dataset="shop")[-1]
    assert (last.kind, last.who) == ("ceiling", "hk_admin")
    assert "the council agreed" in last.body


@pytest.mark.parametrize(
    "terms",
    [
        replace(HIGHER, epsilon_ceiling=999),
        replace(HIGHER, delta_selection=99),
        replace(HIGHER, reference=0),
        replace(HIGHER, orders=(TERMS.orders[0], TERMS.orders[1] * 2)),
        replace(HIGHER, weights=TERMS.weights[::-1]),
    ],
)
def test_a_ceiling_never_falls_and_keeps_its_orders(ledger: Ledger, terms: object) -> None:
    with pytest.raises(Conflict):
        ledger.raise_ceiling("shop", terms, DOUBLE, ADMIN)  # type: ignore[arg-type]


def test_a_quota_can_be_set_lifted_and_not_undercut(ledger: Ledger) -> None:
    ledger.set_quota("shop", "hk_ann", 5, ADMIN)
    assert ledger.quota("shop", "hk_ann").limit == 5
    ledger.reserve(ask(share=5))
    with pytest.raises(Conflict):
        ledger.set_quota("shop", "hk_ann", 4, ADMIN)
    ledger.set_quota("shop", "hk_ann", None, ADMIN)
    ledger.reserve(ask(share=10**12))
    with pytest.raises(DatasetUnknown):
        ledger.set_quota("nowhere", "hk_ann", 5, ADMIN)


def test_a_note_joins_the_callers_transaction(ledger: Ledger, store: Store) -> None:
    def refuse(tx: sa.Connection) -> None:
        ledger.note("key created", {"prefix": "hk_new"}, ADMIN, tx=tx)
        raise RuntimeError("the key could not be stored")

    with pytest.raises(RuntimeError):
        store.write(refuse)
    assert [entry.kind for entry in ledger.entries()] == ["open"]
    assert store.write(lambda tx: ledger.note("key created", {"prefix": "hk_new"}, ADMIN, tx=tx)) == 2
    assert "hk_new" in ledger.entries()[-1].body


def test_entries_are_paged_and_filtered_by_dataset(ledger: Ledger) -> None:
    for _ in range(3):
        ledger.note("looked", {}, ADMIN)
    ledger.reserve(ask())
    assert [entry.number for entry in ledger.entries(after=1, limit=2)] == [2, 3]
    assert [entry.kind for entry in ledger.entries(dataset="shop")] == ["open", "reserve"]


def test_a_grant_without_delta_leaves_only_pure_epsilon(store: Store) -> None:
    ledger = Ledger(store)
    terms = open_terms(3 * 10**12, 10**12, keys_declared=False)
    ledger.open_account("clinic", terms, _granted(terms, 10**12), ADMIN)
    ledger.grant("clinic", _granted(terms, 0), ADMIN)
    balance = ledger.balance("clinic")
    assert (balance.delta_granted, balance.left[-1]) == (0, 3 * 10**12)
    assert set(balance.left[:-1]) == {0}, "a finite order needs delta"


def _granted(terms: Terms, delta: int) -> Grant:
    return Grant(3 * 10**12, delta, limits(terms, 3 * 10**12, delta), selection_limit(terms, delta))
