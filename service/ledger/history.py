"""An analyst's own charges. Times of reserving only: times of settling would tell how long a query
ran, which the time ladder hides."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from service.core.amounts import Cost
from service.ledger.tables import entry

CHARGES_PER_PAGE = 100


@dataclass(frozen=True, slots=True)
class PastCharge:
    """One charge as its analyst may see it."""

    at: str
    dataset: str
    query_id: str
    cost: Cost
    share: int


def past_charges(tx: sa.Connection, principal: str, *, dataset: str | None) -> list[PastCharge]:
    """Newest first, the last CHARGES_PER_PAGE of them."""
    chosen = sa.select(entry).where(entry.c.who == principal, entry.c.kind == "reserve")
    if dataset is not None:
        chosen = chosen.where(entry.c.dataset == dataset)
    return [_past(row) for row in tx.execute(chosen.order_by(entry.c.number.desc()).limit(CHARGES_PER_PAGE))]


def shares(tx: sa.Connection, principal: str, query_ids: Sequence[str]) -> dict[str, int]:
    """What each of these queries of a principal took of its dataset's budget, in pico."""
    own = (entry.c.who == principal) & (entry.c.kind == "reserve") & entry.c.query_id.in_(query_ids)
    rows = tx.execute(sa.select(entry.c.query_id, entry.c.body).where(own))
    return {str(row.query_id): int(json.loads(row.body)["share"]) for row in rows}


def _past(row: Any) -> PastCharge:
    body = json.loads(row.body)
    cost = Cost(tuple(int(amount) for amount in body["orders"]), int(body["delta"]))
    return PastCharge(row.at, row.dataset, row.query_id, cost, int(body["share"]))
