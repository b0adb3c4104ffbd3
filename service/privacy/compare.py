"""Is a stored release at least as good as what a price would buy? Free replay depends on it.

Compared are what the names of parts and picks say: the same clipping, the same range, and no more noise
in any moment that an aggregate reads. Values are not looked at.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction

from service.core.boundary import Array
from service.core.plan import Aggregate
from service.privacy.derive import COUNTS, count_row, linear_noise, measure_of, serving, sum_row
from service.privacy.mechanisms.shape import Row
from service.privacy.parts import SHAPES, Part, read_part
from service.privacy.picks import PICKS, Pick, best, read_pick
from service.privacy.priced import PricedPlan

ROUNDING = 1 + 1e-9  # predicted deviations are floats; a price that differs by less is the same price


def no_worse(priced: PricedPlan, primitives: Mapping[str, Array]) -> bool:
    """Do the stored primitives serve every aggregate of the plan as well as its own price would?"""
    parts = [read_part(name) for name in primitives if name.split(" ")[0] in SHAPES]
    picks = [read_pick(name) for name in primitives if name.split(" ")[0] in PICKS]
    return all(_serves(priced, aggregate, parts, picks) for aggregate in priced.plan.aggregates)


def _serves(priced: PricedPlan, aggregate: Aggregate, parts: Iterable[Part], picks: Iterable[Pick]) -> bool:
    wanted = serving(priced.available, aggregate)
    if wanted is None:
        chosen, stored_pick = best(priced.chosen, aggregate), best(picks, aggregate)
        return chosen is not None and stored_pick is not None and _pick_serves(stored_pick, chosen)
    stored = serving(parts, aggregate)
    if stored is None or stored.clip != wanted.clip:
        return False
    measure = measure_of(priced.plan, aggregate)
    found_cap = stored.clip == "cap" and priced.plan.bounds.unit_sum.get(aggregate.argument or "") is None
    if measure is not None and (measure.auto or found_cap):
        # The range or cap was found privately: the amounts decide, not the widths that it led to.
        return stored.law == wanted.law and stored.shape == wanted.shape and stored.amount >= wanted.amount
    counted = aggregate.function in COUNTS  # whatever range the sums beside it have
    if stored.bound != wanted.bound or not (counted or (stored.low, stored.high) == (wanted.low, wanted.high)):
        return False
    return all(
        ours <= theirs * ROUNDING
        for ours, theirs in zip(_noise(stored, aggregate), _noise(wanted, aggregate), strict=True)
    )


def _pick_serves(stored: Pick, wanted: Pick) -> bool:
    same = (stored.low, stored.width, stored.bins, stored.bound) == (
        wanted.low,
        wanted.width,
        wanted.bins,
        wanted.bound,
    )
    shown = bool(stored.around) or not wanted.around
    return same and shown and stored.typical_error <= wanted.typical_error * ROUNDING


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
