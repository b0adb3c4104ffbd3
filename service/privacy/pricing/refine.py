"""Paying only the difference: a coarse Gaussian answer, asked again more finely.

Precision (one over the variance) adds up as rho does. When a core was released with rho0 and is wanted with
rho, fresh noise for rho - rho0 is drawn on the same exact integers, and the mean of both, weighted by
precision, has exactly the noise that rho would have bought. Nothing is lost by asking coarsely first.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from service.core.amounts import PICO
from service.core.boundary import Array, Primitive
from service.privacy.accounting.costs import share, total_cost
from service.privacy.noise.exact_integers import as_float
from service.privacy.pricing.allot import charges_of, paid_events
from service.privacy.pricing.demands import Slice
from service.privacy.pricing.priced import PricedPlan, PricedQuery, same_value
from service.privacy.primitives.noised import Part


def stored_parts(primitives: Collection[Primitive]) -> list[Part]:
    """The Gaussian parts among stored primitives: the only ones whose precision adds up."""
    return [item for item in primitives if isinstance(item, Part) and not item.law.pure]


def same_vector(one: Part, other: Part) -> bool:
    """Do both add noise to the same exact integers? Where units keep some of their groups or values, which
    ones is drawn anew: then to integers of the same law, and the mean of both is as good."""
    return replace(one, amount=Fraction(1)) == replace(other, amount=Fraction(1))


def difference(priced: PricedQuery, stored: Sequence[Collection[Primitive]]) -> PricedQuery | None:
    """The same question with only what stored releases lack, or None where nothing can be saved.

    `stored` are, for each core, the primitives released on the same rows and data version. Only declared
    keys and given bounds: what was found privately once would have to be found the same way again.
    """
    if priced.law.pure:
        return None
    plans = []
    for plan, primitives in zip(priced.plans, stored, strict=True):
        if not plan.plan.keys_declared or plan.bounds_needs:
            return None
        plans.append(without(plan, primitives))
    if all(new.slices == old.slices for new, old in zip(plans, priced.plans, strict=True)):
        return None
    events = paid_events(tuple(plans), priced.terms)
    paid = total_cost(events, priced.terms)
    return replace(priced, plans=tuple(plans), events=events, cost=paid, share=share(paid, priced.terms))


def without(plan: PricedPlan, stored: Collection[Primitive]) -> PricedPlan:
    """The slices that are still to be paid: none where the stored noise is small enough already."""
    known = stored_parts(stored)
    done = [part.demand for part, value in plan.draws.items() if value in stored]
    kept: list[Slice] = []
    for part in plan.slices:
        if part.demand.kind in ("draw", "bracket") and any(same_value(part.demand, other) for other in done):
            continue
        if part in plan.trees and all(value in stored for value in plan.trees[part].values):
            continue
        paid = 0
        if part in plan.parts:
            same = [other.amount for other in known if same_vector(plan.parts[part], other)]
            paid = int(max(same, default=Fraction(0)) * PICO)
        if paid < part.amount:
            kept.append(replace(part, amount=part.amount - paid))
    bare = replace(plan, slices=tuple(kept), charges={})
    return replace(bare, charges=charges_of(bare))


def top_up(stored: Mapping[Primitive, Array], fresh: Mapping[Primitive, Array]) -> dict[Primitive, Array]:
    """All primitives, with pairs of the same vector merged by precision.

    The merged values are no integers any more; both terms are released, so this is post-processing.
    """
    merged = dict(stored)
    for item, values in fresh.items():
        twin = finest_twin(item, stored)
        if not isinstance(item, Part) or twin is None:
            merged[item] = values
            continue
        amount = item.amount + twin.amount
        share_old, share_new = float(twin.amount / amount), float(item.amount / amount)
        del merged[twin]
        merged[replace(item, amount=amount)] = as_float(stored[twin]) * share_old + as_float(values) * share_new
    return merged


def finest_twin(item: Primitive, stored: Collection[Primitive]) -> Part | None:
    """The stored part with the least noise on the same exact integers, if precision adds up."""
    if not isinstance(item, Part) or item.law.pure:
        return None
    twins = [other for other in stored_parts(stored) if same_vector(item, other)]
    return max(twins, key=lambda part: part.amount, default=None)
