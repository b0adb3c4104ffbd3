"""The answer's body as docs/api.md shows it, from released values and ledger facts only."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from service import __version__
from service.core.amounts import CLOSED, Cost, show_atto, show_fraction, show_pico, weakness
from service.core.boundary import ReleasedTable
from service.core.plan import Output, Plan
from service.core.schema import SqlType, iso_of
from service.ledger.book import Balance, Quota
from service.ledger.history import PastCharge
from service.walk.answer_json import column_to_json, computed_to_json, ends_to_json, to_json
from service.walk.clipped import clipped
from service.walk.outer_sql import OuterResult
from service.walk.question import Question


@dataclass(frozen=True, slots=True)
class Facts:
    """What the body says beside the values."""

    query_id: str
    data_version: int
    ledger_entry: int | None
    replay_of: str | None
    balance: Balance
    receipt: Mapping[str, Any] | None = None  # of the query that paid, for a replay


def answer_body(
    question: Question, released: Sequence[ReleasedTable], result: OuterResult, facts: Facts
) -> dict[str, Any]:
    """Everything an analyst gets for one query."""
    outputs = question.query.outer.outputs
    notes = [*question.notes, *(note for table in released for note in table.notes)]
    return {
        "id": facts.query_id,
        "status": "answered",
        "dataset": question.query.dataset,
        "data_version": facts.data_version,
        "columns": [
            _column(output, type_name, released, question)
            for output, type_name in zip(outputs, result.types, strict=True)
        ],
        "rows": _by_rows([_values(output, result, at) for at, output in enumerate(outputs)], result.size),
        **_intervals(result),
        "cost": cost_shown(question, facts.replay_of),
        "remaining": remaining_shown(facts.balance),
        "notes": list(dict.fromkeys(notes)),
        "receipt": {
            **(facts.receipt or receipt(question)),
            "ledger_entry": facts.ledger_entry,
            "service_version": __version__,
        },
    }


def receipt(question: Question) -> dict[str, Any]:
    """What was done, without a value: also kept in the ledger's entry."""
    return {
        "plan_digest": digest_shown(question.query.cores),
        "mechanisms": list(question.priced.mechanisms),
        "bounds": bounds_shown(question.query.cores),
        "seconds": question.promise.seconds,
    }


def digest_shown(cores: Sequence[Plan]) -> str:
    """The digest of the only core, or of all of them."""
    if len(cores) == 1:
        return cores[0].digest
    return "sha256:" + hashlib.sha256("\n".join(plan.digest for plan in cores).encode()).hexdigest()


def bounds_shown(cores: Sequence[Plan]) -> dict[str, Any]:
    """The bounds of the only core, or of each under its name."""
    if len(cores) == 1:
        return _bounds(cores[0])
    return {f"core_{index}": _bounds(plan) for index, plan in enumerate(cores)}


def _bounds(plan: Plan) -> dict[str, Any]:
    bounds = plan.bounds
    shown: dict[str, Any] = {
        "rows_per_unit": bounds.rows_per_unit,
        "groups_per_unit": bounds.groups_per_unit,
        "clip": bounds.clip,
        "min_units": bounds.min_units,
        "columns": {
            measure.label: [_end(code * measure.step, measure.type) for code in (measure.low, measure.high)]
            for measure in plan.measures
            if measure.low != measure.high
        },
    }
    if bounds.unit_sum:
        shown["unit_sum"] = {name: None if cap is None else show_fraction(cap) for name, cap in bounds.unit_sum.items()}
    return shown


def _end(value: Fraction, kind: SqlType) -> str:
    return iso_of(value, kind) or show_fraction(value)


def cost_shown(question: Question, replay_of: str | None) -> dict[str, Any]:
    """What this answer cost: nothing, if it is a replay."""
    priced = question.priced
    if replay_of is not None:
        return {"epsilon": "0", "rho": None, "delta": "0", "share": "0", "replay_of": replay_of}
    pure = priced.law.pure
    return {
        "epsilon": show_pico(priced.cost.orders[-1]) if pure else None,
        "rho": None if pure else show_pico(paid_amount(question)),
        "delta": show_atto(priced.cost.delta),
        "share": show_pico(priced.share),
        "replay_of": None,
    }


def paid_amount(question: Question) -> int:
    """Pico of epsilon or rho that this answer costs; for a refined one the difference."""
    priced = question.priced
    if not question.base:
        return priced.amount
    order, spent = priced.terms.orders[0], priced.cost.orders[0]
    return -(-spent * order.denominator // order.numerator)


def line_amount(question: Question) -> tuple[str, int]:
    """The unit in which a panel's line pays for this question, and how much of it."""
    kind = question.loss.kind
    return (kind, paid_amount(question)) if kind in ("epsilon", "rho") else ("share", question.priced.share)


def remaining_shown(balance: Balance) -> dict[str, str]:
    """What is left of the grant, as epsilon at the dataset's delta: the most that any order has left."""
    return {
        "epsilon": show_pico(max(balance.left)),
        "delta": show_atto(max(0, balance.delta_limit - balance.delta_spent)),
    }


def remaining_after(balance: Balance, cost: Cost) -> dict[str, str]:
    left = max(0, *(room - spend for room, spend in zip(balance.left, cost.orders, strict=True)))
    return {
        "epsilon": show_pico(left),
        "delta": show_atto(max(0, balance.delta_limit - balance.delta_spent - cost.delta)),
    }


def similar_left(balance: Balance, cost: Cost) -> int:
    """How many queries of this cost still fit, one after the other."""
    by_orders = max(room // max(1, spend) for room, spend in zip(balance.left, cost.orders, strict=True))
    if cost.delta == 0:
        return by_orders
    return min(by_orders, max(0, balance.delta_limit - balance.delta_spent) // cost.delta)


def _column(output: Output, type_name: str, released: Sequence[ReleasedTable], question: Question) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": output.name, "type": type_name, "role": output.role}
    if output.role == "value":
        column = released[output.direct[0]].columns.get(output.direct[1]) if output.direct else None
        shown["noise_std"] = to_json(column.noise_std) if column else None
        shown["half_width_95"] = to_json(column.half_width) if column else None
        shown |= clipped(output, question.query, question.schema, released).fields()
    return shown


def _values(output: Output, result: OuterResult, at: int) -> list[Any]:
    """Released values have been rounded to their noise already; what is computed from them is so here."""
    interval = result.intervals[at]
    if output.direct is not None or output.role == "key" or interval is None:
        return column_to_json(result.cells[at])
    return computed_to_json(result.cells[at], *interval)


def _intervals(result: OuterResult) -> dict[str, Any]:
    """Both ends of every cell's interval, without digits that its width makes meaningless."""
    unknown = [None] * result.size
    sides = [(unknown, unknown) if ends is None else ends_to_json(*ends) for ends in result.intervals]
    return {
        "low_95": _by_rows([low for low, _ in sides], result.size),
        "high_95": _by_rows([high for _, high in sides], result.size),
    }


def _by_rows(columns: list[list[Any]], size: int) -> list[tuple[Any, ...]]:
    return list(zip(*columns, strict=True)) if columns else [()] * size


def budget_body(
    balance: Balance, quota: Quota, past: Sequence[PastCharge], *, paused: bool, detail: bool
) -> dict[str, Any]:
    """The dataset's budget and the caller's ration, as epsilon at the dataset's delta."""
    left = max(balance.left)
    body: dict[str, Any] = {
        "dataset": balance.dataset,
        "granted": {"epsilon": show_pico(balance.epsilon_granted), "delta": show_atto(balance.delta_granted)},
        "spent": {"epsilon": show_pico(balance.epsilon_granted - left), "delta": show_atto(balance.delta_spent)},
        "remaining": remaining_shown(balance),
        "ceiling": {
            "epsilon": show_pico(balance.terms.epsilon_ceiling),
            "delta": show_atto(balance.terms.delta_ceiling),
        },
        "weak": weakness(balance.terms.epsilon_ceiling, balance.terms.delta_ceiling),
        "quota": {
            "share": None if quota.limit is None else show_pico(quota.limit),
            "spent": show_pico(quota.spent),
            "remaining": None if quota.limit is None else show_pico(max(0, quota.limit - quota.spent)),
        },
        "window": None if balance.window is None else {"period": balance.window, "started": balance.window_started},
        "paused": paused,
        "like_your_last": similar_left(balance, past[0].cost) if past else None,
    }
    if detail:
        orders = [*(str(float(order)) for order in balance.terms.orders), "infinity"]
        body["orders"] = [
            {"order": order, "spent": None if spent >= CLOSED else show_pico(spent), "limit": show_pico(limit)}
            for order, spent, limit in zip(orders, balance.spent, balance.limits, strict=True)
        ]
    return body
