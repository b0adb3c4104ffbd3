"""Where questions are planned: here, or in processes beside (service/walk/planner_pool.py). Both give the same."""

from dataclasses import dataclass, field
from typing import Protocol

from service.core.amounts import Terms
from service.core.request import Ask
from service.core.schema import Schema
from service.walk.defaults import StoredDefaults
from service.walk.question import Question, put_question


@dataclass(frozen=True, slots=True)
class PlanningJob:
    """All that a plan and its price depend on. `kept`: default bounds that earlier charges have stored."""

    ask: Ask
    schema: Schema
    terms: Terms
    kept: StoredDefaults = field(default_factory=dict)


class Planner(Protocol):
    """Understands and prices, in the name of a caller (an analyst): pure, so it does not matter where."""

    def plan(self, asked: PlanningJob, caller: str) -> Question:
        """Raises what `put_question` raises; TooBusy when no turn comes."""

    def close(self) -> None: ...


class PlannerHere:
    """In the caller's own thread: for tests, and for whoever is alone on the machine."""

    def plan(self, asked: PlanningJob, caller: str) -> Question:
        return put_question(asked.ask, asked.schema, asked.terms, asked.kept)

    def close(self) -> None:
        """Nothing was opened."""
