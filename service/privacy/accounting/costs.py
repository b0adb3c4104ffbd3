"""What a release costs, and how much an account may spend.

Every cost is a vector: the Rényi divergence between neighbours at each finite order of the account, then
pure epsilon (order infinity), and delta for what selecting private keys may reveal. An account accepts a
query while some order still holds (docs/mechanisms.md, "The filter"). The curves (renyi.py):

discrete Laplace      one coordinate moved by D: exact sum over the integers, closed form below
discrete Gaussian     a·D²/(2·sigma²), and no pure epsilon at all (CLOSED)
any epsilon-DP draw   the curve of randomised response, which dominates every epsilon-DP pair
exponential draw      min(epsilon, a·epsilon²/8), because its privacy loss has range epsilon

Invariant A2: a cost is never below the true value and a limit never above it. What is rational is
computed as a Fraction and rounded on the grid; exponentials and logarithms run in decimal with
GUARD added (costs) or taken away (limits) before rounding, far above the arithmetic's own error.
"""

import math
from collections.abc import Iterable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import lru_cache

from service.core.amounts import ATTO, CLOSED, PICO, Cost, Terms, cost_pico, limit_pico
from service.core.events import (
    Event,
    ExponentialEvent,
    GaussianEvent,
    GaussianSelectionEvent,
    LaplaceEvent,
    LaplaceSelectionEvent,
    LaplaceUnitsEvent,
    PureEvent,
    SelectionEvent,
)
from service.privacy.accounting.renyi import (
    DIGITS,
    GUARD,
    LOG,
    decimal_of,
    laplace_curve,
    response_renyi,
    shaved,
)

WEIGHTS = (Fraction(1, 20), Fraction(4, 5), Fraction(1, 20), Fraction(1, 20), Fraction(1, 20))
MULTIPLES = (Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4), Fraction(16))
MAIN = 1  # a* stands second
SMALLEST_ORDER = Fraction(3, 2)
ORDER_GRID = 100  # a* is a whole number of hundredths


# --- Terms and limits ------------------------------------------------------------------------------


def open_terms(epsilon_ceiling: int, delta_ceiling: int, *, keys_declared: bool) -> Terms:
    """The orders and splits of a new account (docs/mechanisms.md, "The filter"). They never change afterwards.

    Half of delta pays for selecting private keys, unless all keys are declared; the other half pays
    for turning Rényi costs into (epsilon, delta). Without delta only pure epsilon is counted.
    """
    assert epsilon_ceiling > 0
    assert 0 <= delta_ceiling < ATTO
    delta_selection = 0 if keys_declared else delta_ceiling // 2
    delta_conversion = delta_ceiling - delta_selection
    if not delta_conversion:
        return Terms((), (), epsilon_ceiling, delta_ceiling, delta_selection, reference=0)
    best = _best_order(epsilon_ceiling / PICO, float(WEIGHTS[MAIN]) * delta_conversion / ATTO)
    pairs: dict[Fraction, Fraction] = {}
    for multiple, weight in zip(MULTIPLES, WEIGHTS, strict=True):
        order = max(SMALLEST_ORDER, best * multiple)
        pairs[order] = pairs.get(order, Fraction(0)) + weight
    orders = tuple(sorted(pairs))
    weights = tuple(pairs[order] for order in orders)
    reference = orders.index(best)
    return Terms(orders, weights, epsilon_ceiling, delta_ceiling, delta_selection, reference)


def _best_order(epsilon: float, delta: float) -> Fraction:
    """The order that holds the most Gaussian queries: argmax of limit(a)/a, to the hundredth.

    Floats are enough: any order is sound, this one is merely the most useful.
    """

    def room(hundredths: int) -> float:
        a = hundredths / ORDER_GRID
        return (epsilon - math.log((a - 1) / a) + (math.log(delta) + math.log(a)) / (a - 1)) / a

    start = int(SMALLEST_ORDER * ORDER_GRID)
    coarse = sorted({start + int(1.05**i) for i in range(400)})
    peak = max(range(len(coarse)), key=lambda i: room(coarse[i]))
    low, high = coarse[max(0, peak - 1)], coarse[min(len(coarse) - 1, peak + 1)]
    while high - low > 2:  # one peak between two neighbours of the coarse one
        left, right = low + (high - low) // 3, high - (high - low) // 3
        low, high = (left, high) if room(left) < room(right) else (low, right)
    return Fraction(max(range(low, high + 1), key=room), ORDER_GRID)


@lru_cache(maxsize=1024)
def limits(terms: Terms, epsilon: int, delta: int) -> tuple[int, ...]:
    """What may be spent at each order, in pico, infinity last, when (epsilon, delta) has been granted.

    An order whose limit is negative never holds. Limits rise with the grant, so what was accepted
    under a smaller grant is within the ceiling's limits too.
    """
    assert 0 <= epsilon <= terms.epsilon_ceiling
    assert 0 <= delta <= terms.delta_ceiling
    conversion = _conversion_part(terms, delta)
    finite = tuple(
        limit_pico(shaved(LOG.subtract(Decimal(epsilon) / PICO, _conversion(order, weight * conversion))))
        if conversion
        else 1 - CLOSED  # without delta no finite order holds, and none is lower
        for order, weight in zip(terms.orders, terms.weights, strict=True)
    )
    return (*finite, epsilon)


def selection_limit(terms: Terms, delta: int) -> int:
    """The atto of delta that selecting keys may use in all, when `delta` of the ceiling has been granted."""
    return delta - _conversion_part(terms, delta) if terms.delta_selection else 0


def _conversion_part(terms: Terms, delta: int) -> int:
    if not terms.delta_ceiling:
        return 0
    return delta * terms.delta_conversion // terms.delta_ceiling


@lru_cache(maxsize=1024)
def _conversion(order: Fraction, delta_atto: Fraction) -> Decimal:
    """What turning a Rényi bound of `order` into epsilon at delta adds: log((a-1)/a) - (log d + log a)/(a-1)."""
    a, d = decimal_of(order), decimal_of(delta_atto / ATTO)
    less = LOG.subtract(a, Decimal(1))
    shrink = LOG.ln(LOG.divide(less, a))
    return LOG.subtract(shrink, LOG.divide(LOG.add(LOG.ln(d), LOG.ln(a)), less))


# --- Costs of events -------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def cost(event: Event, terms: Terms) -> Cost:
    """The cost of one event at every order of the account, rounded up."""
    orders = terms.orders
    match event:
        case LaplaceEvent(l1, scale):
            return _laplace_cost(l1, scale, orders)
        case LaplaceUnitsEvent(coordinates, scale):
            return _times(coordinates, laplace_curve(Fraction(1), scale, orders), Fraction(coordinates) / scale)
        case LaplaceSelectionEvent(coordinates, each, scale, delta):
            noise = _times(coordinates, laplace_curve(each, scale, orders), coordinates * each / scale)
            return Cost(noise.orders, _atto(delta))
        case GaussianEvent(l2_squared, sigma_squared):
            return _gaussian_cost(l2_squared, sigma_squared, orders)
        case GaussianSelectionEvent(l2_squared, sigma_squared, delta):
            return Cost(_gaussian_cost(l2_squared, sigma_squared, orders).orders, _atto(delta))
        case PureEvent(epsilon):
            return _times(1, tuple(response_renyi(epsilon, order) for order in orders), epsilon)
        case ExponentialEvent(epsilon):
            finite = (_pico(min(epsilon, order * epsilon**2 / 8)) for order in orders)
            return Cost((*finite, _pico(epsilon)))
        case SelectionEvent(groups, epsilon, delta):
            curve = tuple(response_renyi(epsilon, order) for order in orders)
            choice = _times(groups, curve, groups * epsilon)
            return Cost(choice.orders, _any_of(delta, groups))


def total_cost(events: Iterable[Event], terms: Terms) -> Cost:
    """The cost of several events together: costs add up at each order, and so do deltas."""
    result = Cost((0,) * (len(terms.orders) + 1))
    for event in events:
        result = result + cost(event, terms)
    return result


def _laplace_cost(l1: Fraction, scale: Fraction, orders: tuple[Fraction, ...]) -> Cost:
    return _times(1, laplace_curve(l1, scale, orders), l1 / scale)


def _times(count: int, curve: tuple[Decimal, ...], pure: Fraction) -> Cost:
    """`count` equal parts. No part can cost more at a finite order than it does at infinity."""
    top = _pico(pure)
    return Cost((*(min(top, cost_pico(count * value)) for value in curve), top))


def _gaussian_cost(l2_squared: Fraction, sigma_squared: Fraction, orders: tuple[Fraction, ...]) -> Cost:
    assert sigma_squared > 0
    return Cost((*(_pico(order * l2_squared / (2 * sigma_squared)) for order in orders), CLOSED))


def _pico(value: Fraction) -> int:
    assert value > 0, "a release costs something"
    return min(CLOSED, math.ceil(value * PICO))


def _atto(value: Fraction) -> int:
    assert 0 < value < 1
    return math.ceil(value * ATTO)


def _any_of(delta: Fraction, groups: int) -> int:
    """1 - (1-delta)^groups in atto, rounded up: the chance that any of independent choices fails."""
    wide = Context(prec=2 * DIGITS, Emax=MAX_EMAX, Emin=MIN_EMIN)
    stays = wide.power(wide.subtract(Decimal(1), decimal_of(delta)), groups)
    failing = wide.multiply(wide.subtract(Decimal(1), stays), 1 + GUARD)
    return math.ceil(wide.multiply(failing, Decimal(ATTO)))


# --- For quotas and prices --------------------------------------------------------------------------


def share(cost: Cost, terms: Terms) -> int:
    """The part of the ceiling's reference limit that a cost takes, in pico, rounded up."""
    limit = limits(terms, terms.epsilon_ceiling, terms.delta_ceiling)[terms.reference]
    amount = cost.orders[terms.reference]
    if amount >= CLOSED or limit <= 0:
        return CLOSED
    return min(CLOSED, -(-amount * PICO // limit))
