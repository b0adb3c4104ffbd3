"""Panels refreshed in their time: one charge per refresh, from the panel's own line, in its owner's name.

Several service processes may run this loop over one store: a panel's turn is taken by a conditional
update, so one of them refreshes it. Missed periods are not made up. A refresh on an unchanged data
version finds the stored release and costs nothing.
"""

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from service.core.ask_codec import ask_from_text
from service.core.errors import BudgetExhausted, NotFound, ServiceError
from service.core.request import Ask, Principal
from service.released.panels import Panel, Panels, now_text
from service.released.publish import Publisher
from service.released.store import Answers
from service.walk.answer_body import line_amount
from service.walk.answerer import Answerer
from service.walk.question import Question
from service.walk.submission import Submission

log = logging.getLogger("halftone.panels")

TICK_S = 1.0


class Owners(Protocol):
    """Who owns a panel now: the key may have been revoked since."""

    def principal(self, prefix: str) -> Principal | None: ...


@dataclass(frozen=True, slots=True)
class RefreshTools:
    """What a refresh works with; the composition root makes it."""

    answerer: Answerer
    answers: Answers
    panels: Panels
    owners: Owners
    publisher: Publisher | None
    patience_s: float


@dataclass(slots=True)
class PanelLine:
    """The panel's budget line during one refresh; the walk asks it right before the charge (invariant V2)."""

    panel: Panel
    panels: Panels
    paid: int = 0

    def take(self, question: Question) -> None:
        unit, cost = line_amount(question)
        if unit != self.panel.unit or not self.panels.pay(self.panel, cost):
            raise BudgetExhausted("the panel's budget line does not cover another refresh", {"account": "panel"})
        self.paid = cost

    def give_back(self) -> None:
        self.panels.give_back(self.panel, self.paid)
        self.paid = 0


class Refresher:
    """A thread that looks for panels whose time has come."""

    def __init__(self, using: RefreshTools) -> None:
        self._using = using
        self._stop = threading.Event()
        self._published: dict[tuple[str, str], str] = {}  # panel: the query that its published rows come from
        self._thread = threading.Thread(target=self._loop, name="panels", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def refresh(self, panel: Panel) -> Panel:
        """Refresh one panel now, whatever its period."""
        self._refresh(panel, now_text())
        refreshed = self._using.panels.get(dataset=panel.dataset, name=panel.name)
        if refreshed is None:
            raise NotFound("there is no such panel", {"panel": panel.name})
        return refreshed

    def forget(self, panel: Panel) -> None:
        """Remove a panel, and the table that BI tools read."""
        self._using.panels.delete(panel)
        self._published.pop((panel.dataset, panel.name), None)
        self._quietly(panel, lambda publisher: publisher.withdraw(panel.table_name))

    def tick(self) -> None:
        """Every panel that is due, one after the other."""
        now = now_text()
        for panel in self._using.panels.due(now):
            if self._stop.is_set():
                return
            if self._using.panels.take_turn(panel, now):
                self._refresh(panel, now)

    def _loop(self) -> None:
        while not self._stop.wait(TICK_S):
            try:
                self.tick()
            except Exception as bug:
                log.error("panels could not be looked through", extra={"kind": type(bug).__name__})

    def _refresh(self, panel: Panel, now: str) -> None:
        """Ask in the owner's name; on refusal the last good answer stays, with a state that says why."""
        panels = self._using.panels
        owner = self._using.owners.principal(panel.owner)
        if owner is None:
            panels.stale(panel, "owner-revoked", "the key that owns this panel is no longer valid")
            return
        try:
            self._ask(panel, owner, now)
        except ServiceError as error:
            panels.stale(panel, error.code, f"{error.title}: {error.detail}")
        except Exception as bug:
            log.error("a refresh ended in a bug", extra=_logged(panel, bug))
            panels.stale(panel, "internal-error", "the refresh could not be completed")

    def _ask(self, panel: Panel, owner: Principal, now: str) -> None:
        using, line = self._using, PanelLine(panel, self._using.panels)
        ask = ask_from_text(panel.request)
        if self._is_current(panel, ask, owner):
            using.panels.confirmed(panel, now)
            self._publish(panel)
            return
        attempt = f"panel {panel.dataset} {panel.name} {now}"
        submission = Submission(ask, owner, _hashed(panel.request), key=attempt, line=line)
        done = using.answerer.run(submission, using.patience_s)
        if done.body is None:
            using.panels.stale(panel, "running", "the refresh takes long; the next one will find its answer")
            return
        using.panels.refreshed(
            panel, query_id=done.query_id, cost_pico=line.paid, now=now, bounds_change=self._change(panel, done.body)
        )
        self._publish(panel)

    def _change(self, panel: Panel, body: bytes) -> str | None:
        """A default that an admin accepted makes a jump in the panel's values, which is not one in the data."""
        shown = None if panel.query_id is None else self._using.answers.get(panel.query_id)
        if shown is None or shown.status != "answered" or shown.dataset != panel.dataset:
            return None
        return bounds_change(json.loads(shown.body), json.loads(body))

    def _is_current(self, panel: Panel, ask: Ask, owner: Principal) -> bool:
        """Does the panel already show what the store would answer for nothing?"""
        shown = None if panel.query_id is None else self._using.answers.get(panel.query_id)
        if shown is None:
            return False
        return self._using.answerer.shows_now(ask, owner, shown)

    def _publish(self, panel: Panel) -> None:
        """Write the newest answer for BI tools, unless this process has done so: what failed once is made up."""
        named, newest = (panel.dataset, panel.name), self._using.panels.history(panel, limit=1)
        if self._using.publisher is None or not newest or self._published.get(named) == newest[0][1]:
            return
        released_at, query_id = newest[0]
        stored = self._using.answers.get(query_id)
        if stored is None or stored.dataset != panel.dataset:
            return
        if self._quietly(panel, lambda to: to.publish(panel.table_name, stored.body, released_at)):
            self._published[named] = query_id

    def _quietly(self, panel: Panel, act: Callable[[Publisher], None]) -> bool:
        """BI tools read a copy: that it could not be written must not take the panel away."""
        if self._using.publisher is None:
            return False
        try:
            act(self._using.publisher)
        except Exception as bug:
            log.error("a panel could not be published", extra=_logged(panel, bug))
            return False
        return True


def _logged(panel: Panel, bug: Exception) -> dict[str, str]:
    return {"panel": panel.name, "dataset": panel.dataset, "kind": type(bug).__name__}


def bounds_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """How the bounds of two answers differ, in words; None: they are the same."""
    old, new = (_by_core(answer["receipt"]["bounds"]) for answer in (before, after))
    told = [
        f"{name} {old[core][name]} → {new[core][name]}"
        for core in new
        for name in ("rows_per_unit", "groups_per_unit")
        if core in old and old[core][name] != new[core][name]
    ]
    return ", ".join(dict.fromkeys(told)) or None


def _by_core(bounds: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"": bounds} if "rows_per_unit" in bounds else bounds


def _hashed(request: str) -> str:
    return hashlib.sha256(request.encode()).hexdigest()
