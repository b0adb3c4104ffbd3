"""What routes may use, handed over by the composition root. Routes construct nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from service.admin import Administration
from service.api.middleware.limits import Limiter
from service.api.middleware.metrics import Metrics
from service.catalog.keys import Keys
from service.catalog.store import Catalog
from service.core.request import Ask, Principal
from service.released.panels import Panels
from service.released.store import Answers
from service.walk.history import HistoryPart
from service.walk.panel_refresh import Refresher
from service.walk.submission import Submitted


class Answering(Protocol):
    """The walk of one query, as routes see it."""

    def submit(
        self, ask: Ask, principal: Principal, idempotency_key: str | None, request_hash: str, wait_s: float
    ) -> Submitted: ...

    def estimate(self, ask: Ask, principal: Principal) -> dict[str, Any]: ...

    def estimate_all(self, asks: Sequence[Ask], principal: Principal) -> dict[str, Any]: ...

    def line_cost(self, ask: Ask, principal: Principal) -> tuple[str, int]: ...

    def find(self, query_id: str, principal: Principal) -> Submitted: ...

    def cancel(self, query_id: str, principal: Principal) -> Submitted: ...

    def budget(self, dataset: str, principal: Principal, detail: bool) -> dict[str, Any]: ...

    def history(self, principal: Principal, wanted: HistoryPart) -> list[dict[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class RouteTools:
    """Everything that routes work with, one field each."""

    answerer: Answering
    answers: Answers
    panels: Panels
    refresher: Refresher
    catalog: Catalog
    keys: Keys
    administration: Administration
    limiter: Limiter
    metrics: Metrics | None  # None: switched off
    ready: Callable[[], list[str]]  # what is not ready, in words; empty when all is
