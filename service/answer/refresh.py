"""Panels refreshed in their time: one charge per refresh, from the panel's own line, in its owner's name.

Several service processes may run this loop over one store: a panel's turn is taken by a conditional
update, so one of them refreshes it. Missed periods are not made up. A refresh on an unchanged data
version finds the stored release and costs nothing.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from service.answer.answerer import Answerer
from service.answers.panels import Panel, Panels, now_text
from service.answers.publish import Publisher
from service.core.errors import NotFound, ServiceError
from service.core.request import Ask, Principal

log = logging.getLogger("halftone.panels")

TICK_S = 1.0


class Owners(Protocol):
    """Who owns a panel now: the key may have been revoked since."""

    def principal(self, prefix: str) -> Principal | None: ...


@dataclass(frozen=True, slots=True)
class Refreshing:
    """What a refresh needs. `ask_of` reads the stored request as the API reads a query's body."""

    answerer: Answerer
    panels: Panels
    owners: Owners
    ask_of: Callable[[str], Ask]
    publisher: Publisher | None
    patience_s: float


class Refresher:
    """A thread that looks for panels whose time has come."""

    def __init__(self, using: Refreshing) -> None:
        self._using = using
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="panels", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def refresh(self, name: str) -> Panel:
        """Refresh one panel now, whatever its period."""
        panel = self._using.panels.get(name)
        if panel is None:
            raise NotFound("there is no such panel", {"panel": name})
        self._refresh(panel, now_text())
        refreshed = self._using.panels.get(name)
        assert refreshed is not None
        return refreshed

    def _loop(self) -> None:
        while not self._stop.wait(TICK_S):
            try:
                self.tick()
            except Exception as bug:
                log.error("panels could not be looked through", extra={"cause": type(bug).__name__})

    def tick(self) -> None:
        """Every panel that is due, one after the other."""
        now = now_text()
        for panel in self._using.panels.due(now):
            if self._stop.is_set():
                return
            if self._using.panels.take_turn(panel, now):
                self._refresh(panel, now)

    def _refresh(self, panel: Panel, now: str) -> None:
        """Pay from the line, ask, point the panel to the answer; on refusal the last good answer stays."""
        using = self._using
        owner = using.owners.principal(panel.owner)
        if owner is None:
            using.panels.stale(panel.name, "the key that owns this panel is no longer valid")
            return
        paid = 0
        try:
            ask = using.ask_of(panel.request)
            cost = using.answerer.line_cost(ask, owner)
            if cost > 0 and not using.panels.pay(panel.name, cost):
                using.panels.stale(panel.name, "the panel's budget line does not cover another refresh")
                return
            paid = cost
            done = using.answerer.submit(ask, owner, f"panel {panel.name} {now}", panel.request, using.patience_s)
        except ServiceError as error:
            if paid and not error.budget_spent:
                using.panels.pay(panel.name, -paid)
            using.panels.stale(panel.name, f"{error.title}: {error.detail}")
            return
        if done.body is None:
            using.panels.stale(panel.name, "the refresh is still running")
            return
        using.panels.refreshed(panel.name, query_id=done.query_id, cost_pico=paid, now=now)
        if using.publisher is not None:
            self._publish(panel.name, done.body, now)

    def _publish(self, name: str, body: bytes, now: str) -> None:
        assert self._using.publisher is not None
        try:
            self._using.publisher.publish(name, body, now)
        except Exception as bug:
            log.error("a panel could not be published", extra={"panel": name, "cause": type(bug).__name__})
