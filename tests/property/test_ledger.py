"""Any history of acts, refusals and crashes: the stores agree with a model of a few lines."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from service.core.amounts import CLOSED, Cost
from service.core.errors import AnswerFailed, BudgetExhausted, Conflict, DatasetPaused
from service.ledger.book import AttemptExists, Grant, Hold, Ledger, NoRoomYet
from service.store.database import Store
from tests.fixtures.crashing import die_at
from tests.fixtures.ledgers import ADMIN, GRANT, KINDS, TERMS, fresh_url

OWNERS = {"hk_ann": "ann", "hk_amy": "ann", "hk_bob": "bob"}  # two keys of one person count together
ANALYSTS = tuple(OWNERS)
PERSONS = ("ann", "bob")
amounts = st.sampled_from([1, 2, 7, 50, 150, 333, 600, CLOSED])
costs = st.builds(Cost, st.tuples(amounts, amounts, amounts), st.sampled_from([0, 0, 1, 40]))
grants = st.builds(
    lambda e, a, b, d: Grant(e, 200, (a, b, e), d),
    st.integers(1, 1000),
    st.integers(-5, 600),
    st.integers(-5, 900),
    st.integers(0, 100),
)


@dataclass
class Model:
    """What the ledger promises, without a database."""

    limits: tuple[int, ...] = GRANT.limits
    delta_limit: int = GRANT.delta_limit
    spent: tuple[int, ...] = (0, 0, 0)
    delta: int = 0
    quotas: dict[str, tuple[int, int | None]] = field(default_factory=lambda: dict.fromkeys(ANALYSTS, (0, None)))
    failures: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*PERSONS, "shop"), 0))
    allowed: dict[str, int] = field(default_factory=lambda: {"ann": 3, "bob": 3, "shop": 10})
    late: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*PERSONS, "shop"), 0))
    safety: int = 4
    held: dict[str, str] = field(default_factory=dict)
    slow: set[str] = field(default_factory=set)
    entries: int = 1

    def in_flight(self, name: str) -> int:
        return len([who for who in self.held.values() if name in ("shop", OWNERS[who])])

    def after(self, cost: Cost) -> tuple[int, ...]:
        return tuple(min(CLOSED, a + b) for a, b in zip(self.spent, cost.orders, strict=True))

    def refusal(self, who: str, cost: Cost, share: int) -> type[Exception] | None:
        if self.failures["shop"] >= self.allowed["shop"]:
            return DatasetPaused
        fits = any(a <= b for a, b in zip(self.after(cost), self.limits, strict=True))
        if not fits or self.delta + cost.delta > self.delta_limit:
            return BudgetExhausted
        if self.failures[OWNERS[who]] >= self.allowed[OWNERS[who]]:
            return DatasetPaused
        used, limit = self.quotas[who]
        if limit is not None and used + share > limit:
            return BudgetExhausted
        names = (OWNERS[who], "shop")
        has_room = all(self.failures[name] + self.in_flight(name) < self.allowed[name] for name in names)
        return None if has_room else NoRoomYet

    def charge(self, query: str, who: str, cost: Cost, share: int) -> None:
        self.spent, self.delta = self.after(cost), self.delta + cost.delta
        self.quotas[who] = (self.quotas[who][0] + share, self.quotas[who][1])
        self.held[query] = who
        self.entries += 1

    def settle(self, query: str, outcome: str) -> None:
        who = self.held.pop(query)
        self.entries += 1
        for name in (OWNERS[who], "shop") if outcome == "failed" else ():
            self.failures[name] += 1


def reserve_there(ledger: Ledger, hold: Hold) -> None:
    ledger.reserve(hold)


def settle_there(ledger: Ledger, query: str, outcome: Any) -> None:
    ledger.settle(query, outcome)


class Machine(RuleBasedStateMachine):
    """Two service processes over one store, and a third that may be killed in the middle of a commit."""

    kind = "sqlite"

    @initialize()
    def start(self) -> None:
        self.url = fresh_url(self.kind)
        self.model = Model()
        self.count = 0
        self.open()
        self.ledger.open_account("shop", TERMS, GRANT, ADMIN)

    def open(self) -> None:
        self.stores = [Store(self.url), Store(self.url)]
        self.ledger, self.other = (Ledger(store) for store in self.stores)

    def close(self) -> None:
        for ledger, store in zip((self.ledger, self.other), self.stores, strict=True):
            ledger.close()
            store.close()

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            assert self.ledger.verify().holds
            self.close()

    def ask(self, who: str, cost: Cost, share: int) -> Hold:
        self.count += 1
        named = {"key": f"k{self.count}", "owner": OWNERS[who]}
        return Hold(f"q_{self.count:06}", "shop", who, f"hash {self.count}", cost, share, **named)

    @rule(who=st.sampled_from(ANALYSTS), cost=costs, share=st.integers(0, 30), there=st.booleans())
    def reserve(self, who: str, cost: Cost, share: int, there: bool = False) -> None:
        asked, refusal = self.ask(who, cost, share), self.model.refusal(who, cost, share)
        ledger = self.other if there else self.ledger
        if refusal is not None:
            with pytest.raises(refusal) as refused:
                ledger.reserve(asked)
            assert refused.type is refusal
            return
        assert ledger.reserve(asked) == self.model.entries + 1
        self.model.charge(asked.query_id, who, cost, share)
        with pytest.raises(AttemptExists):
            ledger.reserve(asked)

    @rule(who=st.sampled_from(ANALYSTS), there=st.booleans())
    def reserve_little(self, who: str, there: bool) -> None:
        """So small that the budget lasts: then the allowance is what refuses."""
        self.reserve(who, Cost((1, 1, 1)), 0, there)

    @precondition(lambda self: set(self.model.held) - self.model.slow)
    @rule(data=st.data())
    def come_late(self, data: st.DataObject) -> None:
        query = data.draw(st.sampled_from(sorted(set(self.model.held) - self.model.slow)))
        self.model.safety *= 2
        assert self.ledger.late(query) == self.model.safety
        self.model.slow.add(query)
        self.model.entries += 1
        for name in (OWNERS[self.model.held[query]], "shop"):
            self.model.late[name] += 1

    @rule(who=st.sampled_from(ANALYSTS), order=st.sampled_from([0, 1, 2]), beyond=st.sampled_from([0, 0, 1, -1]))
    def reserve_to_the_edge(self, who: str, order: int, beyond: int) -> None:
        """To the last unit of one order, one beyond it or one short of it, when no other order has room."""
        left = [limit - spent for limit, spent in zip(self.model.limits, self.model.spent, strict=True)]
        over = [min(CLOSED, max(1, rest + 1)) for rest in left]
        over[order] = max(1, left[order] + beyond)
        self.reserve(who, Cost(tuple(over)), 1)

    @precondition(lambda self: self.model.held)
    @rule(data=st.data(), outcome=st.sampled_from(["answered", "failed"]))
    def settle(self, data: st.DataObject, outcome: Any) -> None:
        query = data.draw(st.sampled_from(sorted(self.model.held)))
        self.ledger.settle(query, outcome)
        self.model.settle(query, outcome)
        with pytest.raises(AnswerFailed):
            self.ledger.settle(query, "answered")

    @rule(granted=grants)
    def grant(self, granted: Grant) -> None:
        holds = any(a <= b for a, b in zip(self.model.spent, granted.limits, strict=True))
        if not holds or self.model.delta > granted.delta_limit:
            with pytest.raises(Conflict):
                self.ledger.grant("shop", granted, ADMIN)
            return
        self.ledger.grant("shop", granted, ADMIN)
        self.model.limits, self.model.delta_limit = granted.limits, granted.delta_limit
        self.model.entries += 1

    @rule(who=st.sampled_from(ANALYSTS), limit=st.none() | st.integers(0, 60))
    def ration(self, who: str, limit: int | None) -> None:
        used = self.model.quotas[who][0]
        if limit is not None and limit < used:
            with pytest.raises(Conflict):
                self.ledger.set_quota("shop", who, limit, ADMIN)
            return
        self.ledger.set_quota("shop", who, limit, ADMIN)
        self.model.quotas[who] = (used, limit)
        self.model.entries += 1

    @rule(who=st.sampled_from((None, *PERSONS)))
    def resume(self, who: str | None) -> None:
        self.ledger.resume("shop", ADMIN, owner=who)
        name = who or "shop"
        self.model.allowed[name] = self.model.failures[name] + (3 if who else 10)
        self.model.entries += 1

    @rule(
        who=st.sampled_from(ANALYSTS),
        cost=costs,
        outcome=st.sampled_from(["answered", "failed"]),
        moment=st.sampled_from(["before", "after"]),
        commit=st.integers(1, 2),
    )
    def die(self, who: str, cost: Cost, outcome: str, moment: Any, commit: int) -> None:
        """Another process takes over, reserves and settles, and is killed around one of its commits."""
        if self.model.refusal(who, cost, 1) is not None:
            return
        asked = self.ask(who, cost, 1)
        acts = [(reserve_there, (asked,)), (settle_there, (asked.query_id, outcome))]
        assert die_at(self.url, acts, moment, commit) == commit - 1
        if commit == 2 or moment == "after":
            self.model.charge(asked.query_id, who, cost, 1)
        if commit == 2 and moment == "after":
            self.model.settle(asked.query_id, outcome)
        left = [asked.query_id] if asked.query_id in self.model.held else []
        assert self.ledger.recover() == left
        for query in left:
            self.model.settle(query, "failed")

    @rule()
    def restart(self) -> None:
        """A clean stop in the middle of queries: whatever was held is settled as failed."""
        self.close()
        self.open()
        assert self.ledger.recover() == sorted(self.model.held)
        for query in sorted(self.model.held):
            self.model.settle(query, "failed")

    @invariant()
    def balances_are_what_the_model_says(self) -> None:
        if not hasattr(self, "ledger"):
            return
        balance = self.other.balance("shop")
        assert (balance.spent, balance.delta_spent) == (self.model.spent, self.model.delta)
        assert any(a <= b for a, b in zip(balance.spent, balance.limits, strict=True))
        assert balance.safety == self.model.safety
        for name in (*PERSONS, "shop"):
            events = self.ledger.allowance("shop", None if name == "shop" else name)
            assert (events.failures, events.failures_allowed) == (self.model.failures[name], self.model.allowed[name])
            assert (events.open_holds, events.late) == (self.model.in_flight(name), self.model.late[name])
            assert events.failures + events.open_holds <= events.failures_allowed, "all in flight may fail"
        for who in ANALYSTS:
            quota = self.ledger.quota("shop", who)
            assert (quota.spent, quota.limit) == self.model.quotas[who]
        verdict = self.ledger.verify()
        assert verdict.holds, verdict.problem
        assert verdict.entries == self.model.entries


@pytest.mark.parametrize("kind", KINDS)
def test_any_history_with_crashes_leaves_the_balances_of_the_model(kind: str) -> None:
    machine = type(f"Machine_{kind}", (Machine,), {"kind": kind})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=12 if kind == "sqlite" else 6,
            stateful_step_count=20,
            deadline=None,
            phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking would kill processes for minutes
            suppress_health_check=list(HealthCheck),
        ),
    )
