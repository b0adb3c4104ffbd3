"""An analyst's own questions: what was asked, what became of it, and what it took of the budget.

Times are those of asking. A query's end is known to nobody before its rung, and its state here is the one that
GET /v1/queries/{id} shows.
"""

from dataclasses import dataclass
from typing import Any

from service.core.amounts import show_pico
from service.ledger.book import Ledger
from service.ledger.history import PastCharge
from service.released.store import Answers, ListedAnswer


@dataclass(frozen=True, slots=True)
class HistoryPart:
    """Which part of a history: all of it, newest first, unless it says otherwise."""

    dataset: str | None = None
    text: str | None = None
    limit: int = 100
    before: str | None = None  # the id of a listed query: those that came before it


def history_lines(answers: Answers, ledger: Ledger, principal: str, wanted: HistoryPart) -> list[dict[str, Any]]:
    """Stored answers, and on the newest page also charges without one: running, or left by a process that died."""
    asked = answers.history(
        principal, dataset=wanted.dataset, text=wanted.text, limit=wanted.limit, before=wanted.before
    )
    shares = ledger.shares(principal, [each.query_id for each in asked if each.replay_of is None])
    lines = [_answered(each, shares.get(each.query_id, 0)) for each in asked]
    if wanted.text is None and wanted.before is None:
        charges = ledger.history(principal, dataset=wanted.dataset)
        stored = answers.stored([charge.query_id for charge in charges])
        lines += [_unanswered(charge, ledger) for charge in charges if charge.query_id not in stored]
        lines.sort(key=lambda line: (line["asked_at"], line["id"]), reverse=True)
    return lines[: wanted.limit]


def _answered(asked: ListedAnswer, share: int) -> dict[str, Any]:
    return {
        "id": asked.query_id,
        "dataset": asked.dataset,
        "sql": asked.sql,
        "asked_at": asked.asked_at,
        "status": asked.status,
        "share": show_pico(share),
        "replay_of": asked.replay_of,
    }


def _unanswered(charge: PastCharge, ledger: Ledger) -> dict[str, Any]:
    """The text went with the process; the charge stayed."""
    found = ledger.find(charge.query_id)
    assert found is not None, "a charge has a hold"
    return {
        "id": charge.query_id,
        "dataset": charge.dataset,
        "sql": None,
        "asked_at": charge.at.replace("Z", "+00:00"),
        "status": "running" if found[1].state == "held" else found[1].state,
        "share": show_pico(charge.share),
        "replay_of": None,
    }
