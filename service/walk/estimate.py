"""What a query would cost: the price that a query would be charged, and nothing of the data."""

from collections.abc import Mapping, Sequence
from typing import Any

from service.core.amounts import Cost, show_atto, show_fraction, show_pico
from service.core.plan import Output
from service.ledger.book import Balance
from service.privacy.pricing.price import cheapest, laws
from service.privacy.pricing.priced import PricedPlan, PricedQuery
from service.walk.answer_body import (
    bounds_shown,
    cost_shown,
    digest_shown,
    remaining_after,
    remaining_shown,
    similar_left,
)
from service.walk.answer_json import to_json
from service.walk.clipped import clipped
from service.walk.question import Question


def estimate_body(question: Question, balance: Balance, replay_of: str | None) -> dict[str, Any]:
    """Cost, mechanisms, widths per output, bounds, and what would be left."""
    priced = question.priced
    fits = replay_of is not None or fits_in(balance, priced.cost)
    return {
        "dataset": question.query.dataset,
        "cost": cost_shown(question, replay_of),
        "would_need": would_need(question),
        "fits": fits,
        "seconds": 0.0 if replay_of is not None else question.promise.seconds,
        "mechanisms": list(priced.mechanisms),
        "columns": [_column(question, output) for output in question.query.outer.outputs],
        "groups": [_groups(plan) for plan in priced.plans],
        "bounds": bounds_shown(question.query.cores),
        "defaults_applied": defaults_applied(question),
        "plan_digest": digest_shown(question.query.cores),
        "replay_of": replay_of,
        "remaining": remaining_shown(balance),
        "remaining_after": remaining_shown(balance) if replay_of else remaining_after(balance, priced.cost),
        "similar_queries_left": similar_left(balance, priced.cost),
        "notes": list(dict.fromkeys(question.notes)),
    }


def would_need(question: Question) -> dict[str, str] | None:
    """For a wanted accuracy: the epsilon that reaches it with Laplace noise, and the rho with Gaussian noise."""
    if question.loss.kind != "accuracy":
        return None
    query, terms = question.query, question.priced.terms
    return {law.paid_in: show_pico(cheapest(query, law, question.loss, terms)) for law in laws(query, terms)}


def _groups(priced: PricedPlan) -> dict[str, Any]:
    """Declared groups are all shown; others from about `people` on, which is what selection's threshold means."""
    stage = priced.keys_stage
    if stage is None:
        return {"declared": True, "threshold": None}
    rule = stage[1]
    threshold = {
        "people": round(rule.people_needed, 1),
        "min_units": rule.min_units,
        "groups_per_unit": rule.groups_per_unit,
        "delta": show_fraction(priced.delta, smallest_plain=-3),
    }
    return {"declared": False, "threshold": threshold}


def defaults_applied(question: Question) -> dict[str, Any]:
    """What the request left to the dataset's defaults, with the values that were taken."""
    ask, loss, used = question.ask, question.loss, question.query.cores[0].bounds
    applied: dict[str, Any] = {}
    if ask.loss is None or (ask.loss.kind, ask.loss.amount) == ("epsilon", 0):
        applied["epsilon"] = show_pico(loss.amount)
    if loss.delta and (ask.loss is None or ask.loss.delta == 0):
        applied["delta"] = show_atto(loss.delta)
    for name in ("rows_per_unit", "groups_per_unit"):
        if getattr(ask.bounds, name) is None:
            applied[name] = getattr(used, name)
    if ask.min_units is None:
        applied["min_units"] = used.min_units
    if said := _bounds_from(question, applied):
        applied["bounds_from"] = said
    return applied


def _bounds_from(question: Question, applied: Mapping[str, Any]) -> str:
    """Where bounds come from that the request left out, in words; nothing where it gave both."""
    declared, chosen = question.schema.defaults, question.chosen[0] if question.chosen else None
    said = []
    for name in ("rows_per_unit", "groups_per_unit"):
        if name not in applied:
            continue
        if getattr(declared, name) is not None:
            said.append(f"{name}: declared for the dataset")
        elif chosen is None or chosen.bounds is None:
            said.append(f"{name}: fixed, because no profile says what fits, or no more defaults can be stored")
        else:
            since = ", as first used" if chosen.kept else ""
            said.append(f"{name}: fitted to the profile ({', '.join(chosen.bounds.profiles)}{since})")
    return "; ".join(said)


def batch_body(
    questions: Sequence[Question], estimates: list[dict[str, Any]], balances: Mapping[str, Balance]
) -> dict[str, Any]:
    """Estimates of several questions, and per dataset what they cost together if asked one after the other.

    A question that occurs twice is counted once: its second answer is a replay.
    """
    totals = []
    for dataset, balance in balances.items():
        costs: dict[object, PricedQuery] = {}
        for question, estimate in zip(questions, estimates, strict=True):
            if question.query.dataset == dataset and estimate["replay_of"] is None:
                name = (estimate["plan_digest"], repr(estimate["bounds"]), repr(question.loss))
                costs[name if not question.ask.fresh else len(costs)] = question.priced
        totals.append(_total(dataset, balance, list(costs.values())))
    return {"queries": estimates, "totals": totals}


def _total(dataset: str, balance: Balance, priced: list[PricedQuery]) -> dict[str, Any]:
    cost = Cost((0,) * len(balance.limits))
    for one in priced:
        cost += one.cost
    pure = all(one.law.pure for one in priced)
    return {
        "dataset": dataset,
        "epsilon": show_pico(cost.orders[-1]) if pure else None,
        "delta": show_atto(cost.delta),
        "share": show_pico(sum(one.share for one in priced)),
        "fits": fits_in(balance, cost),
        "remaining_after": remaining_after(balance, cost),
    }


def fits_in(balance: Balance, cost: Cost) -> bool:
    """Would the ledger take this charge now? (Quotas and pauses aside.)"""
    room = any(spend <= left for spend, left in zip(cost.orders, _rooms(balance), strict=True))
    return room and cost.delta <= balance.delta_limit - balance.delta_spent


def _rooms(balance: Balance) -> list[int]:
    return [limit - spent for limit, spent in zip(balance.limits, balance.spent, strict=True)]


def _column(question: Question, output: Output) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": output.name, "role": output.role}
    if output.role == "value":
        prediction = None
        if output.direct is not None:
            prediction = question.priced.plans[output.direct[0]].predictions.get(output.direct[1])
        shown["noise_std"] = to_json(prediction.noise_std) if prediction else None
        shown["half_width_95"] = to_json(prediction.half_width_95) if prediction else None
        shown |= clipped(output, question.query, question.schema).fields()
    return shown
