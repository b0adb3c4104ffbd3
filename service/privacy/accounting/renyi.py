"""Rényi divergences between neighbours, as functions of the order: upper bounds in decimal.

Rational curves (Gaussian, exponential) are plain fractions and live in costs.py. The two here need
exponentials and logarithms. GUARD is added before a cost is rounded up and taken away before a limit is
rounded down; the arithmetic itself errs by less than 1e-35 of one.
"""

import math
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import lru_cache

DIGITS = 50
GUARD = Decimal("1e-25")
LOG = Context(prec=36, Emax=MAX_EMAX, Emin=MIN_EMIN)


@lru_cache(maxsize=4096)
def laplace_curve(l1: Fraction, scale: Fraction, orders: tuple[Fraction, ...]) -> tuple[Decimal, ...]:
    """The Rényi divergence of discrete Laplace noise when the vector moves by L1 <= `l1`, at every order: upper bounds.

    With t = e**(-1/scale) and one coordinate moved by D the sum of P^a·Q^(1-a) over the integers is
    [ (1-t^2a)/(1-t^(2a-1))·t^(-(a-1)D) + (t-t^(2a-1))/(1-t^(2a-1))·t^(aD) ] / (1+t).
    Its logarithm is convex in D and 0 at D = 0, so moving one coordinate by all of L1 is the worst case.
    1 - t^2a loses as many digits as the scale has, so that many are added.
    """
    moved = math.ceil(l1)
    digits = DIGITS + len(str(int(scale)))
    wide = Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN)
    step = wide.divide(Decimal(scale.denominator), Decimal(scale.numerator))
    t = wide.exp(step.copy_negate())
    shift = wide.exp(wide.multiply(step, Decimal(moved)))  # t^-D
    curve = []
    for order in orders:
        a = wide.divide(Decimal(order.numerator), Decimal(order.denominator))
        decay = wide.exp(wide.multiply(wide.multiply(step, a), Decimal(-2)))  # t^2a
        shorter = wide.divide(decay, t)  # t^(2a-1)
        grown = wide.exp(wide.multiply(wide.multiply(step, a), Decimal(moved)))  # t^-aD
        ahead = wide.multiply(wide.subtract(Decimal(1), decay), wide.divide(grown, shift))
        behind = wide.divide(wide.subtract(t, shorter), grown)
        below = wide.multiply(wide.subtract(Decimal(1), shorter), wide.add(Decimal(1), t))
        total = wide.divide(wide.add(ahead, behind), below)
        curve.append(guarded(LOG.divide(_log_near_one(total, wide), LOG.subtract(a, Decimal(1)))))
    return tuple(curve)


def response_renyi(epsilon: Fraction, order: Fraction) -> Decimal:
    """The curve of randomised response: no epsilon-DP pair diverges more, at any order.

    log[ (e^(a·epsilon) + e^((1-a)·epsilon)) / (1 + e^epsilon) ] / (a-1).
    """
    a, e = decimal_of(order), decimal_of(epsilon)
    wide = Context(prec=DIGITS, Emax=MAX_EMAX, Emin=MIN_EMIN)
    up = wide.exp(wide.multiply(a, e))
    grown = wide.exp(e)
    total = wide.divide(wide.add(up, wide.divide(grown, up)), wide.add(Decimal(1), grown))
    return guarded(LOG.divide(_log_near_one(total, wide), LOG.subtract(a, Decimal(1))))


def _log_near_one(value: Decimal, wide: Context) -> Decimal:
    """log(value) to an absolute error far below GUARD: log(1 + x) by its series when x is tiny."""
    excess = wide.subtract(value, Decimal(1))
    if excess < Decimal("1e-13"):  # x - x²/2 <= log(1+x) <= x - x²/2 + x³/3
        square = wide.multiply(excess, excess)
        return LOG.plus(wide.add(excess, wide.multiply(square, wide.subtract(excess / 3, Decimal("0.5")))))
    return LOG.ln(LOG.plus(value))


def guarded(value: Decimal) -> Decimal:
    """A little above: for costs."""
    return LOG.multiply(LOG.add(max(value, Decimal(0)), GUARD), 1 + GUARD)


def shaved(value: Decimal) -> Decimal:
    """A little below: for limits. (A negative limit holds nothing, however it is rounded.)"""
    return LOG.multiply(LOG.subtract(value, GUARD), 1 - GUARD)


def decimal_of(value: Fraction) -> Decimal:
    return Context(prec=DIGITS, Emax=MAX_EMAX, Emin=MIN_EMIN).divide(
        Decimal(value.numerator), Decimal(value.denominator)
    )
