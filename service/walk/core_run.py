"""One core from its price to its released table: all that can be said before the charge, then the private rows.

Emission comes first. An engine turns needs into its own words before anything is reserved, so that a bug there costs
nobody anything; only `CoreRun.release` runs between reserve and settle, where whatever goes wrong is one opaque
failure for the caller.
"""

import itertools
import secrets
import time
from collections.abc import Mapping

import numpy as np

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


class CoreRun:
    """One core on one slot, emitted when it is made; `keys` None: they are not declared and must be selected.

    What is emitted when:

    - Stages 0 and 1 (bounds to be found, keys to be selected) depend on plan and price alone: here, before the charge.
    - Stage 2 (the values) depends on the ranges and caps that stage 0 finds. Where it finds nothing, as in nearly all
      queries, the values are emitted here and once. Else they are emitted here with the declared ranges, on trial,
      and again with what was found. What was found lies inside what was declared, and all that emission asserts of
      ranges (that codes, squares and bins fit their integers) holds for narrower ones too: what passed on trial does
      not fail after the charge. tests/property/test_emitted_before_the_charge.py holds it to that.
    - Keys that stage 1 selected are handed over with `compute`, as the key table: no work depends on them.
    """

    def __init__(self, slot: Slot, priced: PricedPlan, keys: KeyTable | None, salt: int) -> None:
        self._slot = slot
        self._priced = priced
        self._keys = keys
        self._salt = salt
        self._bounds_work = self._work(priced.bounds_needs) if priced.bounds_needs else None
        self._keys_work = self._work((_keys_need(priced),)) if keys is None else None
        self._values_work = self._work(priced.value_needs())

    def release(
        self,
        noise: NoiseSource,
        deadline: float,
        *,
        replicas: frozenset[str],
        base: Mapping[Primitive, Array] | None,
    ) -> ReleasedTable:
        """Bounds if they must be found, keys if they are not declared, then the values; until `deadline`
        (time.monotonic()).

        `base` holds primitives released before on the same frame: fresh noise refines them.
        """
        priced, work = self._priced, self._values_work
        if self._bounds_work is not None:
            found = release_bounds(priced, self._compute(self._bounds_work, None, deadline), noise)
            priced = priced.given(found)
            work = self._work(priced.value_needs())
        selected: KeyTable | SelectedKeys | None = self._keys
        if selected is None:
            selected = self._selected(priced, noise, deadline)
        public = selected.keys if isinstance(selected, SelectedKeys) else selected
        exacts = self._compute(work, public, deadline)
        if base is None:
            return release_values(priced, selected, exacts, noise, replicas=replicas)
        assert self._keys is not None, "only declared keys are refined"
        fresh = release_primitives(priced, self._keys, exacts, noise)
        return derive(priced.plan, self._keys, top_up(base, fresh), replicas=replicas)

    def _selected(self, priced: PricedPlan, noise: NoiseSource, deadline: float) -> SelectedKeys:
        """The keys that may be named, with the people that were counted for it: those may be reused."""
        assert self._keys_work is not None
        ((_, exact),) = self._compute(self._keys_work, None, deadline)
        return release_keys(priced, exact, noise)

    def _work(self, needs: tuple[Need, ...]) -> Work:
        return self._slot.work(self._priced.plan, needs, self._salt)

    def _compute(self, work: Work, keys: KeyTable | None, deadline: float) -> Computed:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise EngineFailed("deadline")
        return self._slot.compute(work, keys, left_s)


def _keys_need(priced: PricedPlan) -> Need:
    need = priced.keys_need
    assert need is not None, "undeclared keys are selected"
    return need
