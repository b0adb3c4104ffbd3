"""Turns are taken in the name of a person: whoever has ten keys waits as long as somebody with one."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.app import Books, Walk
from service.core.plan import Loss
from service.core.request import Ask
from service.walk import Answerer
from service.walk.planner import PlannerHere, PlanningJob
from service.walk.question import Question
from tests.fixtures.slots import means_of
from tests.fixtures.whole import ANALYST, clinic

OUTER = "SELECT ward, COUNT(*) * 2 AS twice FROM visits GROUP BY ward ORDER BY twice"
ASK = Ask("clinic", OUTER, Loss("epsilon", 10**9))


class Seen:
    """Engine, scratch and planner of a walk; each notes in whose name it was asked."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self.callers: list[tuple[str, str]] = []

    def plan(self, asked: PlanningJob, caller: str) -> Question:
        self.callers.append(("planner", caller))
        return PlannerHere().plan(asked, caller)

    @contextmanager
    def slot(self, dataset: str, wait_s: float, caller: str = "") -> Iterator[Any]:
        self.callers.append(("engine", caller))
        with self._walk.engine.slot(dataset, wait_s, caller) as slot:
            yield slot

    def run(self, *given: Any, caller: str = "") -> Any:
        self.callers.append(("outer SQL", caller))
        return self._walk.scratch.run(*given, caller=caller)

    def rehearse(self, *given: Any, caller: str = "") -> Any:
        self.callers.append(("rehearsal", caller))
        return self._walk.scratch.rehearse(*given, caller=caller)

    def close(self) -> None:
        pass


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[Books, Walk]]:
    with clinic(tmp_path) as opened:
        yield opened


def test_every_turn_is_taken_in_the_name_of_the_keys_owner(opened: tuple[Books, Walk]) -> None:
    seen: Any = Seen(opened[1])
    answerer = Answerer(replace(means_of(*opened), engine=seen, scratch=seen), planner=seen)
    for prefix in ("key0000001", "key0000002"):
        asked = answerer.submit(ASK, replace(ANALYST, prefix=prefix, owner="ann"), None, "hash", 30)
        assert asked.status == "answered"
    assert {caller for _, caller in seen.callers} == {"ann"}
    assert {what for what, _ in seen.callers} == {"planner", "engine", "outer SQL", "rehearsal"}
    assert [what for what, _ in seen.callers].count("outer SQL") > 1, "the second answer is a replay"


def test_a_key_without_an_owner_is_a_person_of_its_own(opened: tuple[Books, Walk]) -> None:
    seen: Any = Seen(opened[1])
    answerer = Answerer(replace(means_of(*opened), engine=seen, scratch=seen), planner=seen)
    answerer.submit(ASK, ANALYST, None, "hash", 30)
    assert {caller for _, caller in seen.callers} == {ANALYST.prefix}
