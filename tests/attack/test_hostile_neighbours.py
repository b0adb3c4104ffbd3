"""Questions that are made to cost what one person's presence decides, put to a real service on both neighbours.

Each is either refused on both sides before any charge, in the same words, or answered on both in the time that both
were promised: none late, none failed. The generator is tests/attack/hostile_questions.py.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.attack.hostile_clinic import declarations, rows
from tests.attack.hostile_questions import Hostile, hostile_questions
from tests.fixtures.neighbours import SIDES, Made, Neighbours, neighbours

PEOPLE, VISITS, DAYS, CODES = 50, 200, 400, 500
PATIENCE_S = 1.6  # longer promises are for `make test-slow`
SEED = 20_261_118
TRIES = 3


def clinic(there: bool) -> Made:
    declared = declarations(visits=VISITS)
    declared["people"] |= {"expected_rows": PEOPLE + 1, "profile": None}
    declared["visits"] |= {"expected_rows": 3 * PEOPLE + VISITS, "profile": None}
    made = rows(victim=there, people=PEOPLE, visits=VISITS, days=DAYS, codes=CODES)
    return {name: (declared[name], pa.Table.from_pylist(list(made[name]))) for name in declared}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbours]:
    with neighbours(tmp_path_factory.mktemp("hostile"), clinic) as opened:
        for side in SIDES * 2:
            assert opened.ask(side, "SELECT COUNT(*) FROM visits").status_code == 201
        opened.forgive()
        yield opened


def told(house: Neighbours, question: Hostile) -> list[Any]:
    """What both sides say before anything is charged: status, and the promise or the refusal."""
    said = []
    for side in SIDES:
        body = {"dataset": side, "sql": question.sql, "epsilon": "0.000001", "delta": "1e-12"}
        response = house.post("/v1/estimates", "first", body)
        found = response.json()
        kept = ("seconds",) if response.status_code == 200 else ("code", "detail", "remedy")
        said.append((response.status_code, [found.get(name) for name in kept]))
    return said


def ending(house: Neighbours, side: str, question: Hostile) -> str:
    """How it ended, and whether it was late or failed. What a busy machine did once does not happen three times; what a
    person's rows do, does."""
    for _ in range(TRIES):
        before = house.events(side)
        status = house.ask(side, question.sql, delta="1e-12").status_code
        if house.events(side) == before:
            return str(status)
        house.forgive()
    return f"{status}, late or failed {TRIES} times"


def put(house: Neighbours, questions: list[Hostile], patience_s: float) -> tuple[int, int]:
    """How many were answered, and how many refused; asserts that one person changed nothing that can be seen."""
    answered = refused = 0
    for question in questions:
        here, there = told(house, question)
        assert here == there, question
        if here[0] != 200:
            assert here[0] in (400, 422), question
            refused += 1
        elif here[1][0] <= patience_s:
            endings = {ending(house, side, question) for side in SIDES}
            assert endings in ({"201"}, {"200"}, {"422"}), question  # 200: it took longer than a request waits
            answered += 1
    return answered, refused


@pytest.mark.parametrize(("each", "patience_s"), [(2, PATIENCE_S), pytest.param(15, 60.0, marks=pytest.mark.slow)])
def test_no_question_tells_by_its_time_or_failure_that_somebody_is_there(
    house: Neighbours, each: int, patience_s: float
) -> None:
    answered, refused = put(house, hostile_questions(SEED, each), patience_s)
    assert answered and refused, "some fit, and some can't"
