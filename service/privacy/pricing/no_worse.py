"""Is a stored release at least as good as what a price would buy? Free replay depends on it.

Compared is what primitives say of themselves: the same clipping, the same range, and no more noise
in any moment that an aggregate reads. Values are not looked at.
"""

from collections.abc import Collection, Iterable, Mapping

from service.core.boundary import Array, Primitive
from service.core.derivations import ONCE
from service.core.plan import Aggregate
from service.privacy.pricing.priced import PricedPlan
from service.privacy.primitives.chosen import ChosenValue, best_chosen
from service.privacy.primitives.derive import argument_measure, expresses, part_for
from service.privacy.primitives.from_moments import linear_noise, rows_read
from service.privacy.primitives.noised import Part

ROUNDING = 1 + 1e-9  # predicted deviations are floats; a price that differs by less is the same price


def under_same_bounds(priced: PricedPlan, primitives: Mapping[Primitive, Array]) -> dict[Primitive, Array]:
    """The stored primitives that were made under the bounds of this plan: only these may answer it.

    A sum that was clipped otherwise is another number, however little noise it has.
    """
    return {item: values for item, values in primitives.items() if _same_bounds(priced, item)}


def no_worse(priced: PricedPlan, primitives: Collection[Primitive]) -> bool:
    """Do the stored primitives serve every aggregate of the plan as well as its own price would?

    They must be made under its bounds: those are not looked at again.
    """
    parts = [item for item in primitives if isinstance(item, Part)]
    chosen = [item for item in primitives if isinstance(item, ChosenValue)]
    return all(_serves(priced, aggregate, parts, chosen) for aggregate in priced.plan.aggregates)


def _same_bounds(priced: PricedPlan, stored: Primitive) -> bool:
    """Was this made under the plan's bounds, for every aggregate that could be read off it?"""
    if isinstance(stored, ChosenValue):
        return all(_same_grid(priced, stored, a) for a in priced.plan.aggregates if stored.serves(a))
    assert isinstance(stored, Part)
    return all(_same_clip(priced, stored, a) for a in priced.plan.aggregates if expresses(stored, a))


def _same_clip(priced: PricedPlan, stored: Part, aggregate: Aggregate) -> bool:
    wanted = part_for(priced.available, aggregate)
    if wanted is None or stored.clip != wanted.clip:
        return False
    if stored.bound != wanted.bound and not _finds_cap(priced, stored, aggregate):
        return False
    anywhere = aggregate.function.counts or _finds_range(priced, aggregate)
    return anywhere or (stored.low, stored.high) == (wanted.low, wanted.high)


def _same_grid(priced: PricedPlan, stored: ChosenValue, aggregate: Aggregate) -> bool:
    wanted = best_chosen(priced.chosen_values, aggregate)
    if wanted is None or stored.bound != wanted.bound:
        return False
    grids = [(value.low, value.width, value.bins) for value in (stored, wanted)]
    return grids[0] == grids[1] or _finds_range(priced, aggregate)


def _finds_range(priced: PricedPlan, aggregate: Aggregate) -> bool:
    measure = argument_measure(priced.plan, aggregate)
    return measure is not None and measure.auto


def _finds_cap(priced: PricedPlan, part: Part, aggregate: Aggregate) -> bool:
    return part.clip == "cap" and priced.plan.bounds.unit_sum.get(aggregate.argument or "", 0) is None


def _serves(priced: PricedPlan, aggregate: Aggregate, parts: Iterable[Part], chosen: Iterable[ChosenValue]) -> bool:
    wanted = part_for(priced.available, aggregate)
    if wanted is None:
        bought, kept = best_chosen(priced.chosen_values, aggregate), best_chosen(chosen, aggregate)
        return bought is not None and kept is not None and _chosen_serves(kept, bought)
    stored = part_for(parts, aggregate)
    if stored is None:
        return False
    if _finds_range(priced, aggregate) or _finds_cap(priced, stored, aggregate):
        # The range or cap was found privately: the amounts decide, not the widths that it led to. A range of one
        # value leaves nothing but the count.
        alike = stored.vector is wanted.vector or stored.low == stored.high
        return stored.law == wanted.law and alike and stored.amount >= wanted.amount
    return all(
        ours <= theirs * ROUNDING
        for ours, theirs in zip(_noise(stored, aggregate), _noise(wanted, aggregate), strict=True)
    )


def _chosen_serves(stored: ChosenValue, wanted: ChosenValue) -> bool:
    shown = bool(stored.around) or not wanted.around
    return shown and stored.typical_error <= wanted.typical_error * ROUNDING


def _noise(part: Part, aggregate: Aggregate) -> list[float]:
    """Deviations of the moments that the aggregate reads."""
    return [linear_noise(part, row, ONCE)[0] for row in rows_read(part, aggregate) if row is not None]
