"""The part of the walk that touches private rows: exact integers in, released tables out.

Runs only between reserve and settle. Whatever goes wrong here is one opaque failure for the caller.
"""

import itertools
import secrets
import time
from collections.abc import Mapping

import numpy as np

from service.core.boundary import Array, ExactTable, KeyTable, ReleasedTable
from service.core.errors import ConstructRefused
from service.core.plan import Key, Need, Plan
from service.engine.base import EngineFailed, Slot
from service.engine.emit.statements import emit
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


class CoreRun:
    """One core on one slot until `deadline` (time.monotonic()); the salt is fresh and leaves with it."""

    def __init__(self, slot: Slot, noise: NoiseSource, dialect: str, deadline: float) -> None:
        self._slot = slot
        self._noise = noise
        self._dialect = dialect
        self._deadline = deadline
        self._salt = secrets.randbits(63)

    def release(
        self,
        priced: PricedPlan,
        keys: KeyTable | None,
        *,
        replicas: frozenset[str],
        base: Mapping[str, Array] | None,
    ) -> ReleasedTable:
        """Bounds if they must be found, keys if they are not declared (`keys` None), then the values.

        `base` holds primitives released before on the same frame: fresh noise refines them.
        """
        if priced.bounds_needs:
            found = release_bounds(priced, self._compute(priced.plan, priced.bounds_needs, None), self._noise)
            priced = priced.given(found)
        selected = self._selected(priced) if keys is None else keys
        public = selected.keys if isinstance(selected, SelectedKeys) else selected
        exacts = self._compute(priced.plan, priced.value_needs(), public)
        if base is None:
            return release_values(priced, selected, exacts, self._noise, replicas=replicas)
        assert keys is not None, "only declared keys are refined"
        fresh = release_primitives(priced, keys, exacts, self._noise)
        return derive(priced.plan, keys, top_up(base, fresh), replicas=replicas)

    def _selected(self, priced: PricedPlan) -> SelectedKeys:
        """The keys that may be named, with the people that were counted for it: those may be reused."""
        need = priced.keys_need
        assert need is not None, "undeclared keys are selected"
        ((_, exact),) = self._compute(priced.plan, (need,), None)
        return release_keys(priced, exact, self._noise)

    def _compute(
        self, plan: Plan, needs: tuple[Need, ...], keys: KeyTable | None
    ) -> list[tuple[tuple[Need, ...], ExactTable]]:
        exacts = []
        for statement, answered in emit(plan, needs, salt=self._salt, dialect=self._dialect):
            left_s = self._deadline - time.monotonic()
            if left_s <= 0:
                raise EngineFailed("deadline")
            table = self._slot.run(statement, keys if statement.uses_keys else None, left_s)
            exacts.append((answered, table))
        return exacts
