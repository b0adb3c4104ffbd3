"""What a question costs: a pure function of the request, the declarations and the account's terms.

`epsilon` buys pure mechanisms with exactly that total, `rho` Gaussian noise with exactly that total. For
an accuracy or a share of the budget both are priced and the better one is taken.
"""

from collections.abc import Callable
from fractions import Fraction
from math import log

from service.core.aggregates import ReleasedAs
from service.core.amounts import ATTO, PICO, Terms
from service.core.errors import ConstructRefused, LossOutOfRange
from service.core.plan import Aggregate, Loss, Output, Query
from service.privacy.accounting.costs import limits, share, total_cost
from service.privacy.noise.laws import GAUSSIAN, LAPLACE, Law
from service.privacy.pricing.allot import all_demands, allot, delta_of, paid_events, price_at, refuse_l2, unknown_bounds
from service.privacy.pricing.demands import Slice, share_out
from service.privacy.pricing.predict import log_error, predict
from service.privacy.pricing.priced import PricedPlan, PricedQuery


def price(query: Query, loss: Loss, terms: Terms) -> PricedQuery:
    """Mechanisms, amounts, cost and predicted widths of one question."""
    if all(plan.keys_declared and not plan.aggregates for plan in query.cores):
        raise ConstructRefused(
            "this asks for declared group keys and nothing else: they are public, no data is needed to list them",
            {"construct": "GROUP BY", "remedy": "add an aggregate such as COUNT(*), or read the dataset's declaration"},
        )
    match loss.kind:
        case "epsilon":
            return price_at(query, LAPLACE, loss.amount, loss, terms)
        case "rho":
            if not terms.orders:
                raise LossOutOfRange(
                    "this dataset's budget has delta 0, so it can only pay for pure epsilon",
                    {"field": "rho", "remedy": "give epsilon instead of rho"},
                )
            return price_at(query, GAUSSIAN, loss.amount, loss, terms)
        case "share":
            return price_share(query, loss, terms)
        case "accuracy":
            return price_accuracy(query, loss, terms)


def laws(query: Query, terms: Terms) -> tuple[Law, ...]:
    """What may be chosen from: no Gaussian noise without delta, none but Gaussian with clip l2."""
    if any(plan.bounds.clip == "l2" for plan in query.cores):
        return (GAUSSIAN,) if terms.orders else ()
    return (LAPLACE, GAUSSIAN) if terms.orders else (LAPLACE,)


def price_share(query: Query, loss: Loss, terms: Terms) -> PricedQuery:
    """The most accurate answer for a share of the budget."""
    if loss.amount > PICO:
        raise LossOutOfRange("share may be at most 1", {"field": "share"})
    offers = [offer for law in laws(query, terms) if (offer := largest_within(query, law, loss, terms))]
    if not offers:
        raise LossOutOfRange(
            "that share is too small for this query", {"field": "share", "remedy": "give a larger share"}
        )
    return min(offers, key=error_of)


def error_of(priced: PricedQuery) -> float:
    total_error = 0.0
    for plan in priced.plans:
        parts, chosen = plan.available, plan.chosen_values
        total_error += sum(log_error(plan.plan, parts, chosen, aggregate) for aggregate in plan.plan.aggregates)
    return total_error


def largest_within(query: Query, law: Law, loss: Loss, terms: Terms) -> PricedQuery | None:
    """The largest amount whose share is within the one offered, to a part in ten thousand.

    A share grows at least as the amount and at most as its square, so a first guess by the larger of the
    two is never too large, and each further step follows the slope seen so far.
    """

    def share_at(amount: int) -> int:
        return share(total_cost(paid_events(allot(query, law, amount, loss, terms), terms), terms), terms)

    limit = limits(terms, terms.epsilon_ceiling, terms.delta_ceiling)[terms.reference]
    order = terms.orders[terms.reference] if terms.reference < len(terms.orders) else Fraction(1)
    guess = int(Fraction(loss.amount * limit, PICO) / law.cost_at(order))
    best, seen, slope = 0, (0, 0), 2 / law.power
    for _ in range(20):
        try:
            taken = share_at(guess)
        except LossOutOfRange:
            break
        if seen[1] and guess != seen[0] and taken != seen[1]:
            slope = min(2.0, max(1.0, log(taken / seen[1]) / log(guess / seen[0])))
        seen = (guess, taken)
        if taken <= loss.amount:
            best = max(best, guess)
            if taken >= loss.amount - loss.amount // 10_000 - 1:
                break
        guess = int(guess * (loss.amount / taken * 0.99998) ** (1 / slope))
    return price_at(query, law, best, loss, terms) if best else None


def accuracy_target(query: Query, loss: Loss) -> tuple[int, Aggregate]:
    """The aggregate whose width was asked for, or why no width can be promised."""
    assert loss.accuracy is not None
    name = loss.accuracy.output
    output: Output | None = next((o for o in query.outer.outputs if o.name == name), None)
    if output is None:
        raise LossOutOfRange(f"accuracy names {name!r}, which is not an output of the query", {"field": "accuracy"})
    if output.direct is None or output.role == "key":
        raise LossOutOfRange(
            f"the width of {name!r} can not be known in advance: it is not one aggregate",
            {"field": "accuracy", "remedy": "name an output that is a COUNT or SUM by itself, or give epsilon"},
        )
    core, column = output.direct
    aggregate = next((a for a in query.cores[core].aggregates if a.name == column), None)
    if aggregate is None or aggregate.function.released_as is ReleasedAs.CHOSEN:
        raise LossOutOfRange(
            f"the width of {name!r} depends on the data",
            {"field": "accuracy", "remedy": "name an output that is a COUNT or SUM, or give epsilon"},
        )
    if any(unknown_bounds(plan, a) for plan in query.cores for a in plan.aggregates):
        raise LossOutOfRange(
            "a query that must first find its bounds can not be priced by accuracy",
            {"field": "accuracy", "remedy": "give the bounds of the columns, or give epsilon"},
        )
    return core, aggregate


def price_accuracy(query: Query, loss: Loss, terms: Terms) -> PricedQuery:
    """The cheapest price at which an output is as accurate as asked."""
    accuracy_target(query, loss)
    offers = [price_at(query, law, cheapest(query, law, loss, terms), loss, terms) for law in laws(query, terms)]
    if not offers:
        refuse_l2(query)
    return min(offers, key=lambda offer: offer.share)


def cheapest(query: Query, law: Law, loss: Loss, terms: Terms) -> int:
    """The smallest amount, to a part in a million, whose predicted half-width is within the target."""
    asked = loss.accuracy
    assert asked is not None
    core, aggregate = accuracy_target(query, loss)
    target, confidence, plan = float(asked.half_width), float(asked.confidence), query.cores[core]
    if not target > 0 or not 0 < confidence < 1:
        raise LossOutOfRange(
            "accuracy needs a half-width above 0 and a confidence between 0 and 1", {"field": "accuracy"}
        )
    slices = share_out(PICO, all_demands(query, law, loss))
    mine = tuple(part for part in slices if part.core == core)
    delta = Fraction(delta_of(query, loss, core), ATTO)

    def width(amount: int) -> float:
        sized = tuple(Slice(part.core, part.demand, max(1, part.amount * amount // PICO)) for part in mine)
        sketch = PricedPlan(plan, law, sized, {}, {}, terms, delta)
        found = predict(plan, sketch.available, aggregate, confidence).half_width_95
        if found is None:
            raise LossOutOfRange(
                "the width of this output depends on how many rows a group has",
                {"field": "accuracy", "remedy": "declare expected_rows and expected_groups, or give epsilon"},
            )
        return found

    amount = bisect(width, target, law.power)
    return amount + amount // 10**9 + len(mine)  # division may round a slice down by a pico


def bisect(width: Callable[[int], float], target: float, power: int) -> int:
    """The least amount, to a part in a million, whose width is within the target.

    Widths fall as 1/epsilon or 1/sqrt(rho), exactly so but for whole numbers with small noise; so the
    bracket opens around that guess, each time four times as wide, and then closes.
    """
    top = 10**6 * PICO
    guess = max(1, int(min(PICO * (width(PICO) / target) ** power, top)))
    gap = guess // 10**7 + 1
    low, high = max(1, guess - gap), guess + gap
    while width(high) > target:
        if high >= top:
            raise LossOutOfRange(
                "no amount of privacy buys that accuracy", {"field": "accuracy", "remedy": "ask for a wider half-width"}
            )
        gap *= 4
        low, high = high, high + gap
    while low > 1 and width(low) <= target:
        gap *= 4
        low, high = max(1, low - gap), low
    while high - low > max(1, high // 10**6):
        middle = (low + high) // 2
        low, high = (low, middle) if width(middle) <= target else (middle, high)
    return high
