"""Digits of other scripts are not digits, wherever a number is read: two texts that look alike must not differ."""

import sys
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from sqlglot import exp

from service.api.formats import agreed_media_type
from service.api.requests import AccuracyWire, GrantWire, QueryWire, QuestionWire, QuotaWire
from service.catalog.check_columns import bound_value
from service.catalog.declare import ColumnDeclaration
from service.catalog.declared_budget import zero_or_delta
from service.cli.terminal import whole_number
from service.core.amounts import parse_delta, parse_epsilon, parse_share
from service.core.errors import ServiceError
from service.core.schema import DATE, DOUBLE, TIMESTAMP
from service.released.panels import parse_period
from service.settings import Settings
from service.sql.expr.literals import interval, parse_date
from service.sql.read.select import position
from service.sql.read.written_numbers import written_number

FOREIGN = [
    chr(code)
    for code in range(128, sys.maxunicode + 1)
    if unicodedata.digit(chr(code), None) is not None or unicodedata.category(chr(code)) in ("Nd", "No", "Nl")
]

ACCURACY = {"output": "n", "half_width": "5"}
QUESTION = {"dataset": "shop", "sql": "SELECT COUNT(*) FROM orders", "epsilon": "1"}


def literal(text: str) -> exp.Literal:
    return exp.Literal(this=text, is_string=False)


def asked(**changed: Any) -> Any:
    return QuestionWire.model_validate(QUESTION | changed)


WIDTH = {"output": "n", "half_width": "5"}

# What reads a number, and a number that it reads.
READERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "epsilon": (parse_epsilon, "0.5"),
    "delta": (parse_delta, "1e-6"),
    "share": (parse_share, "0.25"),
    "a delta that may be zero": (zero_or_delta, "0"),
    "confidence": (lambda text: AccuracyWire.model_validate(ACCURACY | {"confidence": text}), "0.9"),
    "wait": (lambda text: QueryWire.model_validate(QUESTION | {"wait": text}), "7"),
    "a bound of a question": (lambda text: asked(bounds={"columns": {"a.b": [text, "900"]}}), "12"),
    "a dated bound of a question": (
        lambda text: asked(bounds={"columns": {"a.b": [text, "2030-01-01"]}}), "2020-01-02"
    ),
    "a declared bound": (lambda text: _declared(text, DOUBLE), "12.5"),
    "a declared day": (lambda text: _declared(text, DATE), "2020-01-02"),
    "a declared moment": (lambda text: _declared(text, TIMESTAMP), "2020-01-02T03:04:05"),
    "a number in SQL": (lambda text: written_number(literal(text)), "120"),
    "a double in SQL": (lambda text: written_number(literal(text)), "1e3"),
    "a position in SQL": (lambda text: position(literal(text), 9, "ORDER BY"), "3"),
    "a day in SQL": (lambda text: parse_date(text, literal("0")), "2020-01-02"),
    "an interval in SQL": (
        lambda text: interval(exp.Interval(this=exp.Literal.string(text), unit=exp.Var(this="DAY"))), "30"
    ),
    "a period": (parse_period, "PT15M"),
    "a number of the command line": (whole_number, "50"),
    "a port": (lambda text: Settings(port=text), "8000"),  # type: ignore[arg-type]
    "a memory": (lambda text: Settings(engine_memory=text), "512MB"),
}  # fmt: skip


def _declared(text: str, kind: Any) -> Any:
    column = ColumnDeclaration.model_validate({"bounds": [text, text]})
    assert column.bounds is not None
    return bound_value(column.bounds[0], kind, "a.b")


@pytest.mark.parametrize("what", READERS)
def test_plain_digits_are_read(what: str) -> None:
    read, written = READERS[what]
    assert read(written) is not None


@pytest.mark.parametrize("what", READERS)
@given(data=st.data())
def test_a_digit_of_another_script_is_refused(what: str, data: st.DataObject) -> None:
    read, written = READERS[what]
    at = data.draw(st.sampled_from([i for i, sign in enumerate(written) if sign.isdigit()]))
    value = int(written[at])
    same = [sign for sign in FOREIGN if unicodedata.digit(sign, None) == value]
    other = written[:at] + data.draw(st.sampled_from(same) | st.sampled_from(FOREIGN)) + written[at + 1 :]
    with pytest.raises((ServiceError, ValidationError, ValueError)):
        read(other)


@pytest.mark.parametrize("wire", [GrantWire, QuotaWire])
def test_amounts_stay_text_until_they_are_read_exactly(wire: Any) -> None:
    """So that the ledger's own reader refuses them, and no other."""
    field = "epsilon" if wire is GrantWire else "share"
    kept = wire.model_validate({field: "٠.٥", "reason": "r"})
    with pytest.raises(ServiceError):
        parse_epsilon(getattr(kept, field))


def test_a_quality_in_an_accept_header_is_written_plainly() -> None:
    assert agreed_media_type(None, "text/csv;q=٠.٩, application/json;q=0.1") == "application/json"
