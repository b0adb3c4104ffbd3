"""Failures and late answers: counted once, per dataset and per person, whatever the keys and the processes."""

import pytest

from service.core.errors import AnswerFailed, BudgetExhausted, DatasetPaused, DatasetUnknown, TooBusy
from service.ledger.allowances import GREATEST_SAFETY
from service.ledger.book import Hold, Ledger, NoRoomYet
from service.store.database import Store
from tests.fixtures.crashing import die_at
from tests.fixtures.ledgers import ADMIN, ask, open_ledger


def run(ledger: Ledger, **named: str) -> Hold:
    asked = ask(**named)
    ledger.reserve(asked)
    return asked


def test_keys_of_one_owner_count_together(ledger: Ledger) -> None:
    for number in range(3):
        ledger.settle(run(ledger, principal=f"hk_{number}", owner="ann").query_id, "failed")
    with pytest.raises(DatasetPaused, match="your queries"):
        ledger.reserve(ask(principal="hk_new", owner="ann"))
    run(ledger, principal="hk_new", owner="bob")
    run(ledger, principal="hk_alone")
    assert ledger.allowance("shop", "ann").failures == 3
    assert ledger.quota("shop", "hk_0").spent == 1


def test_an_owner_s_quotas_stay_per_key(ledger: Ledger) -> None:
    ledger.set_quota("shop", "hk_1", 1, ADMIN)
    for key in ("hk_1", "hk_2"):
        ledger.settle(run(ledger, principal=key, owner="ann").query_id, "answered")
    with pytest.raises(BudgetExhausted):
        ledger.reserve(ask(principal="hk_1", owner="ann"))
    run(ledger, principal="hk_2", owner="ann")


def test_no_more_run_at_once_than_may_still_fail(ledger: Ledger) -> None:
    running = [run(ledger) for _ in range(3)]
    spent = ledger.balance("shop").spent
    with pytest.raises(NoRoomYet) as refused:
        ledger.reserve(ask())
    assert isinstance(refused.value, TooBusy)
    assert refused.value.extra["retry_after_s"] == 2
    assert ledger.balance("shop").spent == spent
    ledger.settle(running[0].query_id, "answered")
    run(ledger)
    ledger.settle(running[1].query_id, "failed")
    with pytest.raises(NoRoomYet):
        ledger.reserve(ask())


def test_the_dataset_s_allowance_holds_over_all_persons(ledger: Ledger) -> None:
    running = [run(ledger, principal=f"hk_{number}") for number in range(10)]
    with pytest.raises(NoRoomYet):
        ledger.reserve(ask(principal="hk_new"))
    for asked in running:
        ledger.settle(asked.query_id, "failed")
    with pytest.raises(DatasetPaused, match="queries to 'shop'"):
        ledger.reserve(ask(principal="hk_new"))


def test_the_allowance_holds_over_processes_and_a_killed_one_still_counts(ledger: Ledger, url: str) -> None:
    for number in range(2):
        asked = Hold(f"q_killed_{number}", "shop", "hk_ann", "hash", ask().cost, 1)
        assert die_at(url, [(Ledger.reserve, (asked,))], "after", 1) == 0
    with open_ledger(url) as (_, other):
        run(other)
        with pytest.raises(NoRoomYet):
            ledger.reserve(ask())
        assert ledger.recover() == ["q_killed_0", "q_killed_1"]
        assert ledger.allowance("shop", "hk_ann").failures == 2
        with pytest.raises(NoRoomYet):
            ledger.reserve(ask())


def test_a_budget_that_is_used_up_goes_before_a_place_that_is_taken(ledger: Ledger) -> None:
    for _ in range(3):
        run(ledger)
    with pytest.raises(BudgetExhausted):
        ledger.reserve(ask((1000, 1000, 1001)))


@pytest.mark.parametrize("outcome", ["answered", "failed"])
def test_late_is_counted_once_and_doubles_the_safety_factor(ledger: Ledger, outcome: str) -> None:
    asked = run(ledger, principal="hk_1", owner="ann")
    assert ledger.balance("shop").safety == 4
    assert ledger.late(asked.query_id) == 8
    with pytest.raises(AssertionError):
        ledger.late(asked.query_id)
    ledger.settle(asked.query_id, outcome)  # type: ignore[arg-type]
    with pytest.raises(AnswerFailed):
        ledger.late(asked.query_id)
    with pytest.raises(AnswerFailed):
        ledger.late("q_never_reserved")
    balance, own = ledger.balance("shop"), ledger.allowance("shop", "ann")
    assert (balance.safety, balance.late, own.late) == (8, 1, 1)
    assert balance.failures == own.failures == (outcome == "failed")
    assert [made.kind for made in ledger.entries()][-2:] == ["late", "settle"]


def test_lateness_pauses_nobody_and_the_factor_has_a_top(ledger: Ledger) -> None:
    factors = []
    for _ in range(22):
        asked = run(ledger)
        factors.append(ledger.late(asked.query_id))
        ledger.settle(asked.query_id, "answered")
    assert factors[:3] == [8, 16, 32]
    assert factors[-1] == factors[-2] == GREATEST_SAFETY == ledger.balance("shop").safety
    assert not ledger.balance("shop").paused
    run(ledger)


def test_the_safety_factor_goes_back_with_an_entry(ledger: Ledger) -> None:
    ledger.late(run(ledger).query_id)
    ledger.reset_safety("shop", ADMIN)
    assert ledger.balance("shop").safety == 4
    assert ledger.balance("shop").late == 1
    assert (ledger.entries()[-1].kind, ledger.entries()[-1].who) == ("safety", "hk_admin")
    with pytest.raises(DatasetUnknown):
        ledger.reset_safety("nowhere", ADMIN)


def test_a_person_can_be_resumed_and_only_they(ledger: Ledger) -> None:
    for person in ("ann", "bob"):
        for _ in range(3):
            ledger.settle(run(ledger, principal=f"hk_{person}", owner=person).query_id, "failed")
    ledger.resume("shop", ADMIN, owner="ann")
    run(ledger, principal="hk_ann", owner="ann")
    with pytest.raises(DatasetPaused):
        ledger.reserve(ask(principal="hk_bob", owner="bob"))
    with pytest.raises(DatasetUnknown):
        ledger.resume("nowhere", ADMIN, owner="ann")
    shown = {one.owner: (one.failures, one.failures_allowed, one.paused) for one in ledger.events("shop")}
    assert shown == {None: (6, 10, False), "ann": (3, 6, False), "bob": (3, 3, True)}


def test_resuming_while_queries_run_gives_no_more_than_a_fresh_allowance(ledger: Ledger, store: Store) -> None:
    del store
    for _ in range(3):
        run(ledger)
    ledger.resume("shop", ADMIN, owner="hk_ann")
    with pytest.raises(NoRoomYet):
        ledger.reserve(ask())
