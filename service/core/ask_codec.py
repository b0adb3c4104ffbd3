"""A question as text and back, exactly: what panels keep of the query that they ask again and again.

Amounts are decimal strings of integers and numbers are fractions, so that nothing is rounded on the way. Beside the
question stands how its author wrote it (0.10 stays 0.10), for showing it again; nothing else reads that. Panels of
before version 1 of this form hold the body of an HTTP request instead. That form is frozen: it is read here and no
longer written, so the API's own models may change without a stored panel changing its meaning.
"""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from service.core.amounts import parse_delta, parse_epsilon, parse_share
from service.core.plan import Accuracy, Loss
from service.core.request import OWN_DIALECT, Ask, AskedBounds

VERSION = 1
ISO_DATE = re.compile(r"\d{4}-\d", re.ASCII)


def request_to_text(ask: Ask, body: Mapping[str, Any]) -> str:
    """The question, and the request's body (as JSON has it) from which it was read."""
    written = as_written(body)
    del written["sql"]  # the question has it, letter for letter
    return json.dumps({"ask": ask_to_json(ask), "written": written}, ensure_ascii=False, separators=(",", ":"))


def ask_from_text(text: str) -> Ask:
    """The question, from either form."""
    stored = json.loads(text)
    return ask_from_json(stored["ask"]) if "ask" in stored else _ask_from_body(stored)


def written_from_text(text: str) -> dict[str, Any]:
    """How its author wrote it: the SQL and whatever was given beside it."""
    stored = json.loads(text)
    return {"sql": stored["ask"]["sql"], **stored["written"]} if "ask" in stored else as_written(stored)


def as_written(body: Mapping[str, Any]) -> dict[str, Any]:
    """A request's body without its dataset and without what was left to defaults."""
    given = _without_silence(body)
    del given["dataset"]
    if given.get("dialect") == OWN_DIALECT:
        del given["dialect"]
    if "bounds" in given:
        given["bounds"] = _without_silence(given["bounds"])
    return given


def _without_silence(body: Mapping[str, Any]) -> dict[str, Any]:
    """What a request leaves out is null, false or empty in its body."""
    return {name: value for name, value in body.items() if value is not None and value is not False and value != {}}


# --- Version 1 -------------------------------------------------------------------------------------


def ask_to_json(ask: Ask) -> dict[str, Any]:
    return {
        "version": VERSION,
        "dataset": ask.dataset,
        "sql": ask.sql,
        "loss": None if ask.loss is None else _loss_to_json(ask.loss),
        "bounds": _bounds_to_json(ask.bounds),
        "min_units": ask.min_units,
        "dialect": ask.dialect,
        "fresh": ask.fresh,
    }


def ask_from_json(stored: Mapping[str, Any]) -> Ask:
    assert stored["version"] == VERSION, f"a question of version {stored['version']}, which is not known here"
    return Ask(
        dataset=stored["dataset"],
        sql=stored["sql"],
        loss=None if stored["loss"] is None else _loss_from_json(stored["loss"]),
        bounds=_bounds_from_json(stored["bounds"]),
        min_units=stored["min_units"],
        dialect=stored["dialect"],
        fresh=stored["fresh"],
    )


def _loss_to_json(loss: Loss) -> dict[str, Any]:
    wanted = loss.accuracy
    return {
        "kind": loss.kind,
        "amount": str(loss.amount),
        "delta": str(loss.delta),
        "accuracy": None if wanted is None else [wanted.output, str(wanted.half_width), str(wanted.confidence)],
        "weights": {name: str(weight) for name, weight in loss.weights.items()},
    }


def _loss_from_json(stored: Mapping[str, Any]) -> Loss:
    accuracy = None
    if stored["accuracy"] is not None:
        output, half_width, confidence = stored["accuracy"]
        accuracy = Accuracy(output, Fraction(half_width), Fraction(confidence))
    weights = {name: Fraction(weight) for name, weight in stored["weights"].items()}
    return Loss(stored["kind"], int(stored["amount"]), int(stored["delta"]), accuracy, weights)


def _bounds_to_json(bounds: AskedBounds) -> dict[str, Any]:
    return {
        "rows_per_unit": bounds.rows_per_unit,
        "groups_per_unit": bounds.groups_per_unit,
        "columns": {
            name: None if ends is None else [str(ends[0]), str(ends[1])] for name, ends in bounds.columns.items()
        },
        "dated": {name: list(ends) for name, ends in bounds.dated.items()},
        "unit_sum": {name: None if cap is None else str(cap) for name, cap in bounds.unit_sum.items()},
        "clip": bounds.clip,
        "slots": bounds.slots,
    }


def _bounds_from_json(stored: Mapping[str, Any]) -> AskedBounds:
    return AskedBounds(
        rows_per_unit=stored["rows_per_unit"],
        groups_per_unit=stored["groups_per_unit"],
        columns={
            name: None if ends is None else (Fraction(ends[0]), Fraction(ends[1]))
            for name, ends in stored["columns"].items()
        },
        dated={name: (first, last) for name, (first, last) in stored["dated"].items()},
        unit_sum={name: None if cap is None else Fraction(cap) for name, cap in stored["unit_sum"].items()},
        clip=stored["clip"],
        slots=stored["slots"],
    )


# --- The body of a request, as panels kept it before ------------------------------------------------


def _ask_from_body(body: Mapping[str, Any]) -> Ask:
    """Numbers are decimal strings here. It was accepted when it was stored, so nothing is checked again."""
    return Ask(
        dataset=body["dataset"],
        sql=body["sql"],
        loss=_loss_from_body(body),
        bounds=_bounds_from_body(body.get("bounds") or {}),
        min_units=body.get("min_units"),
        dialect=body.get("dialect", OWN_DIALECT),
        fresh=body.get("fresh", False),
    )


def _loss_from_body(body: Mapping[str, Any]) -> Loss | None:
    delta = 0 if body.get("delta") is None else parse_delta(body["delta"])
    weights = {name: _number(weight) for name, weight in (body.get("weights") or {}).items()}
    if body.get("epsilon") is not None:
        return Loss("epsilon", parse_epsilon(body["epsilon"]), delta, None, weights)
    if body.get("rho") is not None:
        return Loss("rho", parse_epsilon(body["rho"]), delta, None, weights)
    if body.get("share") is not None:
        return Loss("share", parse_share(body["share"]), delta, None, weights)
    wanted = body.get("accuracy")
    if wanted is not None:
        confidence = _number(wanted.get("confidence", "0.95"))
        return Loss(
            "accuracy", 0, delta, Accuracy(wanted["output"], _number(wanted["half_width"]), confidence), weights
        )
    return Loss("epsilon", 0, delta, None, weights) if delta or weights else None


def _bounds_from_body(body: Mapping[str, Any]) -> AskedBounds:
    columns: dict[str, tuple[Fraction, Fraction] | None] = {}
    dated: dict[str, tuple[str, str]] = {}
    for name, ends in body.get("columns", {}).items():
        if ends is not None and any(ISO_DATE.match(end) for end in ends):
            dated[name] = (ends[0], ends[1])
        else:
            columns[name] = None if ends is None else (_number(ends[0]), _number(ends[1]))
    caps = body.get("unit_sum", {}).items()
    return AskedBounds(
        rows_per_unit=body.get("rows_per_unit"),
        groups_per_unit=body.get("groups_per_unit"),
        columns=columns,
        dated=dated,
        unit_sum={name: None if cap is None else _number(cap) for name, cap in caps},
        clip=body.get("clip"),
        slots=body.get("slots"),
    )


def _number(text: str) -> Fraction:
    return Fraction(Decimal(text))
