"""Is the Laplace noise what the proofs assume? False alarms: 1e-6 per test."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest

from service.core.boundary import Array
from service.privacy.noise import sampling
from service.privacy.noise.sampling import SecureNoise
from tests.statistical.laws import (
    FALSE_ALARM,
    laplace_below,
    low_bits_p_value,
    p_value,
    same_law_p_value,
    shares_p_value,
    truncated_below,
)

dp.enable_features("contrib")
DRAWS = 60_000
SCALES = [
    Fraction(1, 2),
    Fraction(3, 2),
    Fraction(7, 3),
    Fraction(16),
    Fraction(1001, 10),
    Fraction(2**40 + 1, 3),
    Fraction(2**60),
    Fraction(2**70, 7),
]


def fit(sample: Callable[[Fraction, int], Array], scale: Fraction, draws: int = DRAWS) -> float:
    return p_value(sample(scale, draws), laplace_below(scale), reach=int(60 * scale) + 60)


def rounded_float_laplace(scale: Fraction, size: int) -> Array:
    return np.rint(np.random.default_rng().laplace(0, float(scale), size)).astype(np.int64)


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_noise_follows_the_discrete_laplace_law(scale: Fraction) -> None:
    assert fit(SecureNoise().discrete_laplace, scale) > FALSE_ALARM


@pytest.mark.parametrize("scale", [Fraction(16), Fraction(65), Fraction(129, 2)], ids=str)
def test_every_single_integer_comes_as_often_as_it_should(scale: Fraction) -> None:
    """Cells of one integer each, so that a slip between the digits of a draw would show."""
    reach = int(8 * scale)
    drawn = SecureNoise().discrete_laplace(scale, 4 * DRAWS)
    inside = drawn[np.abs(drawn) <= reach] + reach
    chances = [float(np.exp(-abs(z) / float(scale))) for z in range(-reach, reach + 1)]
    assert shares_p_value(inside, chances) > FALSE_ALARM
    slipped = np.where(inside % 64 == 63, inside ^ 1, inside)
    assert shares_p_value(slipped, chances) < FALSE_ALARM


@pytest.mark.parametrize("scale", [Fraction(2**40 + 1, 3), Fraction(2**60), Fraction(2**70, 7)], ids=str)
def test_wide_noise_has_uniform_low_bits(scale: Fraction) -> None:
    assert low_bits_p_value(SecureNoise().discrete_laplace(scale, DRAWS)) > FALSE_ALARM


def test_the_fit_catches_rounded_float_noise() -> None:
    assert fit(rounded_float_laplace, Fraction(3, 2)) < FALSE_ALARM


def test_the_low_bits_catch_rounded_float_noise() -> None:
    assert low_bits_p_value(rounded_float_laplace(Fraction(2**57), DRAWS)) < FALSE_ALARM


@pytest.mark.parametrize("scale", SCALES[1:], ids=str)
def test_the_fit_catches_half_the_scale(scale: Fraction) -> None:
    assert fit(lambda wanted, size: SecureNoise().discrete_laplace(wanted / 2, size), scale) < FALSE_ALARM


def test_the_fit_catches_a_scale_that_is_three_percent_off() -> None:
    def narrow(scale: Fraction, size: int) -> Array:
        return SecureNoise().discrete_laplace(scale * Fraction(97, 100), size)

    assert fit(narrow, Fraction(1001, 10), draws=400_000) < FALSE_ALARM


@pytest.mark.parametrize("scale", [Fraction(3, 2), Fraction(40), Fraction(2**62)], ids=str)
def test_the_law_is_the_same_when_every_comparison_is_decided_exactly(
    scale: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the band over everything no float decides: only exact integers, with further bits as needed."""
    monkeypatch.setattr(sampling, "BAND", 1.0)
    assert fit(SecureNoise().discrete_laplace, scale, draws=4_000) > FALSE_ALARM


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(25, 2), Fraction(10_000)], ids=str)
def test_opendp_draws_the_same_law(scale: Fraction) -> None:
    size = 8_000
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    theirs = np.array(dp.m.make_laplace(*space, scale=float(scale))([0] * size))
    ours = SecureNoise().discrete_laplace(scale, size)
    assert same_law_p_value(ours, theirs) > FALSE_ALARM
    assert same_law_p_value(SecureNoise().discrete_laplace(scale / 2, size), theirs) < FALSE_ALARM


@pytest.mark.parametrize(
    ("epsilon", "bound"),
    [(Fraction(1), 14), (Fraction(1, 100), 900), (Fraction(1, 100), 30), (Fraction(3), 1), (Fraction(1), 0)],
    ids=str,
)
def test_truncated_noise_follows_its_law_and_never_leaves_its_bound(epsilon: Fraction, bound: int) -> None:
    drawn = SecureNoise().truncated_laplace(epsilon, bound, DRAWS)
    assert np.abs(drawn).max() <= bound
    if bound:
        assert p_value(drawn, truncated_below(epsilon, bound), reach=bound) > FALSE_ALARM


def test_the_fit_catches_noise_that_is_clamped_instead_of_truncated() -> None:
    clamped = np.clip(SecureNoise().discrete_laplace(Fraction(10), DRAWS), -30, 30)
    assert p_value(clamped, truncated_below(Fraction(1, 10), 30), reach=30) < FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize(
    "scale", [*SCALES, Fraction(1, 10), Fraction(31, 2), Fraction(10**9, 7), Fraction(2**55)], ids=str
)
def test_two_million_draws_follow_the_law(scale: Fraction) -> None:
    assert fit(SecureNoise().discrete_laplace, scale, draws=2_000_000) > FALSE_ALARM
