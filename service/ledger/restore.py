"""Accepting a ledger that was restored: what it may have forgotten counts as spent.

Let c be the newest mark whose entry the ledger has, S(c) all that a dataset was ever charged by then, M all that it
was charged by the newest mark, and L what the ledger says now. After c the marked journal went on with the charges
X = M - S(c), the restored one with charges Y, none of which is in the other where they parted; where they parted later
than c it is less. L has Y, so every account is charged X, order by order: never too little, and too much by what was
charged between c and the backup. S and M are sums over the journal that no window resets: one may have been set, and
have rolled, after the backup. Charges of the last half second before a crash have no mark and are in neither.

Where the restored account has a window that began on day V, only charges since V count in it. What was spent in an
account has all its charges since the day of its own window (service/ledger/windows.py: a charge rolls first, and to set
a window gives nothing back). So where the marked window's day is V or earlier, what was spent in it is enough; where it
is earlier and of the same kind, no charge came since V, because that would have rolled it.

Where that is more than the account may hold, its limit follows at one order: nothing is left, and no grant is
accepted until the ceiling covers what is spent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import sqlalchemy as sa

from service.core.amounts import CLOSED
from service.core.errors import DatasetUnknown
from service.ledger.accounts import Balance, dataset_account, limit_values, read_balance, terms_from_text
from service.ledger.allowances import dataset_allowance, ensure_person, person_allowance
from service.ledger.charges import Charges, nothing_charged
from service.ledger.grants import By, Grant, current_balance, note, open_account, set_window
from service.ledger.high_water import contains
from service.ledger.journal import Journal
from service.ledger.marks import Mark, MarkedAccount
from service.ledger.tables import account, allowance
from service.ledger.windows import WindowKind
from service.store.transaction import Transaction

ACT = "ledger.accept-restore"


@dataclass(frozen=True, slots=True)
class Missing:
    """What a dataset may have been charged, and what happened to it, without the ledger knowing."""

    charged: Charges
    failures: int
    late: int
    safety: int  # the factor to go on with
    persons: Mapping[str, tuple[int, int]]  # failures and late answers

    def changes(self, balance: Balance) -> bool:
        counted = any(self.charged.orders) or self.charged.delta or self.failures or self.late or self.persons
        return bool(counted) or self.safety > balance.safety


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
    if not lacking.changes(balance):
        return False
    _charge(tx, journal, balance, lacking, by)
    return True


def _open(tx: Transaction, name: str, marked: MarkedAccount, by: By) -> None:
    """An account that was opened after the backup: its people were promised what they were promised, per window too."""
    limits = (*marked.limits[:-1], marked.epsilon)
    open_account(
        tx, name, terms_from_text(marked.terms), Grant(marked.epsilon, marked.delta, limits, _delta(marked)), by
    )
    if marked.kind is not None:
        set_window(tx, name, cast(WindowKind, marked.kind), by)


def _delta(marked: MarkedAccount) -> int:
    return min(marked.delta_limit, marked.delta, terms_from_text(marked.terms).delta_selection)


def _missing(balance: Balance, marked: MarkedAccount, base: MarkedAccount | None) -> Missing:
    failures, late = (0, 0) if base is None else (base.failures, base.late)
    before = {} if base is None else base.persons
    persons = {name: _more(counts, before.get(name, (0, 0))) for name, counts in marked.persons.items()}
    return Missing(
        charged=_counting(balance, marked, _since(marked, base)),
        failures=max(0, marked.failures - failures),
        late=max(0, marked.late - late),
        safety=max(balance.safety, marked.safety),
        persons={name: counts for name, counts in persons.items() if any(counts)},
    )


def _counting(balance: Balance, marked: MarkedAccount, since: Charges) -> Charges:
    """What counts in the window of the restored account, of all that was charged `since` the common mark."""
    if balance.window is None:
        return since
    started, marked_window = balance.window_started or "", marked.window or ""
    if marked.kind == balance.window and marked_window < started:
        return nothing_charged(len(since.orders))
    return since.at_most(Charges(marked.spent, marked.delta_spent)) if marked_window <= started else since


def _since(marked: MarkedAccount, base: MarkedAccount | None) -> Charges:
    """All that was charged after `base`. Of marks that do not say, no more is known than what their window had."""
    spent = Charges(marked.spent, marked.delta_spent)
    if base is None:
        return marked.charged or spent
    if marked.charged is not None and base.charged is not None:
        return marked.charged.less(base.charged)
    before = Charges(base.spent, base.delta_spent)
    if marked.charged is not None:
        return marked.charged.less(before)
    return spent.less(before) if base.window == marked.window else spent


def _more(now: tuple[int, int], then: tuple[int, int]) -> tuple[int, int]:
    return max(0, now[0] - then[0]), max(0, now[1] - then[1])


def _charge(tx: Transaction, journal: Journal, balance: Balance, lacking: Missing, by: By) -> None:
    spent = [min(CLOSED, old + more) for old, more in zip(balance.spent, lacking.charged.orders, strict=True)]
    limits = list(balance.limits)
    if not any(used <= limit for used, limit in zip(spent, limits, strict=True)):
        at = min(range(len(spent)), key=lambda order: spent[order])
        spent[at] = limits[at] = min(spent[at], CLOSED - 1)
    delta_spent = balance.delta_spent + lacking.charged.delta
    delta_limit = max(balance.delta_limit, delta_spent)
    values: dict[str, Any] = {f"spent_{at}": used for at, used in enumerate(spent)} | limit_values(tuple(limits))
    values |= {"delta_spent": delta_spent, "delta_limit": delta_limit}
    tx.execute(sa.update(account).where(account.c.id == dataset_account(balance.dataset)).values(values))
    _count(tx, balance.dataset, lacking)
    added = [used - old for used, old in zip(spent, balance.spent, strict=True)]
    body = {
        "epsilon": str(balance.epsilon_granted),
        "delta": str(balance.delta_granted),
        "limits": [str(limit) for limit in limits],
        "delta_limit": str(delta_limit),
        "why": by.why,
        "missing": _body(lacking, added),
    }
    journal.append("grant", body, who=by.who, dataset=balance.dataset)


def _count(tx: Transaction, dataset: str, lacking: Missing) -> None:
    """Events that were forgotten happened all the same. A person's open holds are those of this ledger."""
    more = {"failures": allowance.c.failures + lacking.failures, "late": allowance.c.late + lacking.late}
    whole = sa.update(allowance).where(allowance.c.id == dataset_allowance(dataset))
    tx.execute(whole.values(more | {"safety": lacking.safety}))
    for owner, (failures, late) in lacking.persons.items():
        ensure_person(tx, dataset, owner)
        own = sa.update(allowance).where(allowance.c.id == person_allowance(dataset, owner))
        tx.execute(own.values(failures=allowance.c.failures + failures, late=allowance.c.late + late))


def _body(lacking: Missing, added: list[int]) -> dict[str, Any]:
    return {
        "orders": [str(more) for more in added],
        "delta": str(lacking.charged.delta),
        "failures": str(lacking.failures),
        "late": str(lacking.late),
        "safety": str(lacking.safety),
        "persons": {
            owner: {"failures": str(failures), "late": str(late)} for owner, (failures, late) in lacking.persons.items()
        },
    }
