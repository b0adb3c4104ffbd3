"""From a request's body to the question that it asks: exact amounts, with a refusal for what is no amount."""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, cast

from service.api.requests import AccuracyWire, BoundsWire, EstimateListWire, QuestionWire
from service.core.amounts import parse_delta, parse_epsilon, parse_share
from service.core.errors import LossOutOfRange, placed
from service.core.plan import Accuracy, Loss
from service.core.request import Ask, AskedBounds


def loss_of(wire: QuestionWire) -> Loss | None:
    """What is offered; None, or an epsilon of 0 beside a delta or weights, takes the dataset's default."""
    amounts = {"epsilon": wire.epsilon, "rho": wire.rho, "share": wire.share, "accuracy": wire.accuracy}
    given = [name for name, value in amounts.items() if value is not None]
    if len(given) > 1:
        raise LossOutOfRange(
            f"{' and '.join(given)} can not be combined", {"remedy": "give one of epsilon, rho, accuracy and share"}
        )
    delta = 0 if wire.delta is None else parse_delta(wire.delta)
    weights = _weights(wire.weights or {})
    if not given:
        return Loss("epsilon", 0, delta, None, weights) if delta or weights else None
    if wire.accuracy is not None:
        return Loss("accuracy", 0, delta, _accuracy(wire.accuracy), weights)
    kind = cast(Literal["epsilon", "rho", "share"], given[0])
    amount = parse_share(amounts[kind]) if kind == "share" else parse_epsilon(amounts[kind], kind)
    return Loss(kind, amount, delta, None, weights)


def _accuracy(wire: AccuracyWire) -> Accuracy:
    if wire.half_width <= 0:
        raise LossOutOfRange("accuracy.half_width must be above zero", {"field": "accuracy.half_width"})
    if not Decimal("0.5") <= wire.confidence <= Decimal("0.999999"):
        raise LossOutOfRange("accuracy.confidence must be between 0.5 and 0.999999", {"field": "accuracy.confidence"})
    return Accuracy(wire.output, Fraction(wire.half_width), Fraction(wire.confidence))


def _weights(given: Mapping[str, Decimal]) -> dict[str, Fraction]:
    for name, weight in given.items():
        if weight <= 0 or weight > 1_000_000:
            raise LossOutOfRange("a weight must be above 0 and at most 1000000", {"field": f"weights.{name[:64]}"})
    return {name: Fraction(weight) for name, weight in given.items()}


def ask_of(wire: QuestionWire) -> Ask:
    """The request with exact amounts; names are resolved later, against the catalog."""
    bounds = wire.bounds or BoundsWire()
    return Ask(
        dataset=wire.dataset,
        sql=wire.sql,
        loss=loss_of(wire),
        bounds=AskedBounds(
            rows_per_unit=bounds.rows_per_unit,
            groups_per_unit=bounds.groups_per_unit,
            **_columns(bounds),
            unit_sum={name: None if cap is None else Fraction(cap) for name, cap in bounds.unit_sum.items()},
            clip=bounds.clip,
            slots=bounds.slots,
        ),
        min_units=wire.min_units,
        dialect=wire.dialect,
        fresh=wire.fresh,
    )


def _columns(bounds: BoundsWire) -> dict[str, Any]:
    """Ends that are numbers, and ends that are dates: which number a date is, the column's type says."""
    columns: dict[str, tuple[Fraction, Fraction] | None] = {}
    dated: dict[str, tuple[str, str]] = {}
    for name, pair in bounds.columns.items():
        if pair is None or not any(isinstance(end, str) for end in pair):
            columns[name] = None if pair is None else (Fraction(pair[0]), Fraction(pair[1]))
        else:
            dated[name] = (str(pair[0]), str(pair[1]))
    return {"columns": columns, "dated": dated}


def fitted(wire: EstimateListWire) -> list[Ask]:
    """The questions of a list; with `fit`, that epsilon is divided over them, rounded down to the grid: in
    proportion to the epsilons that they give themselves, or equally."""
    asks = []
    for at, question in enumerate(wire.queries):
        with placed(f"body.queries.{at}"):
            asks.append(ask_of(question))
    if wire.fit is None:
        return asks
    total = parse_epsilon(wire.fit.epsilon, "fit.epsilon")
    own = [ask.loss.amount if ask.loss is not None and ask.loss.kind == "epsilon" else 0 for ask in asks]
    parts = own if all(own) else [1] * len(asks)
    amounts = [total * part // sum(parts) for part in parts]
    if not all(amounts):
        raise LossOutOfRange("fit.epsilon is too little for so many queries", {"field": "fit.epsilon"})
    return [replace(ask, loss=_refitted(ask.loss, amount)) for ask, amount in zip(asks, amounts, strict=True)]


def _refitted(loss: Loss | None, amount: int) -> Loss:
    return Loss("epsilon", amount) if loss is None else Loss("epsilon", amount, loss.delta, None, loss.weights)
