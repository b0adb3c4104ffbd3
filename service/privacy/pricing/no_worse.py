"""Is a stored release at least as good as what a price would buy? Free replay depends on it.

Compared are what the names of parts and picks say: the same clipping, the same range, and no more noise
in any moment that an aggregate reads. Values are not looked at.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction

from service.core.boundary import Array
from service.core.plan import Aggregate
from service.privacy.mechanisms.vectors import Row
from service.privacy.pricing.priced import PricedPlan
from service.privacy.primitives.chosen import PICKS, Pick, best, read_pick
from service.privacy.primitives.derive import COUNTS, count_row, linear_noise, measure_of, serves, serving, sum_row
from service.privacy.primitives.noised import SHAPES, Part, read_part

ROUNDING = 1 + 1e-9  # predicted deviations are floats; a price that differs by less is the same price


def comparable(priced: PricedPlan, primitives: Mapping[str, Array]) -> dict[str, Array]:
    """The stored primitives that were made under the bounds of this plan: only these may answer it.

    A sum that was clipped otherwise is another number, however little noise it has.
    """
    return {name: values for name, values in primitives.items() if _same_bounds(priced, name)}


def no_worse(priced: PricedPlan, primitives: Mapping[str, Array]) -> bool:
    """Do the stored primitives serve every aggregate of the plan as well as its own price would?

    They must be comparable: bounds are not looked at again.
    """
    parts = [read_part(name) for name in primitives if name.split(" ")[0] in SHAPES]
    picks = [read_pick(name) for name in primitives if name.split(" ")[0] in PICKS]
    return all(_serves(priced, aggregate, parts, picks) for aggregate in priced.plan.aggregates)


def _same_bounds(priced: PricedPlan, name: str) -> bool:
    """Was this made under the plan's bounds, for every aggregate that could be read off it?"""
    if name.split(" ")[0] in PICKS:
        pick = read_pick(name)
        return all(_same_grid(priced, pick, a) for a in priced.plan.aggregates if pick.serves(a))
    part = read_part(name)
    return all(_same_clip(priced, part, a) for a in priced.plan.aggregates if serves(part, a))


def _same_clip(priced: PricedPlan, stored: Part, aggregate: Aggregate) -> bool:
    wanted = serving(priced.available, aggregate)
    if wanted is None or stored.clip != wanted.clip:
        return False
    if stored.bound != wanted.bound and not _finds_cap(priced, stored, aggregate):
        return False
    anywhere = aggregate.function in COUNTS or _finds_range(priced, aggregate)
    return anywhere or (stored.low, stored.high) == (wanted.low, wanted.high)


def _same_grid(priced: PricedPlan, stored: Pick, aggregate: Aggregate) -> bool:
    wanted = best(priced.chosen, aggregate)
    if wanted is None or stored.bound != wanted.bound:
        return False
    grids = [(pick.low, pick.width, pick.bins) for pick in (stored, wanted)]
    return grids[0] == grids[1] or _finds_range(priced, aggregate)


def _finds_range(priced: PricedPlan, aggregate: Aggregate) -> bool:
    measure = measure_of(priced.plan, aggregate)
    return measure is not None and measure.auto


def _finds_cap(priced: PricedPlan, part: Part, aggregate: Aggregate) -> bool:
    return part.clip == "cap" and priced.plan.bounds.unit_sum.get(aggregate.argument or "", 0) is None


def _serves(priced: PricedPlan, aggregate: Aggregate, parts: Iterable[Part], picks: Iterable[Pick]) -> bool:
    wanted = serving(priced.available, aggregate)
    if wanted is None:
        chosen, stored_pick = best(priced.chosen, aggregate), best(picks, aggregate)
        return chosen is not None and stored_pick is not None and _pick_serves(stored_pick, chosen)
    stored = serving(parts, aggregate)
    if stored is None:
        return False
    if _finds_range(priced, aggregate) or _finds_cap(priced, stored, aggregate):
        # The range or cap was found privately: the amounts decide, not the widths that it led to. A range of one
        # value leaves nothing but the count.
        alike = stored.shape == wanted.shape or stored.low == stored.high
        return stored.law == wanted.law and alike and stored.amount >= wanted.amount
    return all(
        ours <= theirs * ROUNDING
        for ours, theirs in zip(_noise(stored, aggregate), _noise(wanted, aggregate), strict=True)
    )


def _pick_serves(stored: Pick, wanted: Pick) -> bool:
    shown = bool(stored.around) or not wanted.around
    return shown and stored.typical_error <= wanted.typical_error * ROUNDING


def _noise(part: Part, aggregate: Aggregate) -> list[float]:
    """Deviations of the moments that the aggregate reads."""
    moments = part.moments
    rows: list[Row | None]
    if aggregate.function in COUNTS:
        rows = [count_row(part, aggregate)]
    elif aggregate.function == "sum":
        rows = [sum_row(part)]
    elif aggregate.function == "avg":
        rows = [moments.n, sum_row(part)]
    else:
        rows = [moments.n, sum_row(part), moments.t2]
    return [linear_noise(part, row, Fraction(1))[0] for row in rows if row is not None]
