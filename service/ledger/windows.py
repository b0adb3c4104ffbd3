"""Refresh windows: a fresh budget per day, week or month.

What a window means: the guarantee then holds per person *and period*, not for all time. A person who
is in the data for twelve months is covered by twelve budgets. docs/budgets.md says so to admins.
"""

from datetime import date, timedelta
from typing import Any, Literal, cast

import sqlalchemy as sa

from service.ledger.journal import Journal
from service.ledger.tables import ORDERS, account
from service.store.transaction import Transaction

WindowKind = Literal["day", "week", "month"]


def window_id(kind: WindowKind, at: str) -> str:
    """The first day (UTC) of the window that holds the moment `at` of the database's clock.

    First days sort by time whatever the kind, so a later window always has the greater id, also after
    the kind was changed. Weeks begin on Monday.
    """
    day = date.fromisoformat(at[:10])
    if kind == "day":
        return day.isoformat()
    if kind == "week":
        return (day - timedelta(days=day.weekday())).isoformat()
    return day.replace(day=1).isoformat()


def roll_window(tx: Transaction, journal: Journal, dataset: str, kind: str, started: str | None) -> None:
    """Start the window that holds the database's now, unless it or a later one already runs.

    Monotonic: the id is compared in the UPDATE and again by a trigger, so a clock that is set back
    never brings a second budget for the same period.
    """
    current = window_id(cast(WindowKind, kind), journal.at)
    if current <= (started or ""):
        return
    empty: dict[str, Any] = {f"spent_{i}": 0 for i in range(ORDERS)} | {"delta_spent": 0, "window_id": current}
    is_older = sa.func.coalesce(account.c.window_id, "") < current
    moved = tx.execute(account.update().where(account.c.dataset == dataset, is_older).values(empty))
    if moved.rowcount > 0:
        journal.append("window", {"opens": current, "kind": kind}, who="service", dataset=dataset)
