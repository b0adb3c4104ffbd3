"""How a promise is made of predictions, and kept: rungs, stretches, refusals, the second look."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from service.core.errors import QuestionTooLarge
from service.core.plan import KeysNeed, Loss, Need, Plan
from service.core.request import Ask
from service.core.schema import Table
from service.core.sizes import PrivateSize, PublicSize, Size
from service.engine.base import WorstCase
from service.privacy.pricing.priced import PricedPlan
from service.walk.promised_time import PromisedTime
from service.walk.question import put_question
from service.walk.releasing import Failed, Finished, Message, ReleaseHere, Selected
from tests.fixtures.ledgers import TERMS
from tests.fixtures.slots import WoundClock
from tests.fixtures.sql.shop import SCHEMA

SIZES: Mapping[str, Size] = {"orders": PrivateSize(1000, 100, 20), "shops": PublicSize(50)}
DECLARED = "SELECT country, COUNT(*) AS n FROM customers GROUP BY country"
SELECTED = "SELECT status, COUNT(*) AS n FROM orders GROUP BY status"


@dataclass
class Scripted:
    """An engine that predicts so much for keys, for values, and per group of values; None: if all sizes are known."""

    keys_s: float | None = 0.01
    values_s: float | None = 0.01
    group_s: float = 0.0
    worst_bytes: int = 0
    memory_bytes: int = 1000
    asked: list[tuple[str, int | None]] = field(default_factory=list)

    def predict(
        self, plan: Plan, needs: tuple[Need, ...], sizes: Mapping[str, Size], groups: int | None
    ) -> WorstCase | None:
        selects = isinstance(needs[0], KeysNeed)
        self.asked.append(("keys" if selects else "values", groups))
        seconds = self.keys_s if selects else self.values_s
        if seconds is None:
            return None if sizes.keys() < plan.tables.keys() | sizes.keys() else WorstCase(0.01, 0, "a table", "less")
        return WorstCase(seconds + self.group_s * (groups or 0), self.worst_bytes, "a join of cal", "leave cal out")


def time_of(engine: Scripted, step_ms: int = 100, clock: WoundClock | None = None) -> PromisedTime:
    wound = clock or WoundClock()
    return PromisedTime(step_ms, 60.0, engine, wound, wound.sleep)


def priced_plans(sql: str) -> tuple[PricedPlan, ...]:
    ask = Ask("shop", sql, Loss("epsilon", 10**12, delta=10**10))
    return put_question(ask, SCHEMA, TERMS).priced.plans


@pytest.fixture(scope="module")
def declared() -> tuple[PricedPlan, ...]:
    return priced_plans(DECLARED)


@pytest.fixture(scope="module")
def selected() -> tuple[PricedPlan, ...]:
    return priced_plans(SELECTED)


@pytest.mark.parametrize(
    ("predicted_s", "safety", "promised_s"),
    [(0, 4, 0.1), (0.015, 4, 0.1), (0.0151, 4, 0.2), (0.09, 4, 0.4), (0.1, 8, 1.6), (15, 4, 60), (15, 4096, 60)],
)
def test_a_promise_is_the_rung_above_the_prediction_times_the_factor(
    declared: tuple[PricedPlan, ...], predicted_s: float, safety: int, promised_s: float
) -> None:
    promise = time_of(Scripted(values_s=predicted_s)).promise(declared, SIZES, safety)
    assert promise.seconds == pytest.approx(promised_s)


def test_a_size_that_is_not_known_is_promised_the_deadline(declared: tuple[PricedPlan, ...]) -> None:
    assert time_of(Scripted(values_s=None)).promise(declared, {}, 4).seconds == 60


def test_nothing_is_promised_where_the_step_is_zero(declared: tuple[PricedPlan, ...]) -> None:
    assert time_of(Scripted(), step_ms=0).promise(declared, SIZES, 4).seconds == 0


def test_what_could_take_more_than_a_quarter_of_the_deadline_is_refused_in_words(
    declared: tuple[PricedPlan, ...],
) -> None:
    with pytest.raises(QuestionTooLarge, match="a join of cal") as refused:
        time_of(Scripted(values_s=15.1)).promise(declared, SIZES, 4)
    assert refused.value.extra["remedy"] == "leave cal out"


def test_a_factor_that_has_grown_refuses_nothing(declared: tuple[PricedPlan, ...]) -> None:
    assert time_of(Scripted(values_s=14)).promise(declared, SIZES, 2**20).seconds == 60


def test_what_could_need_more_memory_than_a_process_has_is_refused(declared: tuple[PricedPlan, ...]) -> None:
    with pytest.raises(QuestionTooLarge, match="MB"):
        time_of(Scripted(worst_bytes=1001)).promise(declared, SIZES, 4)


def test_what_is_done_under_selected_keys_is_refused_before_they_are_selected(selected: tuple[PricedPlan, ...]) -> None:
    """With as many keys as there may be: afterwards it would fail, or not, by what is there."""
    most = 100 * selected[0].plan.bounds.groups_per_unit
    with pytest.raises(QuestionTooLarge, match="longer than"):
        time_of(Scripted(group_s=15.1 / most)).promise(selected, SIZES, 4)
    with pytest.raises(QuestionTooLarge, match="MB"):
        time_of(Scripted(worst_bytes=1001)).promise(selected, SIZES, 4)


def test_the_parts_of_a_question_are_refused_together(declared: tuple[PricedPlan, ...]) -> None:
    assert time_of(Scripted(values_s=5)).promise(declared * 3, SIZES, 4).seconds == 60
    with pytest.raises(QuestionTooLarge):
        time_of(Scripted(values_s=5)).promise(declared * 4, SIZES, 4)


def test_where_a_size_is_not_known_the_rows_of_one_unit_must_fit_at_least(declared: tuple[PricedPlan, ...]) -> None:
    (plan,) = (core.plan for core in declared)
    seen: list[Mapping[str, Size]] = []

    class Large(Scripted):
        def predict(
            self, plan: Plan, needs: tuple[Need, ...], sizes: Mapping[str, Size], groups: int | None
        ) -> WorstCase | None:
            seen.append(sizes)
            return None if len(seen) == 1 else WorstCase(16, 0, "a join of cal", "leave cal out")

    with pytest.raises(QuestionTooLarge, match="a join of cal"):
        time_of(Large()).promise(declared, {}, 4)
    assert seen[1] == {name: PrivateSize(64, 1, 64) for name, table in plan.tables.items() if table.private}


def test_what_nobody_can_bound_is_refused_unless_a_public_size_is_missing(declared: tuple[PricedPlan, ...]) -> None:
    class Lost(Scripted):
        def predict(self, *_: object) -> None:  # type: ignore[override]
            return None

    with pytest.raises(QuestionTooLarge, match="nobody can say"):
        time_of(Lost()).promise(declared, SIZES, 4)
    (core,) = declared
    public = replace(core.plan, tables={**core.plan.tables, "old": Table("old", {}, None)})
    assert time_of(Lost()).promise((replace(core, plan=public),), SIZES, 4).seconds == 60


def test_selected_keys_make_two_stretches_and_the_estimate_shows_the_most(selected: tuple[PricedPlan, ...]) -> None:
    engine = Scripted(keys_s=0.04, values_s=0.0, group_s=0.001)
    time = time_of(engine)
    promise = time.promise(selected, SIZES, 4)
    assert [stretch.over_selected is not None for stretch in promise.stretches] == [False, True]
    most = 100 * selected[0].plan.bounds.groups_per_unit
    assert engine.asked[-1] == ("values", most)
    assert promise.seconds == pytest.approx(0.2 + time.lasts(promise, promise.stretches[1], most))
    assert time.lasts(promise, promise.stretches[1], 10) == pytest.approx(0.1)


def kept(
    time: PromisedTime, plans: tuple[PricedPlan, ...], said: list[tuple[float, Message]]
) -> tuple[Message, float, int]:
    """What came of messages that were said so many seconds after the slot was taken, when, and how often late."""
    clock = time.clock
    assert isinstance(clock, WoundClock)
    began, lates = clock.now, [0]

    def late() -> None:
        lates[0] += 1

    promise = time.promise(plans, SIZES, 4)
    release = ReleaseHere(began, deque((began + after, message) for after, message in said))
    return time.keep(promise, release, late), round(clock.now - began, 9), lates[0]


DONE = Finished(())


@pytest.mark.parametrize(
    ("done_s", "ending", "left_s", "late"),
    [
        (0.0, DONE, 0.1, 0),
        (0.1, DONE, 0.1, 0),
        (0.11, DONE, 0.4, 1),
        (0.4, DONE, 0.4, 1),
        (0.41, Failed("late"), 0.4, 1),
    ],
)
def test_results_leave_at_the_promise_or_at_the_second_look(
    declared: tuple[PricedPlan, ...], done_s: float, ending: Message, left_s: float, late: int
) -> None:
    assert kept(time_of(Scripted()), declared, [(done_s, DONE)]) == (ending, left_s, late)


def test_a_failure_leaves_when_an_answer_would(declared: tuple[PricedPlan, ...]) -> None:
    assert kept(time_of(Scripted()), declared, [(0.001, Failed("died"))]) == (Failed("died"), 0.1, 0)


def test_the_second_stretch_depends_on_the_released_number_of_keys_alone(selected: tuple[PricedPlan, ...]) -> None:
    def left(groups: int, selected_s: float, done_s: float) -> tuple[Message, float, int]:
        time = time_of(Scripted(keys_s=0.04, values_s=0.0, group_s=0.001))
        return kept(time, selected, [(selected_s, Selected(groups)), (done_s, DONE)])

    assert left(10, 0.01, 0.02) == left(10, 0.19, 0.25) == (DONE, 0.3, 0)
    assert left(100, 0.01, 0.02) == left(100, 0.19, 0.9) == (DONE, 1.0, 0)
    assert left(10, 0.3, 0.31) == (DONE, 0.9, 1), "late once: the second stretch begins at the second look"


def test_at_the_deadline_nothing_is_late_it_has_failed(declared: tuple[PricedPlan, ...]) -> None:
    time = time_of(Scripted(values_s=None))
    assert kept(time, declared, [(60.5, DONE)]) == (Failed("late"), 60, 0)
