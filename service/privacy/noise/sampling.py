"""Exact integer noise, vectorised, from the operating system's generator.

Discrete Laplace:  P[Z = z] proportional to e**(-|z|/scale), scale a Fraction.
Discrete Gaussian: P[Z = z] proportional to e**(-z²/(2·sigma_squared)), sigma_squared a Fraction.

Laplace. With t = e**(-1/scale) let G be geometric, P[G >= k] = t**k. Then Z = G with probability
1/(1 + t) and Z = -1 - G otherwise is discrete Laplace (compare the two sides of zero). The digits of G in
any base are independent: G = 2**j·H + L, where H is geometric with ratio t**(2**j) (read off a table of
thresholds) and L is geometric with ratio t cut off at 2**j (j uniform bits, kept with probability
e**(-L/scale)). No integer ever needs more bits than the answer has, so scales from far below 1 to far
beyond 2**64 take the same path.

Gaussian (Canonne, Kamath, Steinke 2020). With s = floor(sigma) + 1 a discrete Laplace Y of scale s is
kept with probability e**(-(|Y| - sigma²/s)²/(2 sigma²)): the product of both is the Gaussian law.

All comparisons are decided in the sense of decided.py (invariant X1). Invariant X2: every draw
reads os.urandom when it is made; nothing random is kept between calls, so a fork repeats nothing,
and there is no seed to set. What is cached are tables of public constants.
"""

import os
import secrets
from collections.abc import Callable
from fractions import Fraction
from math import isqrt
from typing import Protocol

import numpy as np

from service.core.boundary import Array, Floats
from service.privacy.noise.decided import (
    BAND,
    FLAT,
    WORD_BITS,
    BoundsByBits,
    Words,
    block_bits,
    exp_bounds,
    exp_minus,
    exp_small,
    geometric_table,
    lies_below,
    nonnegative_bounds,
    nonnegative_threshold,
    unit_interval,
)

# Below this scale a draw leaves 63 bits with probability e**-128 or less (and is then an object array).
SMALL_SCALE = 2**55
LARGEST_SCALE = 2**400  # doubles hold the square


class NoiseSource(Protocol):
    """What mechanisms draw from. Production has one implementation: SecureNoise.

    Arrays are int64, or Python integers in an object array when 64 bits could overflow.
    """

    def discrete_laplace(self, scale: Fraction, size: int) -> Array: ...

    def discrete_gaussian(self, sigma_squared: Fraction, size: int) -> Array: ...

    def truncated_laplace(self, epsilon: Fraction, bound: int, size: int) -> Array:
        """On -bound … bound with P proportional to e**(-epsilon·|z|)."""
        ...

    def below(self, n: int) -> int:
        """Uniform on 0 … n-1."""
        ...

    def uniform(self, limits: Array) -> Array:
        """Uniform on 0 … limit-1, for each of an int64 array of positive limits."""
        ...

    def bits(self, k: int) -> int:
        """k uniform bits as an integer."""
        ...

    def words(self, size: int) -> Words:
        """Uniform 64-bit words."""
        ...


class SecureNoise:
    """The production source: the operating system's generator, read in bulk at every draw."""

    __slots__ = ()

    def words(self, size: int) -> Words:
        return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)

    def bits(self, k: int) -> int:
        return secrets.randbits(k) if k else 0

    def below(self, n: int) -> int:
        assert n > 0
        return secrets.randbelow(n)

    def uniform(self, limits: Array) -> Array:
        """Cuts words to as many bits as limit - 1 has and draws again what is too large: no modulo, no bias.

        frexp gives the number of bits, or one more where the double rounded up: then half as much is kept.
        """
        width = np.frexp((limits - 1).astype(np.float64))[1]
        spare = np.maximum(1, WORD_BITS - width).astype(np.uint64)
        result = np.zeros(limits.size, dtype=np.int64)
        open_places = np.flatnonzero(limits > 1)
        while open_places.size:
            drawn = (self.words(open_places.size) >> spare[open_places]).astype(np.int64)
            result[open_places] = drawn
            open_places = open_places[drawn >= limits[open_places]]
        return result

    def discrete_laplace(self, scale: Fraction, size: int) -> Array:
        assert 0 < scale < LARGEST_SCALE
        magnitude = self._geometric(scale, size)
        words = self.words(size)
        threshold = nonnegative_threshold(scale)
        negative = words >= np.uint64(threshold)
        for place in np.flatnonzero(words == np.uint64(threshold)):
            negative[place] = not lies_below(
                int(words[place]), WORD_BITS, lambda k: nonnegative_bounds(scale, k), self.bits
            )
        return np.where(negative, -1 - magnitude, magnitude)

    def discrete_gaussian(self, sigma_squared: Fraction, size: int) -> Array:
        assert 0 < sigma_squared < LARGEST_SCALE**2
        scale = Fraction(isqrt(int(sigma_squared)) + 1)

        def some(missing: int) -> Array:
            proposed = self.discrete_laplace(scale, missing + missing // 3 + 8)
            return proposed[self._gaussian_keeps(proposed, scale, sigma_squared)]

        return _until(size, some)

    def truncated_laplace(self, epsilon: Fraction, bound: int, size: int) -> Array:
        """Draws from a wider law and keeps what falls inside: uniform where the law is flat, Laplace else."""
        assert epsilon > 0
        assert 0 <= bound < SMALL_SCALE

        def flat(missing: int) -> Array:
            proposed = self.uniform(np.full(2 * missing + 8, 2 * bound + 1, dtype=np.int64)) - bound
            return proposed[self._bernoulli_exp(np.abs(proposed), epsilon)]

        def steep(missing: int) -> Array:
            proposed = self.discrete_laplace(1 / epsilon, missing + missing // 2 + 8)
            return proposed[np.abs(proposed) <= bound].astype(np.int64)

        return _until(size, flat if epsilon * bound <= 1 else steep)

    # --- parts --------------------------------------------------------------------------------------

    def _geometric(self, scale: Fraction, size: int) -> Array:
        """P[G >= k] = e**(-k/scale): a high digit from a table and a low digit by rejection."""
        j = block_bits(scale)
        high = self._table_geometric(Fraction(1 << j) / scale, size)
        if not j:
            return high
        if scale < SMALL_SCALE and int(high.max(initial=0)) < 1 << (62 - j):
            return (high << j) + self._low_digit(scale, j, size)
        return high.astype(object) * (1 << j) + self._low_digit(scale, j, size)

    def _table_geometric(self, rate: Fraction, size: int) -> Array:
        """P[H >= k] = e**(-k·rate), by counting the thresholds above a uniform word.

        Past the last threshold the law repeats itself (it has no memory): start again from there.
        """
        table = geometric_table(rate)
        result = np.zeros(size, dtype=np.int64)
        places = np.arange(size)
        while places.size:
            words = self.words(places.size)
            reached = np.searchsorted(table, words, side="right")
            counted = table.size - reached
            touching = (reached > 0) & (table[reached - 1] == words)
            for place in np.flatnonzero(touching):
                k = int(counted[place]) + 1
                counted[place] += lies_below(int(words[place]), WORD_BITS, _exp_of(k * rate), self.bits)
            result[places] += counted
            places = places[counted == table.size]
        return result

    def _low_digit(self, scale: Fraction, j: int, size: int) -> Array:
        """L on 0 … 2**j-1 with P proportional to e**(-L/scale). At least 15 of 16 proposals are kept."""

        def some(missing: int) -> Array:
            proposed = self._uniform_bits(j, missing + missing // 12 + 4)
            return proposed[self._bernoulli_exp(proposed, 1 / scale)]

        return _until(size, some)

    def _uniform_bits(self, j: int, size: int) -> Array:
        if 0 < j <= 62:
            return (self.words(size) >> np.uint64(WORD_BITS - j)).astype(np.int64)
        result: Array = np.zeros(size, dtype=object)
        for width in (*(WORD_BITS for _ in range(j // WORD_BITS)), j % WORD_BITS):
            if width:
                result = result * (1 << width) + (self.words(size) >> np.uint64(WORD_BITS - width)).astype(object)
        return result

    def _bernoulli_exp(self, numbers: Array, rate: Fraction) -> Array:
        """True with probability e**(-number·rate), for non-negative integers."""
        return self._decided(exp_chance(numbers, rate), lambda place: _exp_of(int(numbers[place]) * rate))

    def _gaussian_keeps(self, proposed: Array, scale: Fraction, sigma_squared: Fraction) -> Array:
        """True with probability e**-x, x = (|Y| - sigma²/s)²/(2 sigma²)."""
        magnitudes, centre = np.abs(proposed), sigma_squared / scale

        def bounds_of(place: int) -> BoundsByBits:
            return _exp_of((int(magnitudes[place]) - centre) ** 2 / (2 * sigma_squared))

        return self._decided(gaussian_chance(magnitudes, centre, sigma_squared), bounds_of)

    def _decided(self, chance: Floats, bounds_of: Callable[[int], BoundsByBits]) -> Array:
        """True with the probability that `chance` approximates within BAND and `bounds_of` brackets exactly."""
        words = self.words(chance.size)
        uniform = unit_interval(words)
        result = uniform < chance
        for place in np.flatnonzero(np.abs(uniform - chance) <= 2 * BAND).tolist():
            result[place] = lies_below(int(words[place]), WORD_BITS, bounds_of(place), self.bits)
        return result


def exp_chance(numbers: Array, rate: Fraction) -> Floats:
    """e**(-number·rate) within 2**-46, for non-negative integers.

    number and rate are rounded once each and their product once: x errs by 2**-51 of itself, so e**-x by
    less than 2**-51; exp_minus adds 2**-48 of it.
    """
    x = numbers.astype(np.float64) * float(rate)
    return exp_small(x) if float(x.max(initial=0)) <= FLAT else exp_minus(x)


def gaussian_chance(magnitudes: Array, centre: Fraction, sigma_squared: Fraction) -> Floats:
    """e**-x within 2**-44, x = (|Y| - c)²/(2 sigma²), for a centre c <= sigma.

    |Y|, c and 2·sigma² are rounded once each, so the distance d errs by at most 2**-52·(|Y| + c), which is at
    most 2**-52·(d + 2·sigma), and x by less than 2**-49·(x + sqrt(x)). Times e**-x that is below 2**-48;
    exp_minus adds 2**-48 of e**-x.
    """
    distance = magnitudes.astype(np.float64) - float(centre)
    return exp_minus(distance * distance / float(2 * sigma_squared))


def _until(size: int, some: Callable[[int], Array]) -> Array:
    """`size` accepted proposals; `some(missing)` returns how many it happens to accept."""
    kept = [np.zeros(0, dtype=np.int64)]
    missing = size
    while missing > 0:
        accepted = some(missing)[:missing]
        kept.append(accepted)
        missing -= accepted.size
    return np.concatenate(kept)


def _exp_of(x: Fraction) -> BoundsByBits:
    return lambda bits: exp_bounds(x, bits)
