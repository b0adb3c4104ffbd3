"""What a query would cost: the price that a query would be charged, and nothing of the data."""

from typing import Any

from service.answer.body import bounds_shown, cost_shown, digest_shown, remaining_after, remaining_shown, similar_left
from service.answer.question import Question
from service.answer.shape import to_json
from service.core.plan import Output
from service.ledger.book import Balance


def estimate_body(question: Question, balance: Balance, replay_of: str | None) -> dict[str, Any]:
    """Cost, mechanisms, widths per output, bounds, and what would be left."""
    priced = question.priced
    return {
        "dataset": question.query.dataset,
        "cost": cost_shown(question, replay_of),
        "mechanisms": list(priced.mechanisms),
        "columns": [_column(question, output) for output in question.query.outer.outputs],
        "bounds": bounds_shown(question.query.cores),
        "plan_digest": digest_shown(question.query.cores),
        "replay_of": replay_of,
        "remaining": remaining_shown(balance),
        "remaining_after": remaining_shown(balance) if replay_of else remaining_after(balance, priced.cost),
        "similar_queries_left": similar_left(balance, priced.cost),
        "notes": list(dict.fromkeys(question.notes)),
    }


def _column(question: Question, output: Output) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": output.name, "role": output.role}
    if output.role == "value":
        prediction = None
        if output.direct is not None:
            prediction = question.priced.plans[output.direct[0]].predictions.get(output.direct[1])
        shown["noise_std"] = to_json(prediction.noise_std) if prediction else None
        shown["half_width_95"] = to_json(prediction.half_width_95) if prediction else None
    return shown
