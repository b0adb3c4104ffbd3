"""The attacks that once read named people's exact values from the clock and from failures, each with its old self.

All ask about one person of whom everything is private, at next to no epsilon. What made them work was work that one
person's presence decides: public rows multiplied for every row of theirs.
"""

import time
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from service.app import Books, Walk
from service.core.errors import AnswerFailed, QuestionTooLarge
from service.core.plan import Loss
from service.core.request import Ask, AskedBounds, Principal
from service.engine.base import WorstCase
from service.walk import Answerer
from service.walk.promised_time import PromisedTime
from tests.fixtures.neighbours import SIDES, Made, Neighbours, neighbours
from tests.fixtures.slots import means_of

PERSON, PEOPLE, DAYS = 6284, 400, 4_000
FANNED = f"FROM people CROSS JOIN cal a CROSS JOIN cal b WHERE person = {PERSON} AND salary > 65535"
CROSSED = f"SELECT COUNT(*) AS n {FANNED}"
DISTINCT = f"SELECT COUNT(DISTINCT a.label || b.label || CAST(salary AS VARCHAR)) AS n {FANNED}"
MANY = AskedBounds(groups_per_unit=1_000)  # so many values of one person count that all have to be told apart
ANALYST = Principal("analyst001", "an analyst", "analyst", frozenset(SIDES))


def salaries(rich: bool) -> Made:
    """One row a person; the one that is asked about earns more than 65,535, or is not there."""
    ids = [*range(1, PEOPLE), *([PERSON] if rich else [])]
    people = pa.table({"person": ids, "salary": [90_000 if n == PERSON else 1_000 + n for n in ids]})
    cal = pa.table({"day": list(range(DAYS)), "label": [f"day {n} of the calendar" for n in range(DAYS)]})
    declared = {
        "private": True,
        "unit": {"column": "person"},
        "columns": {"person": {"unique": True}, "salary": {"bounds": [0, 200_000]}},
        "max_rows_per_unit": 1,
        "expected_rows": PEOPLE,
        "profile": None,
    }
    return {"people": (declared, people), "cal": ({"private": False, "columns": {"day": {"unique": True}}}, cal)}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbours]:
    with neighbours(tmp_path_factory.mktemp("salaries"), salaries, step_ms=0, workers=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def cramped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbours]:
    """The same with little memory for the engine."""
    with neighbours(tmp_path_factory.mktemp("cramped"), salaries, step_ms=0, workers=1, memory="100MB") as opened:
        yield opened


def as_it_was(books: Books, walk: Walk) -> Answerer:
    """Nothing is predicted, so nothing is refused, and answers leave when they are ready."""
    tools = replace(means_of(books, walk), time=PromisedTime(0, 60.0, Unaware()))
    return Answerer(tools)


class Unaware:
    """What an engine said of work before it learned to predict."""

    memory_bytes = 1 << 62

    def predict(self, *_: object) -> WorstCase:
        return WorstCase(0.0, 0, "", "")


def ask(side: str, sql: str) -> Ask:
    return Ask(side, sql, Loss("epsilon", 1), bounds=MANY, fresh=True)


@pytest.mark.parametrize("sql", [CROSSED, DISTINCT], ids=["counted", "distinct"])
def test_the_cross_join_with_public_rows_is_refused_on_both_sides_alike_and_costs_nothing(
    house: Neighbours, sql: str
) -> None:
    said = set()
    for side in SIDES:
        before = house.books.ledger.balance(side).spent
        with pytest.raises(QuestionTooLarge) as refused:
            house.walk.answerer.submit(ask(side, sql), ANALYST, None, "hash", 30)
        said.add((refused.value.detail, refused.value.extra["remedy"]))
        assert house.books.ledger.balance(side).spent == before
    ((detail, remedy),) = said
    assert "4,000 × 4,000 rows of cal for every row of people" in detail and "cal" in remedy


def test_as_it_was_the_cross_join_tells_by_its_time(house: Neighbours) -> None:
    """The twin: without the refusal, somebody who is there takes many times as long as nobody."""
    old = as_it_was(house.books, house.walk)
    took: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(3):
        for side in SIDES:
            began = time.perf_counter()
            old.submit(ask(side, CROSSED), ANALYST, None, "hash", 60)
            took[side].append(time.perf_counter() - began)
    old.close()
    with_them, without_them = (min(took[side]) for side in SIDES)
    assert with_them > 1.5 * without_them


def test_as_it_was_memory_runs_out_where_somebody_is_there(cramped: Neighbours) -> None:
    """The twin: without the refusal, it fails for somebody who is there, and for nobody else."""
    old = as_it_was(cramped.books, cramped.walk)
    endings = []
    for side in SIDES:
        try:
            endings.append(old.submit(ask(side, CROSSED), ANALYST, None, "hash", 60).status)
        except AnswerFailed:
            endings.append("failed")
    old.close()
    assert endings == ["failed", "answered"]
