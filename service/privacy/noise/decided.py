"""Decided comparisons: the arithmetic under the samplers.

A sampler asks one kind of question: is a uniform real U below a probability p? U is read as random
bits, as many as the answer needs. With the first `known` bits at hand U lies in
[prefix, prefix + 1) / 2**known, and p lies in an interval that is proved. When the two do not overlap the
answer is certain; when they do, more bits are drawn and p is computed more closely. Nothing is ever
rounded to a decision, so the law that comes out is the law on paper.

Invariant X1: a float decides only outside BAND of the compared probability. Every float here is
made of IEEE-754 additions, multiplications and divisions and of constants rounded from exact
values; the longest chain errs by less than 2**-44 (derived beside it), BAND is 2**-40. No libm
function is trusted.
"""

from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from math import factorial

import numpy as np
import numpy.typing as npt

from service.core.boundary import Floats

Words = npt.NDArray[np.uint64]
BoundsByBits = Callable[[int], tuple[int, int]]

WORD_BITS = 64
BAND = 2.0**-40

# A geometric draw is split into digits: the high digit comes from a table, the low one by rejection.
BLOCKS_PER_SCALE = 16
TABLE_DEPTH = 8  # the table ends where e**-8 of the mass is left; beyond, the law repeats itself


def lies_below(prefix: int, known: int, bounds: BoundsByBits, more: Callable[[int], int]) -> bool:
    """Whether U < p, where the first `known` bits of U are `prefix` and `more(k)` draws k further bits.

    `bounds(k)` returns integers low <= p·2**k <= high. It ends with probability 1: each round
    leaves the answer open with a chance of about 2**-62.
    """
    while True:
        low, high = bounds(known)
        if prefix + 1 <= low:
            return True
        if prefix >= high:
            return False
        prefix = prefix << WORD_BITS | more(WORD_BITS)
        known += WORD_BITS


def exp_bounds(x: Fraction, bits: int) -> tuple[int, int]:
    """Integers low <= e**-x · 2**bits <= high, at most 3 apart, for x >= 0.

    Quotient, exp and product are each correctly rounded to relative 5·10**-prec, and an error in x
    moves e**-x by at most x·e**-x < 1/2 of it. With prec >= 0.31·bits + 4 all of them together stay
    below 15·10**-4 after scaling by 2**bits.
    """
    assert x >= 0
    if x == 0:
        return 1 << bits, 1 << bits
    if x > bits:  # e**-x < 2**-bits
        return 0, 1
    context = Context(prec=bits * 31 // 100 + 5, Emax=MAX_EMAX, Emin=MIN_EMIN)
    exponent = context.divide(Decimal(-x.numerator), Decimal(x.denominator))
    scaled = int(context.multiply(context.exp(exponent), Decimal(1 << bits)))
    return max(0, scaled - 1), scaled + 2


def nonnegative_bounds(scale: Fraction, bits: int) -> tuple[int, int]:
    """Bounds of 1/(1 + t), t = e**(-1/scale): the chance that discrete Laplace noise is not below zero."""
    low, high = exp_bounds(1 / scale, bits + 4)
    one = 1 << (bits + 4)
    return (one << bits) // (one + high), -((-one << bits) // (one + low))


@lru_cache(maxsize=512)
def nonnegative_threshold(scale: Fraction) -> int:
    """floor(2**64/(1 + t)): a word below it decides yes, above it no, equal needs more bits.

    When t < 2**-64 (1/scale above 64·log 2) the quotient lies between 2**64 - 1 and 2**64.
    """
    if 1 / scale > 45:
        return (1 << WORD_BITS) - 1
    return exact_floor(lambda bits: nonnegative_bounds(scale, bits))


def exact_floor(bounds: BoundsByBits) -> int:
    """floor(p·2**64), from bounds close enough that only one integer is possible."""
    bits = WORD_BITS
    while True:
        bits += WORD_BITS
        low, high = (bound >> (bits - WORD_BITS) for bound in bounds(bits))
        if low == high:
            return low


@lru_cache(maxsize=512)
def geometric_table(rate: Fraction) -> Words:
    """floor(e**(-k·rate)·2**64) for k = n … 1, in rising order.

    A geometric G with P[G >= k] = e**(-k·rate) is the number of k with U < e**(-k·rate). The powers are
    products of 256-bit integers that are only ever rounded down: product k is low by at most 4k, so its
    floor is proved unless a multiple of 2**192 lies that close above it; then it is computed by itself.
    """
    entries = max(1, min(int(TABLE_DEPTH / rate), TABLE_DEPTH * 2 * BLOCKS_PER_SCALE))
    bits = 256
    ratio, _ = exp_bounds(rate, bits)
    power, table = 1 << bits, []
    for k in range(1, entries + 1):
        power = power * ratio >> bits
        low, high = power >> (bits - WORD_BITS), (power + 4 * k + 4) >> (bits - WORD_BITS)
        table.append(low if low == high else exact_floor(lambda b, k=k: exp_bounds(k * rate, b)))  # type: ignore[misc]
    result = np.array(table[::-1], dtype=np.uint64)
    result.setflags(write=False)
    return result


def block_bits(scale: Fraction) -> int:
    """j such that 2**j <= scale/16 (0 for small scales): the low digit of a geometric draw has j bits."""
    return max(0, (int(scale) // BLOCKS_PER_SCALE).bit_length() - 1)


# --- e**-x in floats, with a proved error ----------------------------------------------------------

_STEPS = 16  # the table of e**-x has a knot every 1/16
FLAT = 1 / _STEPS
_LARGEST = 128  # beyond it e**-x < 2**-184


def _knots() -> Floats:
    context = Context(prec=40)
    return np.array([float(context.exp(Decimal(-k) / _STEPS)) for k in range(_STEPS * _LARGEST + 2)])


_KNOTS = _knots()
_COEFFICIENTS = tuple(float(Fraction((-1) ** k, factorial(k))) for k in range(10))


def exp_small(x: Floats) -> Floats:
    """e**-x for 0 <= x <= 1/16 (+ rounding): absolute and relative error below 2**-50.

    Ten Taylor terms leave less than 16**-10/10! < 2**-61; Horner's rule on numbers of at most 1 adds at
    most two roundings a step, each damped by x <= 1/16 from the second step on: below 3·2**-53.
    """
    result: Floats = np.full_like(x, _COEFFICIENTS[-1])
    for coefficient in _COEFFICIENTS[-2::-1]:
        result *= x
        result += coefficient
    return result


def exp_minus(x: Floats) -> Floats:
    """e**-x for x >= 0: relative error below 2**-48 up to 128, absolute below 2**-180 everywhere.

    x = k/16 + rest with both parts exact (k/16 is a double, and subtracting it from x loses nothing);
    the knot is off by 2**-53, exp_small by 2**-50, their product by another 2**-53.
    """
    capped = np.minimum(x, float(_LARGEST))
    knot = (capped * _STEPS).astype(np.int64)
    rest: Floats = capped - knot / float(_STEPS)
    result: Floats = _KNOTS[knot] * exp_small(rest)
    return result


def unit_interval(words: Words) -> Floats:
    """The first 53 bits of each word as a double in [0, 1): exact; U lies within 2**-53 above it."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
