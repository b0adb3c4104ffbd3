"""One plan at worst, with everything about it that the loads of its needs are computed from."""

from dataclasses import dataclass

from service.core.plan import Key, Plan
from service.core.sizes import PrivateSize
from service.engine.worst_case.rows import Bounded
from service.engine.worst_case.shapes import STRAYS, ColumnFacts, RowShape, type_width


@dataclass(frozen=True, slots=True)
class Task:
    """One plan with its rows at worst.

    `answered`: rows of a dense result, one per public key. `size`: of the one table whose units the row bound
    counts. `all_groups`: groups of the rows by their keys, released or not; `key_width` and `row_width`: bytes of
    the keys, and of a whole row of Plan.rows, which has so many `columns`.
    """

    plan: Plan
    rows: Bounded
    answered: int
    size: PrivateSize | None
    all_groups: int
    key_width: int
    row_width: int
    columns: int

    @property
    def shape(self) -> RowShape:
        return self.rows.shape

    @property
    def widest(self) -> RowShape:
        """The most rows that anything is done with."""
        widest = self.rows.widest
        return self.shape if widest is None or widest.rows <= self.shape.rows else widest

    @property
    def units(self) -> int:
        return self.shape.units or 1

    def cells(self, each: int) -> int:
        """Pairs of a group and one of so many values; those that nobody declared are STRAYS again, and not for every
        group: a single unit has fewer rows than would make a difference."""
        return min(self.shape.rows, max(1, self.all_groups - STRAYS) * each + STRAYS)


def task_of(plan: Plan, rows: Bounded, groups: int | None, size: PrivateSize | None) -> Task:
    keys = [_key_facts(key, rows.shape) for key in plan.keys]
    found = 1
    for facts in keys:
        found = min(rows.shape.rows, found * facts.distinct(rows.shape.rows))
    key_width = sum(facts.width for facts in keys)
    attributes = sum(type_width(item.type, item.max_bytes, item.domain) for item in plan.attributes)
    return Task(
        plan,
        rows,
        answered=max(1, groups or 1) if plan.keys else 1,
        size=size,
        all_groups=max(1, min(rows.shape.rows, found + STRAYS)) if plan.keys else 1,
        key_width=key_width,
        row_width=8 + key_width + 8 * len(plan.measures) + attributes,
        columns=1 + len(plan.keys) + len(plan.measures) + len(plan.attributes),
    )


def _key_facts(key: Key, shape: RowShape) -> ColumnFacts:
    facts = shape.columns.get(("", key.name), ColumnFacts(shape.rows))
    width = type_width(key.type, key.max_bytes, key.domain)
    listed = 3 if key.type.name == "BOOLEAN" else None
    if key.domain is not None:
        listed = len(key.domain) + 1
    values = min((n for n in (facts.values, listed) if n is not None), default=None)
    return ColumnFacts(facts.sharing, values, width=min(width, facts.width) if width > 16 else width)
