"""Refresh windows: a fresh budget per day, week or month.

What a window means: the guarantee then holds per person *and period*, not for all time. A person who
is in the data for twelve months is covered by twelve budgets. docs/budgets.md says so to admins.
"""

from datetime import date, timedelta
from typing import Literal

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
