"""Accepting a ledger that was restored: what it may have forgotten counts as spent.

Let c be the newest mark whose entry the ledger has, S(c) what a dataset had spent then, M what it had spent at the
newest mark, and L what the ledger says now. After c the marked journal went on with charges X = M - S(c), the
restored one with charges Y = L - S(c), none of which is in the other where they parted. All that was ever charged is
S(c) + X + Y = L + (M - S(c)), and where they parted later than c it is less. So every account is charged M - S(c),
order by order: never too little, and too much by what was spent between c and the backup. Charges of the last half
second before a crash have no mark and are in neither.

Where that is more than the account may hold, its limit follows at one order: nothing is left, and no grant is
accepted until the ceiling covers what is spent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from service.core.amounts import CLOSED
from service.core.errors import DatasetUnknown
from service.ledger.accounts import Balance, dataset_account, limit_values, read_balance, terms_from_text
from service.ledger.allowances import dataset_allowance
from service.ledger.grants import By, Grant, current_balance, note, open_account
from service.ledger.high_water import Mark, MarkedAccount, contains
from service.ledger.journal import Journal
from service.ledger.tables import account, allowance
from service.store.transaction import Transaction

ACT = "ledger.accept-restore"


@dataclass(frozen=True, slots=True)
class Missing:
    """What a dataset may have spent without the ledger knowing."""

    orders: tuple[int, ...]
    delta: int
    failures: int

    @property
    def nothing(self) -> bool:
        return not any(self.orders) and not self.delta and not self.failures


def accept(tx: Transaction, marks: list[Mark], by: By) -> list[str]:
    """Charge what may be missing; the datasets that it was charged to. One entry for each, and one for the act."""
    newest = marks[-1]
    common = next((mark for mark in reversed(marks) if contains(tx, mark)), None)
    before: Mapping[str, MarkedAccount] = {} if common is None else common.accounts
    charged = [name for name, marked in newest.accounts.items() if _accept(tx, name, marked, before.get(name), by)]
    subject = f"a ledger without entry {newest.number}"
    note(tx, ACT, {"subject": subject, "datasets": charged}, by, None)
    return charged


def _accept(tx: Transaction, name: str, marked: MarkedAccount, base: MarkedAccount | None, by: By) -> bool:
    try:
        read_balance(tx, name)
    except DatasetUnknown:
        _open(tx, name, marked, by)
    journal = Journal.lock(tx)
    balance = current_balance(tx, journal, name)
    journal = Journal.lock(tx)
    lacking = _missing(balance, marked, base)
    if lacking.nothing:
        return False
    _charge(tx, journal, balance, lacking, by)
    return True


def _open(tx: Transaction, name: str, marked: MarkedAccount, by: By) -> None:
    """An account that was opened after the backup: its people were promised what they were promised."""
    limits = (*marked.limits[:-1], marked.epsilon)
    open_account(
        tx, name, terms_from_text(marked.terms), Grant(marked.epsilon, marked.delta, limits, _delta(marked)), by
    )


def _delta(marked: MarkedAccount) -> int:
    return min(marked.delta_limit, marked.delta, terms_from_text(marked.terms).delta_selection)


def _missing(balance: Balance, marked: MarkedAccount, base: MarkedAccount | None) -> Missing:
    """A window that is over is over: what was spent in it does not count in the next one."""
    failures = max(0, marked.failures - (0 if base is None else base.failures))
    if balance.window is not None and marked.window is not None and (balance.window_started or "") > marked.window:
        return Missing((0,) * len(balance.spent), 0, failures)
    same = base if base is not None and base.window == marked.window else None
    before, delta = ((0,) * len(marked.spent), 0) if same is None else (same.spent, same.delta_spent)
    orders = tuple(max(0, now - then) for now, then in zip(marked.spent, before, strict=True))
    return Missing(orders, max(0, marked.delta_spent - delta), failures)


def _charge(tx: Transaction, journal: Journal, balance: Balance, lacking: Missing, by: By) -> None:
    spent = [min(CLOSED, old + more) for old, more in zip(balance.spent, lacking.orders, strict=True)]
    limits = list(balance.limits)
    if not any(used <= limit for used, limit in zip(spent, limits, strict=True)):
        at = min(range(len(spent)), key=lambda order: spent[order])
        spent[at] = limits[at] = min(spent[at], CLOSED - 1)
    delta_spent = balance.delta_spent + lacking.delta
    delta_limit = max(balance.delta_limit, delta_spent)
    values: dict[str, Any] = {f"spent_{at}": used for at, used in enumerate(spent)} | limit_values(tuple(limits))
    values |= {"delta_spent": delta_spent, "delta_limit": delta_limit}
    tx.execute(sa.update(account).where(account.c.id == dataset_account(balance.dataset)).values(values))
    failed = sa.update(allowance).where(allowance.c.id == dataset_allowance(balance.dataset))
    tx.execute(failed.values(failures=allowance.c.failures + lacking.failures))
    added = [used - old for used, old in zip(spent, balance.spent, strict=True)]
    body = {
        "epsilon": str(balance.epsilon_granted),
        "delta": str(balance.delta_granted),
        "limits": [str(limit) for limit in limits],
        "delta_limit": str(delta_limit),
        "why": by.why,
        "missing": {
            "orders": [str(more) for more in added],
            "delta": str(lacking.delta),
            "failures": str(lacking.failures),
        },
    }
    journal.append("grant", body, who=by.who, dataset=balance.dataset)
