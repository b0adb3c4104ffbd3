"""Panels: named queries that dashboards poll. One charge per refresh, none per poll.

A panel has a budget line in the unit it pays in (epsilon, rho or share). Invariant V2: the sum of what
its refreshes cost never exceeds the line; the line is tested and raised in one UPDATE before a refresh
is submitted, so two service processes can not both spend the last of it.

Invariant V4: a panel is of its dataset. Two datasets may each have one of the same name, and whoever reads one of
them meets the same service whether or not the other's is there: a name taken would tell of it.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from service.core.ask_codec import ask_from_text
from service.core.errors import CatalogRefused, Conflict
from service.released import tables
from service.store.database import Store
from service.store.transaction import Transaction

PERIOD = re.compile(r"^P(?:(\d{1,4})W)?(?:(\d{1,4})D)?(?:T(?:(\d{1,4})H)?(?:(\d{1,4})M)?)?$", re.ASCII)
SHORTEST = timedelta(minutes=1)
TABLE_NAME_MAX = 63  # PostgreSQL cuts longer names off, silently


@dataclass(frozen=True, slots=True)
class Panel:
    """A named query and how it stands.

    `request` is the question as text (core/ask_codec.py). `state`: waiting (no answer yet), good, stale (the
    last refresh failed; the last good answer stays). `state_code` is a problem's code, or why the panel itself
    could not go on; `unit` is what the line is counted in. `refreshed_at` is when the answer was last found to
    be of the newest data. `bounds_change` says how the bounds of the answer differ from those of the one before.
    `table_name` is what it is published as (`_free_table_name`); the API shows it to nobody.
    """

    name: str
    dataset: str
    owner: str
    request: str
    title: str
    chart: str
    refresh_seconds: int | None
    unit: str
    budget_pico: int
    spent_pico: int = 0
    refresh_pico: int = 0
    next_refresh_at: str | None = None
    query_id: str | None = None
    refreshed_at: str | None = None
    state: str = "waiting"
    state_code: str = ""
    state_detail: str = ""
    bounds_change: str | None = None
    table_name: str = ""

    def runs_out_on(self) -> str | None:
        """The day of the first refresh that the line no longer covers, if each one finds new data; None: never."""
        if self.refresh_seconds is None or self.refresh_pico <= 0 or self.next_refresh_at is None:
            return None
        refreshes = (self.budget_pico - self.spent_pico) // self.refresh_pico
        first = datetime.fromisoformat(self.next_refresh_at)
        try:
            return (first + refreshes * timedelta(seconds=self.refresh_seconds)).date().isoformat()
        except OverflowError:
            return None


def parse_period(text: str | None) -> int | None:
    """Seconds of an ISO 8601 duration of weeks, days, hours and minutes; None: refreshed by hand."""
    if text is None:
        return None
    match = PERIOD.match(text)
    weeks, days, hours, minutes = (int(part or 0) for part in match.groups()) if match else (0, 0, 0, 0)
    period = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes)
    if period < SHORTEST:
        raise CatalogRefused(
            "refresh must be an ISO 8601 duration of at least a minute, like PT1H or P1D", {"field": "refresh"}
        )
    return int(period.total_seconds())


def now_text() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Panels:
    """Reads and writes of panels; service/walk/panel_refresh.py refreshes them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, panel: Panel) -> Panel:
        """Create a panel, or change its owner's own (see `_changed`)."""

        def work(tx: Transaction) -> Panel:
            while True:
                row = tx.execute(sa.select(tables.panel).where(_is(panel)).with_for_update()).one_or_none()
                if row is not None:
                    break
                named = replace(panel, table_name=_free_table_name(tx, panel))
                if _insert(tx, named):
                    return named  # else another process was first, and what it wrote shows now
            if row.owner != panel.owner:
                raise Conflict(
                    f"a panel of {panel.dataset} named {panel.name} belongs to another key; choose another name"
                )
            changed = _changed(_panel(row), panel)
            tx.execute(tables.panel.update().where(_is(panel)).values(**_values(changed)))
            return changed

        return self._store.write(work)

    def get(self, *, dataset: str, name: str) -> Panel | None:
        found = self.named(name, (dataset,))
        return found[0] if found else None

    def named(self, name: str, datasets: Collection[str] | None) -> list[Panel]:
        """The panels of this name in these datasets; None: in all. Others are not even read."""
        where = tables.panel.c.name == name
        if datasets is not None:
            where &= tables.panel.c.dataset.in_(sorted(datasets))
        return self._chosen(where)

    def all(self) -> list[Panel]:
        return self._chosen(sa.true())

    def of_dataset(self, dataset: str) -> list[Panel]:
        return self._chosen(tables.panel.c.dataset == dataset)

    def _chosen(self, where: sa.ColumnElement[bool]) -> list[Panel]:
        chosen = sa.select(tables.panel).where(where).order_by(tables.panel.c.name, tables.panel.c.dataset)
        with self._store.read() as tx:
            return [_panel(row) for row in tx.execute(chosen)]

    def delete(self, panel: Panel) -> None:
        self._store.write(lambda tx: tx.execute(tables.panel.delete().where(_is(panel))))

    def due(self, now: str) -> list[Panel]:
        """Panels whose time has come. Missed periods are not made up: the next one counts from now."""
        where = tables.panel.c.next_refresh_at.is_not(None) & (tables.panel.c.next_refresh_at <= now)
        with self._store.read() as tx:
            return [_panel(row) for row in tx.execute(sa.select(tables.panel).where(where).order_by("next_refresh_at"))]

    def take_turn(self, panel: Panel, now: str) -> bool:
        """Move the panel's next refresh one period on; False when another process already did."""
        assert panel.refresh_seconds is not None
        following = datetime.fromisoformat(now) + timedelta(seconds=panel.refresh_seconds)
        where = _is(panel) & (tables.panel.c.next_refresh_at == panel.next_refresh_at)
        moved = tables.panel.update().where(where).values(next_refresh_at=following.isoformat(timespec="milliseconds"))
        return self._store.write(lambda tx: tx.execute(moved).rowcount == 1)

    def pay(self, panel: Panel, cost_pico: int) -> bool:
        """Take the cost of one refresh from the line, or leave it and say no."""
        assert cost_pico >= 0
        raised = tables.panel.c.spent_pico + cost_pico
        where = _is(panel) & (raised <= tables.panel.c.budget_pico)
        update = tables.panel.update().where(where).values(spent_pico=raised)
        return self._store.write(lambda tx: tx.execute(update).rowcount == 1)

    def give_back(self, panel: Panel, cost_pico: int) -> None:
        """Undo a payment whose charge was refused."""
        lowered = tables.panel.update().where(_is(panel), tables.panel.c.spent_pico >= cost_pico)
        self._store.write(lambda tx: tx.execute(lowered.values(spent_pico=tables.panel.c.spent_pico - cost_pico)))

    def confirmed(self, panel: Panel, now: str) -> None:
        """The data has not changed since the panel's answer: it is still the newest."""
        values = {"refreshed_at": now, "state": "good", "state_code": "", "state_detail": ""}
        update = tables.panel.update().where(_is(panel)).values(**values)
        self._store.write(lambda tx: tx.execute(update))

    def refreshed(
        self, panel: Panel, *, query_id: str, cost_pico: int, now: str, bounds_change: str | None = None
    ) -> None:
        """Point the panel to its new answer and keep the old one in its history, unless it asks otherwise by now."""
        good = {"query_id": query_id, "refreshed_at": now, "state": "good", "state_code": "", "state_detail": ""}
        values = good | {"bounds_change": bounds_change} | ({"refresh_pico": cost_pico} if cost_pico else {})

        same = [tables.panel.c[name] == getattr(panel, name) for name in ("name", "owner", "dataset", "request")]

        def work(tx: Transaction) -> None:
            if tx.execute(tables.panel.update().where(*same).values(**values)).rowcount != 1:
                return
            tx.execute(
                tables.panel_refresh.insert().values(
                    panel=panel.name,
                    dataset=panel.dataset,
                    query_id=query_id,
                    refreshed_at=now,
                    share_pico=cost_pico,
                )
            )

        self._store.write(work)

    def stale(self, panel: Panel, code: str, detail: str) -> None:
        """The last refresh did not succeed; the last good answer stays readable."""
        values = {"state": "stale", "state_code": code, "state_detail": detail}
        update = tables.panel.update().where(_is(panel)).values(**values)
        self._store.write(lambda tx: tx.execute(update))

    def history(self, panel: Panel, limit: int = 1000) -> list[tuple[str, str]]:
        """(refreshed_at, query id), newest first."""
        query = (
            sa.select(tables.panel_refresh.c.refreshed_at, tables.panel_refresh.c.query_id)
            .where(tables.panel_refresh.c.panel == panel.name, tables.panel_refresh.c.dataset == panel.dataset)
            .order_by(tables.panel_refresh.c.id.desc())
            .limit(limit)
        )
        with self._store.read() as tx:
            return [(row.refreshed_at, row.query_id) for row in tx.execute(query)]


def _changed(old: Panel, new: Panel) -> Panel:
    """Money already spent stays spent, in its unit; the same question keeps its answer and its turn."""
    spent = old.spent_pico if new.unit == old.unit else 0
    new = replace(new, spent_pico=spent, table_name=old.table_name)
    if ask_from_text(old.request) != ask_from_text(new.request):
        return new
    turn = old.next_refresh_at if old.refresh_seconds == new.refresh_seconds else new.next_refresh_at
    return replace(
        new,
        next_refresh_at=turn,
        query_id=old.query_id,
        refreshed_at=old.refreshed_at,
        state=old.state,
        state_code=old.state_code,
        state_detail=old.state_detail,
        bounds_change=old.bounds_change,
    )


def _is(panel: Panel) -> sa.ColumnElement[bool]:
    return (tables.panel.c.name == panel.name) & (tables.panel.c.dataset == panel.dataset)


def _free_table_name(tx: Transaction, panel: Panel) -> str:
    """The panel's name, where no other panel is published as that; else with its dataset, else with a number too."""
    full, number = f"{panel.dataset}__{panel.name}"[:TABLE_NAME_MAX], 2
    wanted = [panel.name, full]
    while True:
        for name in wanted:
            taken = sa.select(tables.panel.c.name).where(tables.panel.c.table_name == name)
            if tx.execute(taken).first() is None:
                return name
        ending, number = f"_{number}", number + 1
        wanted = [full[: TABLE_NAME_MAX - len(ending)] + ending]


def _insert(tx: Transaction, panel: Panel) -> bool:
    """False when another process has taken the panel's name, or its table's, since they were looked for."""
    dialect = sqlite if tx.dialect.name == "sqlite" else postgresql
    insert = dialect.insert(tables.panel).values(**_values(panel)).on_conflict_do_nothing()
    return tx.execute(insert.returning(tables.panel.c.name)).first() is not None


def _values(panel: Panel) -> dict[str, Any]:
    return {name: getattr(panel, name) for name in Panel.__dataclass_fields__}


def _panel(row: Any) -> Panel:
    return Panel(**{name: getattr(row, name) for name in Panel.__dataclass_fields__})
