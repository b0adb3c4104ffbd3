"""Paying only the difference: a coarse Gaussian answer, asked again more finely.

Precision (one over the variance) adds up as rho does. When a core was released with rho0 and is wanted with
rho, fresh noise for rho - rho0 is drawn on the same exact integers, and the mean of both, weighted by
precision, has exactly the noise that rho would have bought. Nothing is lost by asking coarsely first.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from service.core.amounts import PICO
from service.core.boundary import Array
from service.privacy.accounting.costs import share, total
from service.privacy.noise.exact_integers import as_float
from service.privacy.pricing.allot import charges_of, paid_events
from service.privacy.pricing.demands import Slice
from service.privacy.pricing.priced import PricedPlan, PricedQuery, same_value
from service.privacy.primitives.noised import SHAPES, Part, read_part


def stored_parts(names: Collection[str]) -> list[Part]:
    """The Gaussian parts among stored primitives: the only ones whose precision adds up."""
    parts = [read_part(name) for name in names if name.split(" ")[0] in SHAPES]
    return [part for part in parts if part.law == "gaussian"]


def same_vector(one: Part, other: Part) -> bool:
    """Do both add noise to the same exact integers? Where units keep some of their groups or values, which
    ones is drawn anew: then to integers of the same law, and the mean of both is as good."""
    return replace(one, amount=Fraction(1)) == replace(other, amount=Fraction(1))


def difference(priced: PricedQuery, stored: Sequence[Collection[str]]) -> PricedQuery | None:
    """The same question with only what stored releases lack, or None where nothing can be saved.

    `stored` names, for each core, the primitives released on the same rows and data version. Only declared
    keys and given bounds: what was found privately once would have to be found the same way again.
    """
    if priced.law != "gaussian":
        return None
    plans = []
    for plan, names in zip(priced.plans, stored, strict=True):
        if not plan.plan.keys_declared or plan.bounds_needs:
            return None
        plans.append(without(plan, names))
    if all(new.slices == old.slices for new, old in zip(plans, priced.plans, strict=True)):
        return None
    events = paid_events(tuple(plans), priced.terms)
    paid = total(events, priced.terms)
    return replace(priced, plans=tuple(plans), events=events, cost=paid, share=share(paid, priced.terms))


def without(plan: PricedPlan, names: Collection[str]) -> PricedPlan:
    """The slices that are still to be paid: none where the stored noise is small enough already."""
    known, picked = stored_parts(names), set(names)
    done = [part.demand for part, pick in plan.picks.items() if pick.name in picked]
    kept: list[Slice] = []
    for part in plan.slices:
        if part.demand.kind in ("pick", "bracket") and any(same_value(part.demand, other) for other in done):
            continue
        if part in plan.trees and all(pick.name in picked for pick in plan.trees[part].picks):
            continue
        paid = 0
        if part in plan.parts:
            same = [other.amount for other in known if same_vector(plan.parts[part], other)]
            paid = int(max(same, default=Fraction(0)) * PICO)
        if paid < part.amount:
            kept.append(replace(part, amount=part.amount - paid))
    bare = replace(plan, slices=tuple(kept), charges={})
    return replace(bare, charges=charges_of(bare))


def top_up(stored: Mapping[str, Array], fresh: Mapping[str, Array]) -> dict[str, Array]:
    """All primitives, with pairs of the same vector merged by precision.

    The merged values are no integers any more; both terms are released, so this is post-processing.
    """
    merged = dict(stored)
    for name, values in fresh.items():
        part = read_part(name) if name.split(" ")[0] in SHAPES else None
        known = stored_parts(stored) if part is not None and part.law == "gaussian" else []
        twin = max(
            (other for other in known if part and same_vector(part, other)), key=lambda p: p.amount, default=None
        )
        if part is None or twin is None:
            merged[name] = values
            continue
        whole = part.amount + twin.amount
        share_old, share_new = float(twin.amount / whole), float(part.amount / whole)
        del merged[twin.name]
        merged[replace(part, amount=whole).name] = (
            as_float(stored[twin.name]) * share_old + as_float(values) * share_new
        )
    return merged
