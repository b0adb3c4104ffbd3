"""From demands to charges: how much each draw gets, and what the account pays for it. Pure."""

from dataclasses import replace
from fractions import Fraction

from service.core.amounts import ATTO, PICO, Terms, show_pico
from service.core.errors import BoundsMissing, LossOutOfRange
from service.core.events import Event, GaussianEvent, GaussianSelectionEvent, PureEvent
from service.core.plan import Aggregate, Loss, Plan, Query
from service.privacy.accounting.costs import share, total_cost
from service.privacy.noise.laws import Law
from service.privacy.pricing.demands import Demand, Slice, keys_demand, output_weights, share_out, value_demands
from service.privacy.pricing.describe import describe
from service.privacy.pricing.predict import predict
from service.privacy.pricing.priced import Prediction, PricedPlan, PricedQuery

ROWS_MAX = 2**31


def refuse_l2(query: Query) -> None:
    if any(plan.bounds.clip == "l2" for plan in query.cores):
        raise LossOutOfRange(
            "clip l2 bounds a unit's contribution for Gaussian noise, not for pure epsilon",
            {"field": "epsilon", "remedy": "give rho instead of epsilon, or clip l1"},
        )


def delta_of(query: Query, loss: Loss, core: int) -> int:
    """The delta of one core, in atto: only private keys need any, and they share it."""
    selecting = [at for at, plan in enumerate(query.cores) if not plan.keys_declared]
    return loss.delta // len(selecting) if core in selecting else 0


def all_demands(query: Query, law: Law, loss: Loss) -> list[tuple[int, Demand]]:
    demands = []
    for core, plan in enumerate(query.cores):
        wanted = value_demands(plan, law, output_weights(query, loss, core))
        if not plan.keys_declared:
            delta = delta_of(query, loss, core)
            if not delta:
                raise LossOutOfRange(
                    "selecting group keys that are not declared needs a delta",
                    {"field": "delta", "remedy": "give a delta, or declare the keys (a domain, or key IN (…))"},
                )
            wanted.append(keys_demand(plan, law, wanted, delta / ATTO))
        demands += [(core, demand) for demand in wanted]
    return demands


def check_bounds(plan: Plan) -> None:
    """Bounds that bound something: nothing below one row, one group, one step."""
    bounds = plan.bounds
    for name, value in (("rows_per_unit", bounds.rows_per_unit), ("groups_per_unit", bounds.groups_per_unit)):
        if not 1 <= value <= ROWS_MAX:
            raise BoundsMissing(f"{name} must be between 1 and {ROWS_MAX}", {"field": name})
    for name, cap in bounds.unit_sum.items():
        if cap is not None and cap <= 0:
            label = next((measure.label for measure in plan.measures if measure.name == name), name)
            raise BoundsMissing(f"the cap of a unit's sum of {label} must be above zero", {"field": "unit_sum"})
    for measure in plan.measures:
        if measure.low > measure.high:
            raise BoundsMissing(f"the lower bound of {measure.label} is above the upper one", {"field": "columns"})


def price_at(query: Query, law: Law, amount: int, loss: Loss, terms: Terms) -> PricedQuery:
    """The price with a known total: pico of epsilon or rho, whatever the law is paid in."""
    if amount <= 0:
        raise LossOutOfRange(f"{loss.kind} must be above zero", {"field": loss.kind})
    if law.pure:
        refuse_l2(query)
    for plan in query.cores:
        check_bounds(plan)
    if not terms.delta_selection and not all(plan.keys_declared for plan in query.cores):
        raise LossOutOfRange(
            "this dataset's budget has no delta for selecting group keys",
            {"field": "delta", "remedy": "declare the keys: a domain, a public table, or key IN (…)"},
        )
    plans = tuple(with_predictions(plan) for plan in allot(query, law, amount, loss, terms))
    events = paid_events(plans, terms)
    paid = total_cost(events, terms)
    if law.pure:
        assert paid.orders[-1] <= amount, "pure epsilon never exceeds what was asked"
    return PricedQuery(
        plans, law, amount, events, paid, share(paid, terms),
        tuple(line for plan in plans for line in describe(plan)),
        tuple(note for plan in plans for note in notes_of(plan)),
        terms,
    )  # fmt: skip


def allot(query: Query, law: Law, amount: int, loss: Loss, terms: Terms) -> tuple[PricedPlan, ...]:
    """Every core with its slices, before anything is charged."""
    slices = share_out(amount, all_demands(query, law, loss))
    plans = []
    for core, plan in enumerate(query.cores):
        mine = tuple(part for part in slices if part.core == core)
        delta = Fraction(delta_of(query, loss, core), ATTO)
        bare = PricedPlan(plan, law, mine, {}, {}, terms, delta)
        plans.append(replace(bare, charges=charges_of(bare)))
    return tuple(plans)


def with_predictions(priced: PricedPlan) -> PricedPlan:
    """The same, with what is known of each aggregate's noise."""
    plan = priced.plan
    parts = priced.available
    widths = {a.name: Prediction() if unknown_bounds(plan, a) else predict(plan, parts, a) for a in plan.aggregates}
    return replace(priced, predictions=widths)


def unknown_bounds(plan: Plan, aggregate: Aggregate) -> bool:
    """Must something be found before the noise of this aggregate is known?"""
    if aggregate.function.counts:
        return False
    auto = any(measure.name == aggregate.argument and measure.auto for measure in plan.measures)
    capped = aggregate.function.additive and plan.bounds.unit_sum.get(aggregate.argument or "", 0) is None
    return auto or capped


def charges_of(priced: PricedPlan) -> dict[Slice, Event]:
    """What each slice is charged as. Where bounds are still to be found the charge must cover whatever they
    turn out to be: any epsilon-DP draw; a Gaussian's cost does not depend on them."""
    plan, law = priced.plan, priced.law
    auto = {measure.name for measure in plan.measures if measure.auto}
    charges: dict[Slice, Event] = {}
    for part, drawn in priced.parts.items():
        open_cap = part.demand.kind == "capped" and plan.bounds.unit_sum[part.demand.source] is None
        is_open = law.pure and (part.demand.source in auto or open_cap)
        charges[part] = PureEvent(Fraction(part.amount, PICO)) if is_open else drawn.event
    for part, value in priced.draws.items():
        charges[part] = value.event
    for part, bracket in priced.brackets.items():
        charges[part] = bracket.event
    for part, tree in priced.trees.items():
        is_open = law.pure and part.demand.source in auto  # fewer bins, fewer levels
        charges[part] = PureEvent(Fraction(part.amount, PICO)) if is_open else tree.event
    for part, draw in priced.bounds_stage.items():
        charges[part] = draw.event
    if priced.keys_stage is not None:
        part, rule = priced.keys_stage
        charges[part] = rule.event
    return charges


def paid_events(plans: tuple[PricedPlan, ...], terms: Terms) -> tuple[Event, ...]:
    """The events that are charged: one for each family, and all Gaussian noise as one vector.

    Gaussian coordinates in units of their own deviation add up to one vector, so that rounding up happens
    once and the total is exactly a·rho.
    """
    events: list[Event] = []
    for plan in plans:
        families: dict[str, dict[str, list[Slice]]] = {}
        for part, charge in plan.charges.items():
            if part.demand.family is None:
                events.append(charge)
            else:
                family, member = part.demand.family
                families.setdefault(family, {}).setdefault(member, []).append(part)
        for members in families.values():
            events += costliest(plan, list(members.values()), terms)
    noise = [event for event in events if isinstance(event, GaussianEvent | GaussianSelectionEvent)]
    rest = [event for event in events if not isinstance(event, GaussianEvent | GaussianSelectionEvent)]
    return (*one_vector(noise), *rest)


def costliest(plan: PricedPlan, members: list[list[Slice]], terms: Terms) -> list[Event]:
    """What covers every member of a family at every order.

    Under rho no member costs more than a·rho of its amount. Under epsilon it is the member that costs most at
    every order, or, where none does, a pure charge, which no epsilon-DP draw exceeds.
    """
    most = Fraction(max(sum(part.amount for part in slices) for slices in members), PICO)
    if not plan.law.pure:
        return [GaussianEvent(2 * most, Fraction(1))]
    charges = [[plan.charges[part] for part in slices] for slices in members]
    costs = [total_cost(events, terms) for events in charges]
    top = tuple(max(orders) for orders in zip(*(paid.orders for paid in costs), strict=True))
    for events, paid in zip(charges, costs, strict=True):
        if paid.orders == top:
            return events
    return [PureEvent(most)]


def one_vector(noise: list[GaussianEvent | GaussianSelectionEvent]) -> list[Event]:
    ratio = sum((event.l2_squared / event.sigma_squared for event in noise), Fraction(0))
    delta = sum((event.delta for event in noise if isinstance(event, GaussianSelectionEvent)), Fraction(0))
    if not noise:
        return []
    return [GaussianSelectionEvent(ratio, Fraction(1), delta) if delta else GaussianEvent(ratio, Fraction(1))]


def notes_of(plan: PricedPlan) -> list[str]:
    notes = []
    if plan.keys_stage is not None:
        rule = plan.keys_stage[1]
        notes.append(f"Group keys are private: a group is shown from about {rule.people_needed:.0f} people on.")
    for part in plan.of("bounds"):
        label = next(m.label for m in plan.plan.measures if m.name == part.demand.source)
        notes.append(f"Bounds of {label} are found privately first, for {show_pico(part.amount)} of the amount.")
    for part in plan.of("totals"):
        label = next(m.label for m in plan.plan.measures if m.name == part.demand.source)
        notes.append(f"The cap of a unit's sum of {label} is found privately first.")
    return notes
