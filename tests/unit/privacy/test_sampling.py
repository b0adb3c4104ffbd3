"""The arithmetic under the samplers, where a statistical test would need too many draws."""

import inspect
import math
import os
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.privacy.noise import decided as exact
from service.privacy.noise.decided import Words
from service.privacy.noise.sampling import SecureNoise, exp_chance, gaussian_chance

unhurried = settings(deadline=None)  # a busy machine is no failure
rates = st.fractions(min_value=Fraction(1, 10**12), max_value=Fraction(200), max_denominator=10**15)


class Scripted(SecureNoise):
    """Words and further bits chosen by the test: what the generator does once in 2**60 draws."""

    def __init__(self, word: int, further: int) -> None:
        self.word, self.further = word, further

    def words(self, size: int) -> Words:
        return np.full(size, self.word, dtype=np.uint64)

    def bits(self, k: int) -> int:
        return self.further & ((1 << k) - 1)


@unhurried
@given(x=rates, bits=st.integers(1, 400))
def test_exp_bounds_hold_e_to_the_minus_x(x: Fraction, bits: int) -> None:
    low, high = exact.exp_bounds(x, bits)
    far = Context(prec=300)
    truth = far.multiply(far.exp(far.divide(Decimal(-x.numerator), Decimal(x.denominator))), Decimal(2**bits))
    assert low <= truth <= high
    assert high - low <= 3


@unhurried
@given(x=st.floats(0, 200))
def test_float_exp_stays_within_its_stated_error(x: float) -> None:
    truth = Context(prec=60).exp(-Decimal(x))
    seen = Decimal(float(exact.exp_minus(np.array([x]))[0]))
    if x <= 128:
        assert abs(seen - truth) <= truth * Decimal(2) ** -48
    else:
        assert seen <= Decimal(2) ** -180


@unhurried
@given(x=st.floats(0, 1 / 16))
def test_float_exp_of_small_numbers_stays_within_its_stated_error(x: float) -> None:
    truth = Context(prec=60).exp(-Decimal(x))
    assert abs(Decimal(float(exact.exp_small(np.array([x]))[0])) - truth) <= Decimal(2) ** -50


def exp_of(x: Fraction) -> Fraction:
    """e**-x to 80 digits."""
    far = Context(prec=80, Emin=-(10**9))
    return Fraction(far.exp(far.divide(Decimal(-x.numerator), Decimal(x.denominator))))


@unhurried
@given(
    sigma_squared=st.one_of(
        st.fractions(Fraction(1, 1000), Fraction(100), max_denominator=10**6),
        st.fractions(Fraction(2**20), Fraction(2**140), max_denominator=10**12),
    ),
    deviations=st.fractions(0, 20, max_denominator=10**9),
)
def test_the_chance_to_keep_a_gaussian_proposal_is_within_its_stated_error(
    sigma_squared: Fraction, deviations: Fraction
) -> None:
    scale = math.isqrt(int(sigma_squared)) + 1
    centre, magnitude = sigma_squared / scale, int(deviations * scale)
    seen = gaussian_chance(np.array([magnitude], dtype=object), centre, sigma_squared)[0]
    truth = exp_of((magnitude - centre) ** 2 / (2 * sigma_squared))
    assert abs(Fraction(float(seen)) - truth) <= Fraction(1, 2**44)


@unhurried
@given(
    number=st.one_of(st.integers(0, 1000), st.integers(0, 2**140)),
    x=st.one_of(st.fractions(0, Fraction(1, 16), max_denominator=10**9), st.fractions(0, 50, max_denominator=10**9)),
)
def test_the_chance_to_keep_a_low_digit_is_within_its_stated_error(number: int, x: Fraction) -> None:
    rate = x / max(1, number)
    seen = exp_chance(np.array([number], dtype=object), rate)[0]
    assert abs(Fraction(float(seen)) - exp_of(number * rate)) <= Fraction(1, 2**46)


@unhurried
@given(rate=st.fractions(Fraction(1, 32), Fraction(60), max_denominator=10**9))
def test_every_threshold_of_the_table_is_the_floor_of_its_probability(rate: Fraction) -> None:
    far = Context(prec=120)
    table = exact.geometric_table(rate)[::-1].tolist()
    assert len(table) == len(set(table))
    for k in {1, 1 + len(table) // 2, len(table)} - {len(table) + 1}:
        power = far.exp(far.divide(Decimal(-k * rate.numerator), Decimal(rate.denominator)))
        assert table[k - 1] == int(far.multiply(power, Decimal(2**64)))


@unhurried
@given(scale=st.fractions(Fraction(1, 100), Fraction(2**70), max_denominator=10**12))
def test_the_sign_threshold_is_the_floor_of_its_probability(scale: Fraction) -> None:
    far = Context(prec=120)
    t = far.exp(far.divide(Decimal(-scale.denominator), Decimal(scale.numerator)))
    assert exact.nonnegative_threshold(scale) == int(far.divide(Decimal(2**64), far.add(Decimal(1), t)))


@pytest.mark.parametrize(("further", "below"), [(0, True), (2**64 - 1, False)])
def test_a_word_on_a_threshold_is_decided_by_further_bits(further: int, below: bool) -> None:
    """U starts with the very bits of e**-1: the next 64 bits tell on which side it lies."""
    on_edge = int(exact.geometric_table(Fraction(1))[-1])
    source = Scripted(on_edge, further)
    assert exact.lies_below(on_edge, 64, lambda bits: exact.exp_bounds(Fraction(1), bits), source.bits) is below
    assert int(source._table_geometric(Fraction(1), 1)[0]) == (1 if below else 0)


@pytest.mark.parametrize(("further", "negative"), [(0, False), (2**64 - 1, True)])
def test_a_word_on_the_sign_threshold_is_decided_by_further_bits(further: int, negative: bool) -> None:
    scale = Fraction(3, 2)
    drawn = Scripted(exact.nonnegative_threshold(scale), further).discrete_laplace(scale, 1)
    assert (int(drawn[0]) < 0) is negative


def test_deciding_goes_on_until_the_bits_differ() -> None:
    """U = e**-1 to 64·5 bits, then larger: five rounds, and the answer is no."""
    prefix, _ = exact.exp_bounds(Fraction(1), 64 * 5)
    words = [(prefix + 8) >> (64 * i) & (2**64 - 1) for i in range(5)][::-1]
    asked = iter(words[1:])
    assert not exact.lies_below(words[0], 64, lambda bits: exact.exp_bounds(Fraction(1), bits), lambda _: next(asked))
    assert next(asked, None) is None


def test_a_certain_event_needs_no_further_bits() -> None:
    assert exact.lies_below(
        2**64 - 1, 64, lambda bits: exact.exp_bounds(Fraction(0), bits), lambda _: pytest.fail("asked")
    )


@pytest.mark.parametrize(
    ("scale", "kind"),
    [(Fraction(1, 10**9), "i"), (Fraction(2**54), "i"), (Fraction(2**60), "O"), (Fraction(2**200), "O")],
)
def test_draws_are_int64_until_they_might_not_fit(scale: Fraction, kind: str) -> None:
    drawn = SecureNoise().discrete_laplace(scale, 100)
    assert drawn.dtype.kind == kind
    assert all(isinstance(value, int) for value in drawn.tolist())


@pytest.mark.parametrize("size", [0, 1, 7])
def test_as_many_values_come_as_were_asked_for(size: int) -> None:
    noise = SecureNoise()
    assert noise.discrete_laplace(Fraction(50), size).shape == (size,)
    assert noise.discrete_gaussian(Fraction(50), size).shape == (size,)
    assert noise.truncated_laplace(Fraction(1), 9, size).shape == (size,)
    assert noise.uniform(np.full(size, 3)).shape == (size,)


def test_forked_children_do_not_repeat_the_noise() -> None:
    """Nothing random is kept between draws, so nothing is copied by a fork."""
    noise = SecureNoise()
    noise.discrete_laplace(Fraction(2**40), 4)
    seen = {tuple(noise.discrete_laplace(Fraction(2**40), 4).tolist())}
    for _ in range(3):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            drawn = noise.discrete_laplace(Fraction(2**40), 4)
            os.write(writing, drawn.tobytes())
            os._exit(0)
        os.waitpid(child, 0)
        seen.add(tuple(np.frombuffer(os.read(reading, 32), dtype=np.int64).tolist()))
        os.close(reading)
        os.close(writing)
    assert len(seen) == 4


def test_nothing_can_be_seeded() -> None:
    assert not inspect.signature(SecureNoise).parameters
    assert SecureNoise.__slots__ == ()
    with pytest.raises(TypeError):
        SecureNoise(1)  # type: ignore[call-arg]


@unhurried
@given(limits=st.lists(st.one_of(st.integers(1, 9), st.integers(2**53 - 2, 2**53 + 2), st.integers(2**62, 2**63 - 1))))
def test_uniform_stays_below_every_limit(limits: list[int]) -> None:
    drawn = SecureNoise().uniform(np.array(limits, dtype=np.int64)).tolist()
    assert all(0 <= value < limit for value, limit in zip(drawn, limits, strict=True))


def test_block_bits_keep_the_low_digit_flat() -> None:
    for scale in (Fraction(15), Fraction(16), Fraction(33), Fraction(10**30, 7)):
        j = exact.block_bits(scale)
        assert j == 0 or Fraction(1, 32) < 2**j / scale <= Fraction(1, 16)
        assert math.isfinite(float(scale))
