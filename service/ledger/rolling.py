"""Opening a new window: the spent vectors of one dataset's accounts start again."""

from typing import Any, cast

import sqlalchemy as sa

from service.ledger.journal import Journal
from service.ledger.tables import ORDERS, account
from service.ledger.windows import WindowKind, window_id


def roll_window(tx: sa.Connection, journal: Journal, dataset: str, kind: str, started: str | None) -> None:
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
