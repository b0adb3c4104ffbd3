"""Is the Gaussian noise what the proofs assume? False alarms: 1e-6 per test."""

from collections.abc import Callable
from fractions import Fraction
from math import isqrt

import numpy as np
import opendp.prelude as dp
import pytest

from service.core.boundary import Array
from service.privacy.noise import sampling
from service.privacy.noise.sampling import SecureNoise
from tests.statistical.laws import FALSE_ALARM, gaussian_below, low_bits_p_value, p_value, same_law_p_value

dp.enable_features("contrib")
DRAWS = 60_000
VARIANCES = [
    Fraction(1, 4),
    Fraction(3, 2),
    Fraction(10),
    Fraction(20_001, 2),
    Fraction(2**80 + 1, 3),
    Fraction(2**120),
]


def fit(sample: Callable[[Fraction, int], Array], sigma_squared: Fraction, draws: int = DRAWS) -> float:
    reach = 20 * (isqrt(int(sigma_squared)) + 1)
    return p_value(sample(sigma_squared, draws), gaussian_below(sigma_squared), reach)


def rounded_float_gaussian(sigma_squared: Fraction, size: int) -> Array:
    return np.rint(np.random.default_rng().normal(0, float(sigma_squared) ** 0.5, size)).astype(np.int64)


@pytest.mark.parametrize("sigma_squared", VARIANCES, ids=str)
def test_noise_follows_the_discrete_gaussian_law(sigma_squared: Fraction) -> None:
    assert fit(SecureNoise().discrete_gaussian, sigma_squared) > FALSE_ALARM


@pytest.mark.parametrize("sigma_squared", VARIANCES[-2:], ids=str)
def test_wide_noise_has_uniform_low_bits(sigma_squared: Fraction) -> None:
    assert low_bits_p_value(SecureNoise().discrete_gaussian(sigma_squared, DRAWS)) > FALSE_ALARM


def test_the_fit_catches_rounded_float_noise() -> None:
    assert fit(rounded_float_gaussian, Fraction(1, 4)) < FALSE_ALARM


def test_the_low_bits_catch_rounded_float_noise() -> None:
    assert low_bits_p_value(rounded_float_gaussian(Fraction(2**118), DRAWS)) < FALSE_ALARM


@pytest.mark.parametrize("sigma_squared", VARIANCES[1:], ids=str)
def test_the_fit_catches_half_the_standard_deviation(sigma_squared: Fraction) -> None:
    assert fit(lambda wanted, size: SecureNoise().discrete_gaussian(wanted / 4, size), sigma_squared) < FALSE_ALARM


def test_the_fit_catches_laplace_noise_of_the_same_variance() -> None:
    assert fit(lambda wanted, size: SecureNoise().discrete_laplace(Fraction(50), size), Fraction(5_000)) < FALSE_ALARM


@pytest.mark.parametrize("sigma_squared", [Fraction(3, 2), Fraction(900), Fraction(2**124)], ids=str)
def test_the_law_is_the_same_when_every_comparison_is_decided_exactly(
    sigma_squared: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "BAND", 1.0)
    assert fit(SecureNoise().discrete_gaussian, sigma_squared, draws=4_000) > FALSE_ALARM


@pytest.mark.parametrize("sigma", [1, 12, 5_000])
def test_opendp_draws_the_same_law(sigma: int) -> None:
    size = 8_000
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64")
    theirs = np.array(dp.m.make_gaussian(*space, scale=float(sigma))([0] * size))
    ours = SecureNoise().discrete_gaussian(Fraction(sigma**2), size)
    assert same_law_p_value(ours, theirs) > FALSE_ALARM
    narrow = SecureNoise().discrete_gaussian(Fraction(sigma**2, 4), size)
    assert same_law_p_value(narrow, theirs) < FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("sigma_squared", [*VARIANCES, Fraction(1, 16), Fraction(255), Fraction(10**9, 7)], ids=str)
def test_two_million_draws_follow_the_law(sigma_squared: Fraction) -> None:
    assert fit(SecureNoise().discrete_gaussian, sigma_squared, draws=2_000_000) > FALSE_ALARM
