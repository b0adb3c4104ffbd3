"""What admins do to a budget: each act is one entry, with who and why."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from service.core.amounts import CLOSED, Terms, show_atto, show_pico
from service.core.errors import Conflict, DatasetUnknown, LossOutOfRange
from service.ledger.accounts import (
    Balance,
    dataset_account,
    limit_values,
    new_account,
    new_quota,
    quota_account,
    read_balance,
    read_quota,
    terms_to_text,
)
from service.ledger.allowances import (
    DATASET_FAILURES_ALLOWED,
    FIRST_SAFETY,
    PERSON_FAILURES_ALLOWED,
    dataset_allowance,
    ensure_person,
    new_allowance,
    person_allowance,
)
from service.ledger.journal import Journal
from service.ledger.tables import ORDERS, UNLIMITED, account, allowance, promise
from service.ledger.windows import WindowKind, roll_window, window_id
from service.store.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Grant:
    """How much of the ceiling may be used: the admin's (epsilon, delta), and the limits it implies.

    `limits` is pico at every order, infinity last (privacy.accounting computes it); `delta_limit` is
    atto for selecting undeclared keys.
    """

    epsilon: int
    delta: int
    limits: tuple[int, ...]
    delta_limit: int


@dataclass(frozen=True, slots=True)
class By:
    """Who did it, and why: in every entry that an admin causes."""

    who: str
    why: str


def open_account(tx: Transaction, dataset: str, terms: Terms, granted: Grant, by: By) -> None:
    """The first budget of a dataset. A dataset that had one keeps it: deleted or not, the people are
    the same. Asking again with the same ceiling is a no-op; with another it is refused."""
    journal = Journal.lock(tx)
    held = tx.execute(sa.select(promise.c.terms).where(promise.c.account_id == dataset_account(dataset))).scalar()
    if held is not None:
        if held != terms_to_text(terms):
            raise Conflict(
                f"{dataset!r} already has a budget with another ceiling; it belongs to its people and stays."
                " Raise the ceiling instead",
                {"dataset": dataset},
            )
        return
    _check_grant(terms, granted)
    name, size = dataset_account(dataset), len(terms.orders) + 1
    limits = limit_values(granted.limits) | {"delta_limit": granted.delta_limit}
    tx.execute(account.insert().values(new_account(name, dataset, orders=size, **limits)))
    tx.execute(allowance.insert().values(new_allowance(dataset, None)))
    tx.execute(promise.insert().values(account_id=name, **_promised(terms, granted)))
    journal.append("open", _body(granted, by) | {"terms": terms_to_text(terms)}, who=by.who, dataset=dataset)


def grant(tx: Transaction, dataset: str, granted: Grant, by: By) -> None:
    """Set how much may be used, up to the ceiling. Never below what is spent: that is spent."""
    journal = Journal.lock(tx)
    balance = _current(tx, journal, dataset)
    _check_grant(balance.terms, granted)
    _check_not_below(balance, granted)
    _promise(tx, balance.terms, granted, dataset)
    journal.append("grant", _body(granted, by), who=by.who, dataset=dataset)


def raise_ceiling(tx: Transaction, dataset: str, terms: Terms, granted: Grant, by: By) -> None:
    """A new and weaker promise to the same people, for all to see in the journal.

    Orders and weights stay, so what was spent keeps its meaning; only the ceilings may rise.
    """
    journal = Journal.lock(tx)
    balance = _current(tx, journal, dataset)
    old = balance.terms
    same = replace(
        terms,
        epsilon_ceiling=old.epsilon_ceiling,
        delta_ceiling=old.delta_ceiling,
        delta_selection=old.delta_selection,
    )
    rises = terms.epsilon_ceiling >= old.epsilon_ceiling and terms.delta_ceiling >= old.delta_ceiling
    keeps = terms.delta_selection >= old.delta_selection and terms.delta_conversion >= old.delta_conversion
    if same != old or not rises or not keeps:
        raise Conflict(
            "a ceiling can only rise, with the orders and the split it was opened with", {"dataset": dataset}
        )
    _check_grant(terms, granted)
    _check_not_below(balance, granted)
    _promise(tx, terms, granted, dataset)
    journal.append("ceiling", _body(granted, by) | {"terms": terms_to_text(terms)}, who=by.who, dataset=dataset)


def set_quota(tx: Transaction, dataset: str, prefix: str, share: int | None, by: By) -> None:
    """Ration one analyst to `share` (pico of the dataset's budget); None lifts the ration."""
    journal = Journal.lock(tx)
    _current(tx, journal, dataset)
    quota = read_quota(tx, dataset, prefix)
    limit = UNLIMITED if share is None else share
    if not 0 <= limit <= UNLIMITED:
        raise LossOutOfRange("a quota is a share of the budget, from 0", {"field": "share"})
    if limit < quota.spent:
        raise Conflict(
            f"this analyst has already used {show_pico(quota.spent)} of the budget: a quota can not be below that",
            {"dataset": dataset, "spent": show_pico(quota.spent)},
        )
    _ensure_quota(tx, dataset, prefix)
    _update(tx, quota_account(dataset, prefix), {"limit_0": limit})
    body = {"prefix": prefix, "share": None if share is None else str(share), "why": by.why}
    journal.append("quota", body, who=by.who, dataset=dataset)


def set_window(tx: Transaction, dataset: str, kind: WindowKind | None, by: By) -> None:
    """A fresh budget per day, week or month from the next one on; None: one budget for all time.

    Nothing is given back at the change: what is spent stays spent until the next window opens.
    """
    journal = Journal.lock(tx)
    balance = _current(tx, journal, dataset)
    opens = max(window_id(kind, journal.at), balance.window_started or "") if kind else balance.window_started
    tx.execute(account.update().where(account.c.dataset == dataset).values(window_id=opens))
    _update(tx, dataset_account(dataset), {"window_kind": kind})
    journal.append("window", {"kind": kind, "from": opens, "why": by.why}, who=by.who, dataset=dataset)


def pause(tx: Transaction, dataset: str, owner: str | None, by: By) -> None:
    """No more queries to the dataset (or by one person, whatever their keys) until an admin resumes them."""
    journal = Journal.lock(tx)
    name = _allowance_of(tx, journal, dataset, owner)
    tx.execute(allowance.update().where(allowance.c.id == name).values(paused=1))
    journal.append("pause", {"prefix": None, "owner": owner, "why": by.why}, who=by.who, dataset=dataset)


def resume(tx: Transaction, dataset: str, owner: str | None, by: By) -> None:
    """An admin has looked: queries go on, with a fresh allowance of failures."""
    journal = Journal.lock(tx)
    name = _allowance_of(tx, journal, dataset, owner)
    more = DATASET_FAILURES_ALLOWED if owner is None else PERSON_FAILURES_ALLOWED
    fresh = {"paused": 0, "failures_allowed": allowance.c.failures + more}
    allow = allowance.update().where(allowance.c.id == name).values(fresh).returning(allowance.c.failures_allowed)
    allowed = tx.execute(allow).scalar_one()
    body = {"prefix": None, "owner": owner, "failures_allowed": str(allowed), "why": by.why}
    journal.append("resume", body, who=by.who, dataset=dataset)


def reset_safety(tx: Transaction, dataset: str, by: By) -> None:
    """Promises of time start again at the first safety factor: the sizes that they come from are new."""
    journal = Journal.lock(tx)
    _current(tx, journal, dataset)
    back = allowance.update().where(allowance.c.id == dataset_allowance(dataset)).values(safety=FIRST_SAFETY)
    tx.execute(back)
    journal.append("safety", {"safety": str(FIRST_SAFETY), "why": by.why}, who=by.who, dataset=dataset)


def note(tx: Transaction, act: str, what: Mapping[str, Any], by: By, dataset: str | None) -> int:
    """An act that moves no budget (a key made, a table registered), in the same chain."""
    body = {"act": act, "what": dict(what), "why": by.why}
    return Journal.lock(tx).append("note", body, who=by.who, dataset=dataset)


def current_balance(tx: Transaction, journal: Journal, dataset: str) -> Balance:
    """The dataset's balance in the window that runs now, as it is stored from now on."""
    _current(tx, journal, dataset)
    return read_balance(tx, dataset)


def _current(tx: Transaction, journal: Journal, dataset: str) -> Balance:
    """The dataset's balance in the window that runs now."""
    balance = read_balance(tx, dataset)
    if balance.window is not None:
        stored = tx.execute(sa.select(account.c.window_id).where(account.c.id == dataset_account(dataset))).scalar()
        roll_window(tx, journal, dataset, balance.window, stored)
    return balance


def _check_grant(terms: Terms, granted: Grant) -> None:
    size = len(terms.orders) + 1
    assert size <= ORDERS, "more orders than an account has columns"
    assert len(granted.limits) == size, "limits in the orders of another account"
    assert all(type(limit) is int and -CLOSED < limit < CLOSED for limit in granted.limits), "limits on the grid"
    assert granted.limits[-1] == granted.epsilon, "at order infinity the limit is epsilon itself"
    if not 0 < granted.epsilon <= terms.epsilon_ceiling:
        raise LossOutOfRange(
            f"epsilon must be above 0 and at most the ceiling {show_pico(terms.epsilon_ceiling)}; raising the ceiling"
            " is a new promise and an act of its own",
            {"field": "epsilon", "ceiling": show_pico(terms.epsilon_ceiling)},
        )
    if not 0 <= granted.delta_limit <= granted.delta <= terms.delta_ceiling:
        raise LossOutOfRange(
            f"delta must be at most the ceiling {show_atto(terms.delta_ceiling)}",
            {"field": "delta", "ceiling": show_atto(terms.delta_ceiling)},
        )
    if granted.delta_limit > terms.delta_selection:
        raise LossOutOfRange("delta for undeclared groups is more than the ceiling sets aside for it")


def _check_not_below(balance: Balance, granted: Grant) -> None:
    holds = any(spent <= limit for spent, limit in zip(balance.spent, granted.limits, strict=True))
    if not holds or balance.delta_spent > granted.delta_limit:
        raise Conflict(
            "more than that is already spent, and what is spent stays spent; to stop all queries, pause the dataset",
            {"dataset": balance.dataset},
        )


def _allowance_of(tx: Transaction, journal: Journal, dataset: str, owner: str | None) -> str:
    _current(tx, journal, dataset)
    if owner is None:
        return dataset_allowance(dataset)
    ensure_person(tx, dataset, owner)
    return person_allowance(dataset, owner)


def _ensure_quota(tx: Transaction, dataset: str, prefix: str) -> None:
    known = sa.select(account.c.id).where(account.c.id == quota_account(dataset, prefix))
    if tx.execute(known).one_or_none() is None:
        tx.execute(account.insert().values(new_quota(dataset, prefix, UNLIMITED)))


def _update(tx: Transaction, account_id: str, values: Mapping[str, object]) -> None:
    if tx.execute(account.update().where(account.c.id == account_id).values(dict(values))).rowcount != 1:
        raise DatasetUnknown("there is no such account", {"account": account_id})


def _promise(tx: Transaction, terms: Terms, granted: Grant, dataset: str) -> None:
    name = dataset_account(dataset)
    _update(tx, name, limit_values(granted.limits) | {"delta_limit": granted.delta_limit})
    tx.execute(promise.update().where(promise.c.account_id == name).values(_promised(terms, granted)))


def _promised(terms: Terms, granted: Grant) -> dict[str, Any]:
    return {
        "terms": terms_to_text(terms),
        "epsilon_granted": granted.epsilon,
        "delta_granted": granted.delta,
        "epsilon_ceiling": terms.epsilon_ceiling,
        "delta_ceiling": terms.delta_ceiling,
    }


def _body(granted: Grant, by: By) -> dict[str, Any]:
    return {
        "epsilon": str(granted.epsilon),
        "delta": str(granted.delta),
        "limits": [str(limit) for limit in granted.limits],
        "delta_limit": str(granted.delta_limit),
        "why": by.why,
    }
