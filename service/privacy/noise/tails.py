"""Thresholds that are proved: tails of the noise, rounded against ourselves.

Invariant A3: whatever is returned as "passes with probability at most q" is at most q. Floats only guess;
decimal arithmetic of 80 digits confirms, with a guard far above its own error.
"""

import math
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

_EIGHTY = Context(prec=80, Emax=MAX_EMAX, Emin=MIN_EMIN)
_GUARD = Decimal("1e-27")
_TAIL_GUARD = Decimal("1e-45")
_ROOT_TWO_PI = _EIGHTY.sqrt(
    Decimal("6.28318530717958647692528676655900576839433879875021164194988918461563281257241799725606965")
)
_Z_GRID = 2**40


@lru_cache(maxsize=4096)
def each_of(delta: Fraction, groups: int) -> Fraction:
    """q with 1 - (1-q)^groups <= delta: what each of `groups` independent choices may risk.

    Shaved by a factor of 1 - 1e-20, so that putting the choices together again rounds to delta at most.
    """
    assert 0 < delta < 1
    assert groups >= 1
    with localcontext(_EIGHTY):
        stays = ((1 - _decimal(delta)).ln() / groups).exp()
        shaved = (1 - stays) * (1 - Decimal("1e-20"))
        return Fraction(shaved.quantize(Decimal("1e-70"), rounding=ROUND_FLOOR))


def normal_tail(z: Fraction) -> Decimal:
    """At least P[N(0,1) >= z], for 0 <= z <= 14, and above it by less than 1e-44.

    1/2 - phi(z)·(z + z³/3 + z⁵/15 + …): all terms are positive, so stopping early errs upwards.
    """
    assert 0 <= z <= 14
    with localcontext(_EIGHTY):
        x = _decimal(z)
        square = x * x
        term = total = x
        k = 1
        while term > Decimal("1e-50"):
            k += 2
            term = term * square / k
            total += term
        return Decimal("0.5") - (-square / 2).exp() / _ROOT_TWO_PI * total + _TAIL_GUARD


@lru_cache(maxsize=4096)
def normal_point(q: Fraction) -> Fraction:
    """z with P[N(0,1) >= z] <= q: a float guess, confirmed or raised. For 1e-40 < q <= 1/2."""
    assert Fraction(1, 10**40) < q <= Fraction(1, 2)
    z = Fraction(max(0, math.ceil(-NormalDist().inv_cdf(float(q)) * _Z_GRID)), _Z_GRID)
    step = Fraction(16, _Z_GRID)
    while normal_tail(z) > _decimal(q):
        z, step = z + step, 2 * step
    return z


def gaussian_reach(sigma_squared: Fraction, q: Fraction) -> int:
    """m such that discrete Gaussian noise is m or more with probability at most q.

    For m >= 1: the sum of e^(-x²/(2·sigma²)) over x >= m is at most its integral from m - 1, and over all
    integers at least sigma·sqrt(2·pi) (Poisson). So P[Z >= m] <= P[N(0, sigma²) >= m - 1].
    """
    return 1 + ceil_root(sigma_squared * normal_point(q) ** 2)


@lru_cache(maxsize=4096)
def laplace_reach(scale: Fraction, q: Fraction) -> int:
    """m >= 0 such that discrete Laplace noise is m or more with probability t^m/(1+t) <= q, t = e^(-1/scale)."""
    with localcontext(_EIGHTY):
        decay = (-_decimal(1 / scale)).exp()
        return max(0, _ceil(-((1 + decay) * _decimal(q)).ln() * _decimal(scale)))


@lru_cache(maxsize=4096)
def truncated_bound(epsilon: Fraction, q: Fraction) -> int:
    """K such that noise on -K … K with P proportional to e^(-epsilon·|z|) is K with probability at most q.

    With t = e^-epsilon, t^K·(1-t)/(1+t-2t^(K+1)) <= q exactly when
    e^(epsilon·K) >= (e^epsilon + 2q - 1)/((e^epsilon + 1)·q).
    """
    with localcontext(_EIGHTY):
        grown, part = _decimal(epsilon).exp(), _decimal(q)
        ratio = (grown + 2 * part - 1) / ((grown + 1) * part)
        return max(0, _ceil(ratio.ln() / _decimal(epsilon)))


def ceil_root(value: Fraction) -> int:
    """The least integer whose square is at least `value`."""
    whole = math.ceil(value)
    return math.isqrt(whole - 1) + 1 if whole > 0 else 0


def _decimal(value: Fraction) -> Decimal:
    return _EIGHTY.divide(Decimal(value.numerator), Decimal(value.denominator))


def _ceil(value: Decimal) -> int:
    """Rounded up, after adding more than the arithmetic can have lost."""
    return int((value * (1 + _GUARD) + _GUARD).to_integral_value(rounding=ROUND_CEILING))
