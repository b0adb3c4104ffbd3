"""From released primitives to aggregates: post-processing, free, and the same years later.

`primitives` maps a Part (service/privacy/primitives/noised.py) to its noisy coordinates, an array of (coordinates,
groups), and a ChosenValue (service/privacy/primitives/chosen.py) to the chosen codes. Any aggregate that those can
express is derived here, so an AVG asked after a SUM and a COUNT is free.
"""

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction

import numpy as np

from service.core.aggregates import TakenOf
from service.core.boundary import Array, Floats, KeyTable, Primitive, ReleasedColumn, ReleasedTable
from service.core.derivations import ONCE
from service.core.plan import Aggregate, Measure, Plan
from service.privacy.noise.intervals import replica_count, replicas_between
from service.privacy.primitives.chosen import ChosenValue, chosen_column
from service.privacy.primitives.from_moments import (
    Coordinates,
    first_row,
    knows_all,
    linear_noise,
    moments_column,
    replica_values,
)
from service.privacy.primitives.noised import CAPPED_SUM, EVERY_ROW, EVERY_UNIT, Part


def expresses(part: Part, aggregate: Aggregate) -> bool:
    """Can the aggregate be derived from this part?"""
    spec = aggregate.function
    if part.vector.released_as is not spec.released_as:
        return False
    if aggregate.argument is None and part.moments.rows is not None:
        return True  # the count of all rows, beside the moments of any measure
    source = EVERY_UNIT if spec.taken_of is TakenOf.UNITS else aggregate.argument or EVERY_ROW
    return part.source == source and knows_all(part, aggregate)


def part_for(parts: Iterable[Part], aggregate: Aggregate) -> Part | None:
    """The part to derive an aggregate from: a capped sum where one was paid for, else the least noise."""
    able = [part for part in parts if expresses(part, aggregate)]
    if len(able) == 1:
        return able[0]

    def preference(part: Part) -> tuple[bool, float]:
        return part.vector is not CAPPED_SUM, linear_noise(part, first_row(part, aggregate), ONCE)[0]

    return min(able, key=preference, default=None)


def argument_measure(plan: Plan, aggregate: Aggregate) -> Measure | None:
    """The measure that an aggregate is taken of, if it is of one."""
    return next((m for m in plan.measures if m.name == aggregate.argument), None)


def argument_step(plan: Plan, aggregate: Aggregate) -> Fraction:
    """What one code of its measure is worth."""
    measure = argument_measure(plan, aggregate)
    return measure.step if measure else Fraction(1)


def derive(
    plan: Plan, keys: KeyTable, primitives: Mapping[Primitive, Array], *, replicas: frozenset[str] = frozenset()
) -> ReleasedTable:
    """Every aggregate of the plan from released primitives; replicas for the aggregates named.

    Replicas of one part share their noise over all aggregates, so that arithmetic over them is right.
    An aggregate that the primitives can not express is a bug of the caller: `derivable` tells.
    """
    parts = {item: values for item, values in primitives.items() if isinstance(item, Part)}
    chosen = {item: values for item, values in primitives.items() if isinstance(item, ChosenValue)}
    columns: dict[str, ReleasedColumn] = {}
    copies: dict[str, Floats] = {}
    jitter: dict[Part, Floats] = {}
    notes: list[str] = []
    for aggregate in plan.aggregates:
        part = part_for(parts, aggregate)
        if part is None:
            column, note = chosen_column(plan, aggregate, chosen)
            columns[aggregate.name] = column
            notes.append(note)
            if aggregate.name in replicas and has_numbers(column):
                ends = (column.values.astype(np.float64), column.low, column.high)
                copies[aggregate.name] = replicas_between(*ends, replica_count(keys.size))
            continue
        at, step = Coordinates(part, parts[part]), argument_step(plan, aggregate)
        columns[aggregate.name] = moments_column(at, aggregate, step)
        if aggregate.name in replicas:
            shape = (replica_count(keys.size), keys.size)
            if part not in jitter:
                jitter[part] = part.law.replica_noise(part.variances, shape)
            copies[aggregate.name] = replica_values(at, jitter[part], aggregate, step)
    return ReleasedTable(keys, columns, copies, primitives, tuple(dict.fromkeys(filter(None, notes))))


def has_numbers(column: ReleasedColumn) -> bool:
    """Is this a column of numbers whose interval is known? Dates and names can not be simulated."""
    plain = all(values.dtype.kind in "if" for values in (column.values, column.low, column.high))
    return plain and bool(np.isfinite(column.low).all())


def derivable(plan: Plan, primitives: Collection[Primitive]) -> bool:
    """Do these primitives express every aggregate of the plan?"""
    parts = [item for item in primitives if isinstance(item, Part)]
    chosen = [item for item in primitives if isinstance(item, ChosenValue)]
    return all(
        part_for(parts, aggregate) is not None or any(value.serves(aggregate) for value in chosen)
        for aggregate in plan.aggregates
    )
