"""The noise of a profile: what is drawn on every bin is the law that was charged, and no more accurate one passes."""

from fractions import Fraction

import numpy as np
import pytest

from service.core.amounts import PICO
from service.core.boundary import Array, ExactTable
from service.core.sizes import BINS
from service.privacy.accounting.costs import open_terms
from service.privacy.mechanisms.profile import UnitHistogram
from service.privacy.noise.laws import GAUSSIAN, LAPLACE
from service.privacy.noise.sampling import SecureNoise
from service.privacy.pricing.profile_price import PricedProfile, price_profile
from service.privacy.release import release_profile
from tests.statistical.laws import FALSE_ALARM, Below, gaussian_below, laplace_below, p_value

TERMS = open_terms(3 * PICO, 10**12, keys_declared=False)
EXACT = np.arange(BINS, dtype=np.int64) * 7
RUNS = 4_000


def noise_of(priced: PricedProfile) -> Array:
    """Whatever a release adds to the exact counts, all bins of many runs together."""
    noise = SecureNoise()
    runs = [release_profile(priced, ExactTable({"units": EXACT}), noise) for _ in range(RUNS)]
    return np.concatenate([np.array(counts) - EXACT for counts in runs])


def law_of(priced: PricedProfile) -> Below:
    """From the charge alone: L1 = L2 = 1, so the scale is 1/epsilon and the variance 1/(2·rho)."""
    amount = Fraction(priced.amount, PICO)
    return laplace_below(1 / amount) if priced.mechanism.law is LAPLACE else gaussian_below(1 / (2 * amount))


@pytest.mark.parametrize("pure", [True, False], ids=["laplace", "gaussian"])
def test_every_bin_has_the_noise_that_was_paid_for(pure: bool) -> None:
    priced = price_profile(PICO // 1000, TERMS, pure=pure)
    assert priced.mechanism.law is (LAPLACE if pure else GAUSSIAN)
    drawn = noise_of(priced)
    assert p_value(drawn, law_of(priced), 10_000) > FALSE_ALARM
    assert abs(float(drawn.std()) / priced.mechanism.deviation - 1) < 0.05


@pytest.mark.parametrize("pure", [True, False], ids=["laplace", "gaussian"])
def test_the_check_catches_noise_that_is_too_small(pure: bool) -> None:
    priced = price_profile(PICO // 1000, TERMS, pure=pure)
    broken = UnitHistogram(priced.mechanism.law, priced.mechanism.amount * Fraction(11, 10))
    drawn = np.concatenate([np.array(broken.release(EXACT, SecureNoise())) - EXACT for _ in range(RUNS)])
    assert p_value(drawn, law_of(priced), 10_000) < FALSE_ALARM
