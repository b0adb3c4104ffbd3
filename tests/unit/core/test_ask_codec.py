"""Questions as panels keep them: exact there and back, and what earlier versions stored is still read."""

import json
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.asks import ask_of
from service.api.json_body import read_exact
from service.api.requests import PanelWire, QuestionWire
from service.core.ask_codec import ask_from_json, ask_from_text, ask_to_json, request_to_text, written_from_text
from service.core.plan import Accuracy, Loss
from service.core.request import Ask, AskedBounds

# What version 0.1.0 stored for some panels (`request`), what it read from that (`ask`) and showed of it (`shown`).
EARLIER: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "fixtures" / "stored_panels.json").read_text())

texts = st.text(max_size=20)
numbers = st.fractions()
amounts = st.integers(0, 2**70)
ends = st.tuples(numbers, numbers)
losses = st.builds(
    Loss,
    kind=st.sampled_from(["epsilon", "rho", "share", "accuracy"]),
    amount=amounts,
    delta=amounts,
    accuracy=st.none() | st.builds(Accuracy, texts, numbers, numbers),
    weights=st.dictionaries(texts, numbers, max_size=3),
)
bounds = st.builds(
    AskedBounds,
    rows_per_unit=st.none() | amounts,
    groups_per_unit=st.none() | amounts,
    columns=st.dictionaries(texts, st.none() | ends, max_size=3),
    dated=st.dictionaries(texts, st.tuples(texts, texts), max_size=3),
    unit_sum=st.dictionaries(texts, st.none() | numbers, max_size=3),
    clip=st.sampled_from(["l1", "l2", None]),
    slots=st.sampled_from(["pairs", "rows", None]),
)
asks = st.builds(
    Ask,
    dataset=texts,
    sql=texts,
    loss=st.none() | losses,
    bounds=bounds,
    min_units=st.none() | amounts,
    dialect=texts,
    fresh=st.booleans(),
)


@given(asks)
def test_any_question_comes_back_as_it_was(ask: Ask) -> None:
    assert ask_from_json(json.loads(json.dumps(ask_to_json(ask)))) == ask
    assert ask_from_text(request_to_text(ask, {"dataset": ask.dataset, "sql": ask.sql})) == ask


def test_numbers_are_stored_exactly() -> None:
    ask = Ask("d", "s", Loss("accuracy", 2**64 + 1, 1, Accuracy("n", Fraction(1, 3), Fraction(19, 20))))
    stored = ask_to_json(ask)["loss"]
    assert (stored["amount"], stored["delta"], stored["accuracy"]) == (
        "18446744073709551617",
        "1",
        ["n", "1/3", "19/20"],
    )


def test_a_question_of_a_later_version_is_not_guessed_at() -> None:
    with pytest.raises(AssertionError, match="version 2"):
        ask_from_json({**ask_to_json(Ask("d", "s")), "version": 2})


def test_every_field_of_a_question_is_stored() -> None:
    assert {"version", *Ask.__dataclass_fields__} == set(ask_to_json(Ask("d", "s")))
    assert set(AskedBounds.__dataclass_fields__) == set(ask_to_json(Ask("d", "s"))["bounds"])
    assert set(Loss.__dataclass_fields__) == set(ask_to_json(Ask("d", "s", Loss("rho", 1)))["loss"])


@pytest.mark.parametrize("stored", EARLIER, ids=lambda stored: stored["body"][-40:])
def test_a_panel_stored_by_an_earlier_version_is_read_without_loss(stored: dict[str, Any]) -> None:
    assert json.loads(json.dumps(asdict(ask_from_text(stored["request"])), default=str)) == stored["ask"]
    assert written_from_text(stored["request"]) == stored["shown"]
    assert list(written_from_text(stored["request"])) == list(stored["shown"])


@pytest.mark.parametrize("stored", EARLIER, ids=lambda stored: stored["body"][-40:])
def test_the_same_panel_put_today_asks_the_same_and_is_shown_the_same(stored: dict[str, Any]) -> None:
    wanted = PanelWire.model_validate(read_exact(stored["body"].encode()))
    question = QuestionWire.model_validate(wanted.model_dump(include=set(QuestionWire.model_fields)))
    text = request_to_text(ask_of(question), question.model_dump(mode="json"))
    assert ask_from_text(text) == ask_from_text(stored["request"])
    assert json.dumps(written_from_text(text)) == json.dumps(stored["shown"])
