"""How long a question takes, as everybody sees it: known before it is charged, from public facts alone.

Invariant T1: from the order that follows a question's charge to the moment at which it gives its engine slot back, and
its outcome begins to show, exactly the promised time passes, whatever the engine did in it. (Before the order no row is
read: how long it took to come to it is public.) The promise is a function of the plan, the public sizes of its tables,
the speed of the machine and the dataset's safety factor. The exceptions are events: a question that is not done in its
time is *late*, which is committed in that moment, counted, and doubles the safety factor; it is looked at once more at
four times its time, and then it has failed.

Keys that are not declared are selected first. How many were is released, so it is public from then on: what comes
after it has a promise of its own, made in that moment.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from service.core.errors import QuestionTooLarge
from service.core.plan import Key, Need, Plan
from service.core.rungs import rung_at_or_above
from service.core.sizes import MOST_UNSEEN, PrivateSize, PublicSize, Size
from service.engine.base import WorstCase
from service.privacy.pricing.priced import PricedPlan
from service.walk.core_run import GROUPS_MAX
from service.walk.releasing import Failed, Finished, Message, Release, Selected

SECOND_LOOK = 4  # a late question is looked at once more, at so many times its promise
ORDER_S = 0.01  # for the order to the release process and its answer, beside what is predicted of the work
REFUSED_FROM = 4  # a prediction that this many times over passes the deadline is refused, whatever the dataset's factor


class Predicts(Protocol):
    """What an engine says of work before it is done: service/engine/base.py."""

    @property
    def memory_bytes(self) -> int: ...

    def predict(
        self, plan: Plan, needs: tuple[Need, ...], sizes: Mapping[str, Size], groups: int | None
    ) -> WorstCase | None: ...


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a question's time whose length is known when it begins.

    `seconds` is what is predicted of it at worst, None where a size is not known. `over_selected` is the core whose
    values are computed in it over keys that were selected just before: how many, adds to it.
    """

    seconds: float | None
    over_selected: PricedPlan | None = None


@dataclass(frozen=True, slots=True)
class Promise:
    """The time of one question, stretch after stretch, under the dataset's safety factor and the public sizes that it
    was made from. `seconds` is the most that it can last, as estimates and receipts show it."""

    stretches: tuple[Stretch, ...]
    safety: int
    sizes: Mapping[str, Size]
    seconds: float


NOTHING_KNOWN = WorstCase(0.0, 0, "", "")  # of questions over public tables that were imported before sizes were kept
NOTHING_PROMISED = Promise((), 1, {}, 0.0)  # of a question that is only looked at


@dataclass(frozen=True, slots=True)
class PromisedTime:
    """The deployment's clock. `step_ms` 0: nothing is promised and answers leave when they are ready, which is meant
    for tests; `clock` and `sleep` are what tests wind."""

    step_ms: int
    deadline_s: float
    engine: Predicts
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def promise(self, plans: Sequence[PricedPlan], sizes: Mapping[str, Size], safety: int) -> Promise:
        """Raises QuestionTooLarge where the worst case does not fit into the deadline or into the memory of an engine
        process: before any charge, and whatever the data holds."""
        stretches = tuple(self._stretches(plans, sizes))
        made = Promise(stretches, safety, sizes, 0.0)
        most = sum(
            self.lasts(made, stretch, None if (core := stretch.over_selected) is None else _most_groups(core, sizes))
            for stretch in stretches
        )
        return Promise(stretches, safety, sizes, min(self.deadline_s, most))

    def lasts(self, promise: Promise, stretch: Stretch, groups: int | None) -> float:
        """Seconds: the rung at or above what is predicted times the safety factor; at most the deadline."""
        if self.step_ms == 0:
            return 0.0
        seconds = stretch.seconds
        if seconds is not None and stretch.over_selected is not None:
            core = stretch.over_selected
            found = self.engine.predict(core.plan, core.value_needs(), promise.sizes, groups)
            seconds = None if found is None else seconds + found.seconds
        if seconds is None:
            return self.deadline_s
        at_least = promise.safety * (seconds + ORDER_S)
        return min(self.deadline_s, rung_at_or_above(at_least, self.step_ms / 1000))

    def _stretches(self, plans: Sequence[PricedPlan], sizes: Mapping[str, Size]) -> list[Stretch]:
        """A new stretch begins wherever a number of groups is released. The question is refused as soon as its stages
        together pass the deadline, or one of them the memory, with as many selected keys as there may be."""
        stretches: list[Stretch] = []
        seconds: float | None = 0.0
        over: PricedPlan | None = None
        total = 0.0
        for core in plans:
            for needs, groups in _stages(core, sizes):
                found, surely = self._worst(core.plan, needs, sizes, groups)
                total += surely.seconds
                self._refuse_if_too_large(surely, total)
                seconds = None if seconds is None or found is None else seconds + found.seconds
            if not core.plan.keys_declared:
                most = _most_groups(core, {**_one_unit_each(core.plan), **sizes})
                _, surely = self._worst(core.plan, core.value_needs(), sizes, most)
                total += surely.seconds
                self._refuse_if_too_large(surely, total)
                stretches.append(Stretch(seconds, over))
                seconds, over = 0.0, core
        return [*stretches, Stretch(seconds, over)]

    def _worst(
        self, plan: Plan, needs: tuple[Need, ...], sizes: Mapping[str, Size], groups: int | None
    ) -> tuple[WorstCase | None, WorstCase]:
        """What is predicted, None where a size is not known; and what is predicted in any case.

        For that a private table of unknown size is taken for the rows of one unit: what those alone could cost, beside
        public tables, would tell whether they are there.
        """
        found = self.engine.predict(plan, needs, sizes, groups)
        if found is not None:
            return found, found
        surely = self.engine.predict(plan, needs, {**_one_unit_each(plan), **sizes}, groups)
        if surely is not None:
            return None, surely
        if {name for name, table in plan.tables.items() if not table.private} <= sizes.keys():
            raise QuestionTooLarge(
                "nobody can say how long this question takes at worst",
                {"construct": "FROM", "remedy": "ask without nested subqueries, or for less in one question"},
            )
        return None, NOTHING_KNOWN

    def _refuse_if_too_large(self, found: WorstCase, total_s: float) -> None:
        if total_s * REFUSED_FROM > self.deadline_s:
            raise QuestionTooLarge(
                f"over data of this size the question could take longer than {self.deadline_s:g} s: {found.largest}",
                {"construct": found.largest, "remedy": found.remedy},
            )
        if found.memory_bytes > self.engine.memory_bytes:
            raise QuestionTooLarge(
                f"over data of this size the question could need {found.memory_bytes / 1e6:,.0f} MB, and an engine"
                f" process has {self.engine.memory_bytes / 1e6:,.0f} MB: {found.largest}",
                {"construct": found.largest, "remedy": found.remedy},
            )

    def keep(self, promise: Promise, release: Release, late: Callable[[], None]) -> Finished | Failed:
        """Wait as long as was promised, and look then; what is not done at its second look either has failed.

        `late` is called in the moment at which a stretch is late. A bug, or a message that is none, is a failure
        like any other, and like any other it does not show before the time that was promised.
        """
        try:
            return self._kept(promise, release, late)
        except Exception as cause:
            self.sleep(max(0.0, release.begun + promise.seconds - self.clock()))
            return Failed(type(cause).__name__)

    def _kept(self, promise: Promise, release: Release, late: Callable[[], None]) -> Finished | Failed:
        began, groups = release.begun, None
        last = began + self.deadline_s
        for stretch in promise.stretches:
            lasts_s = self.lasts(promise, stretch, groups)
            ends = min(began + lasts_s, last)
            message = self._looked(release, ends, last)
            if message is None and ends < last:
                late()
                ends = min(began + SECOND_LOOK * lasts_s, last)
                message = self._looked(release, ends, last)
            if message is None:
                return Failed("late")
            if not isinstance(message, Selected):
                return message
            began, groups = ends, message.groups
        raise AssertionError("an order ends with its last stretch")

    def _looked(self, release: Release, ends: float, last: float) -> Message | None:
        if self.step_ms == 0:
            return release.wait(last)
        self.sleep(max(0.0, ends - self.clock()))
        return release.there_at(ends)


def _stages(core: PricedPlan, sizes: Mapping[str, Size]) -> list[tuple[tuple[Need, ...], int | None]]:
    """The needs whose groups are known before anything is released, stage by stage."""
    stages: list[tuple[tuple[Need, ...], int | None]] = []
    if core.bounds_needs:
        stages.append((core.bounds_needs, None))
    if core.plan.keys_declared:
        stages.append((core.value_needs(), _declared_groups(core.plan, sizes)))
    else:
        assert core.keys_need is not None, "undeclared keys are selected"
        stages.append(((core.keys_need,), None))
    return stages


def _declared_groups(plan: Plan, sizes: Mapping[str, Size]) -> int:
    return min(GROUPS_MAX, math.prod(_values(key, sizes) for key in plan.keys))


def _values(key: Key, sizes: Mapping[str, Size]) -> int:
    """At most so many values of a declared key; more than may be answered where that is not known."""
    if key.domain is not None:
        return len(key.domain)
    assert key.public is not None, "a declared key has a domain or a public column"
    size = sizes.get(key.public[0])
    return size.rows if isinstance(size, PublicSize) else GROUPS_MAX


def _one_unit_each(plan: Plan) -> dict[str, Size]:
    unseen = PrivateSize(MOST_UNSEEN, 1, MOST_UNSEEN)
    return {name: unseen for name, table in plan.tables.items() if table.private}


def _most_groups(core: PricedPlan, sizes: Mapping[str, Size]) -> int:
    """Every selected group has a unit that kept it, and a unit keeps so many."""
    units = max((size.units for size in sizes.values() if isinstance(size, PrivateSize)), default=GROUPS_MAX)
    return min(GROUPS_MAX, units * core.plan.bounds.groups_per_unit)
