"""One core from its price to its released table: all that can be said before the charge, then the private rows.

Emission comes first. An engine turns needs into its own words before anything is reserved, so that a bug there costs
nobody anything; only `CoreRun.release` runs between reserve and settle, where whatever goes wrong is one opaque
failure for the caller.
"""

import itertools
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from sqlglot import exp

from service.core.boundary import Array, KeyTable, Primitive, ReleasedTable
from service.core.errors import ConstructRefused
from service.core.plan import Key, Need, Plan
from service.engine.base import Computed, EngineFailed, Slot, Work
from service.privacy.noise.sampling import NoiseSource
from service.privacy.pricing.priced import PricedPlan, SelectedKeys
from service.privacy.pricing.refine import top_up
from service.privacy.primitives.derive import derive
from service.privacy.release import release_bounds, release_keys, release_primitives, release_values

GROUPS_MAX = 1_000_000


def declared_keys(plan: Plan, slot: Slot) -> KeyTable:
    """Every combination of the declared values: public, so this may run before the charge."""
    if not plan.keys:
        return KeyTable.single()
    values = [_values(key, slot) for key in plan.keys]
    size = 1
    for options in values:
        size *= len(options)
    if size > GROUPS_MAX:
        raise ConstructRefused(
            f"the declared keys make {size} groups; at most {GROUPS_MAX} are answered",
            {"construct": "GROUP BY", "remedy": "group by fewer keys, or list the wanted ones with IN (…)"},
        )
    combined = list(itertools.product(*values))
    columns = {key.name: _objects([row[at] for row in combined]) for at, key in enumerate(plan.keys)}
    return KeyTable(columns, size)


def _values(key: Key, slot: Slot) -> list[object]:
    if key.domain is not None:
        return list(key.domain)
    assert key.public is not None, "only declared keys have values before the data is read"
    table, column = key.public
    return list(slot.public_values(table, column, GROUPS_MAX + 1))


def _objects(values: list[object]) -> Array:
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


def fresh_salt() -> int:
    """What keys every choice of one core's run. It leaves with the run, and nothing else is drawn from it."""
    return secrets.randbits(63)


@dataclass(frozen=True, slots=True, repr=False)
class CoreRun:
    """One core, emitted, with its price; `keys` None: they are not declared and must be selected.

    What is emitted when:

    - Stages 0 and 1 (bounds to be found, keys to be selected) depend on plan and price alone: `emitted`, before the
      charge.
    - Stage 2 (the values) depends on the ranges and caps that stage 0 finds. Where it finds nothing, as in nearly all
      queries, the values are emitted there and once. Else they are emitted there with the declared ranges, on trial,
      and again with what was found. What was found lies inside what was declared, and all that emission asserts of
      ranges (that codes, squares and bins fit their integers) holds for narrower ones too: what passed on trial does
      not fail after the charge. tests/property/test_emitted_before_the_charge.py holds it to that.
    - Keys that stage 1 selected are handed over with `compute`, as the key table: no work depends on them.

    It holds no slot: the process that releases it is another one (service/walk/release_process.py).
    """

    priced: PricedPlan
    keys: KeyTable | None
    salt: int
    bounds_work: Work | None
    keys_work: Work | None
    values_work: Work

    @staticmethod
    def emitted(slot: Slot, priced: PricedPlan, keys: KeyTable | None, salt: int) -> "CoreRun":
        def work(needs: tuple[Need, ...]) -> Work:
            return slot.work(priced.plan, needs, salt)

        return CoreRun(
            priced,
            keys,
            salt,
            bounds_work=work(priced.bounds_needs) if priced.bounds_needs else None,
            keys_work=work((_keys_need(priced),)) if keys is None else None,
            values_work=work(priced.value_needs()),
        )

    def to_travel(self) -> "CoreRun":
        """The same without its rows, unless they will be emitted again: a tree is large, and nothing else reads it."""
        if self.bounds_work is not None:
            return self
        return replace(self, priced=replace(self.priced, plan=replace(self.priced.plan, rows=exp.Select(), tables={})))

    def release(
        self, at: "Releasing", *, replicas: frozenset[str], base: Mapping[Primitive, Array] | None
    ) -> ReleasedTable:
        """Bounds if they must be found, keys if they are not declared, then the values.

        `base` holds primitives released before on the same frame: fresh noise refines them.
        """
        priced, work = self.priced, self.values_work
        if self.bounds_work is not None:
            found = release_bounds(priced, at.compute(self.bounds_work, None), at.noise)
            priced = priced.given(found)
            work = at.slot.work(priced.plan, priced.value_needs(), self.salt)
        selected: KeyTable | SelectedKeys | None = self.keys
        if selected is None:
            selected = self._selected(priced, at)
        public = selected.keys if isinstance(selected, SelectedKeys) else selected
        exacts = at.compute(work, public)
        if base is None:
            return release_values(priced, selected, exacts, at.noise, replicas=replicas)
        assert self.keys is not None, "only declared keys are refined"
        fresh = release_primitives(priced, self.keys, exacts, at.noise)
        return derive(priced.plan, self.keys, top_up(base, fresh), replicas=replicas)

    def _selected(self, priced: PricedPlan, at: "Releasing") -> SelectedKeys:
        """The keys that may be named, with the people that were counted for it: those may be reused."""
        assert self.keys_work is not None
        ((_, exact),) = at.compute(self.keys_work, None)
        selected = release_keys(priced, exact, at.noise)
        at.selected(selected.keys.size)
        return selected


@dataclass(frozen=True, slots=True)
class Releasing:
    """Where a core is released: a slot, until `deadline` (time.monotonic()), with noise from `noise`. `selected` is
    told how many keys may be named, as soon as that is public."""

    slot: Slot
    noise: NoiseSource
    deadline: float
    selected: Callable[[int], None] = lambda groups: None

    def compute(self, work: Work, keys: KeyTable | None) -> Computed:
        left_s = self.deadline - time.monotonic()
        if left_s <= 0:
            raise EngineFailed("deadline")
        return self.slot.compute(work, keys, left_s)


def _keys_need(priced: PricedPlan) -> Need:
    need = priced.keys_need
    assert need is not None, "undeclared keys are selected"
    return need
