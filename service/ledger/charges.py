"""What was charged in a part of the journal: sums that no window lets start again."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from service.ledger.tables import entry


@dataclass(frozen=True, slots=True)
class Charges:
    """Costs of one dataset added up, order by order. Not capped where an order is closed: they are subtracted again."""

    orders: tuple[int, ...]
    delta: int

    def plus(self, other: "Charges") -> "Charges":
        orders = zip(self.orders, other.orders, strict=True)
        return Charges(tuple(mine + theirs for mine, theirs in orders), self.delta + other.delta)

    def less(self, other: "Charges") -> "Charges":
        orders = zip(self.orders, other.orders, strict=True)
        return Charges(tuple(max(0, mine - theirs) for mine, theirs in orders), max(0, self.delta - other.delta))

    def at_most(self, other: "Charges") -> "Charges":
        orders = zip(self.orders, other.orders, strict=True)
        return Charges(tuple(min(mine, theirs) for mine, theirs in orders), min(self.delta, other.delta))


def nothing_charged(orders: int) -> Charges:
    return Charges((0,) * orders, 0)


def charges_after(tx: sa.Connection, number: int) -> dict[str, Charges]:
    """By dataset, what entries after this one charged: queries, and what a restored ledger was taken to lack."""
    chosen = sa.select(entry.c.kind, entry.c.dataset, entry.c.body).order_by(entry.c.number)
    chosen = chosen.where(entry.c.number > number, entry.c.kind.in_(("reserve", "grant")))
    found: dict[str, Charges] = {}
    for kind, dataset, body in tx.execute(chosen, execution_options={"yield_per": 1000}):
        said = json.loads(body)
        charged = said if kind == "reserve" else said.get("missing")
        if charged is not None:
            more = _read(charged)
            found[dataset] = found[dataset].plus(more) if dataset in found else more
    return found


def _read(said: Mapping[str, Any]) -> Charges:
    return Charges(tuple(int(cost) for cost in said["orders"]), int(said["delta"]))
