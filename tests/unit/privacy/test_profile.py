"""What a profile costs: the share that was asked for, at the order in which shares are counted, and never more."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from service.core.amounts import CLOSED, PICO, Terms
from service.core.boundary import ExactTable
from service.core.errors import LossOutOfRange
from service.core.events import GaussianEvent, LaplaceUnitsEvent
from service.core.sizes import BINS
from service.privacy.accounting.costs import open_terms
from service.privacy.mechanisms.profile import UnitHistogram
from service.privacy.noise.laws import GAUSSIAN, LAPLACE
from service.privacy.noise.sampling import SecureNoise
from service.privacy.pricing.profile_price import price_profile
from service.privacy.release import release_profile

WITH_DELTA = open_terms(3 * PICO, 10**12, keys_declared=False)
PURE = open_terms(3 * PICO, 0, keys_declared=False)
SHARE = PICO // 1000


@pytest.mark.parametrize("terms", [WITH_DELTA, PURE, open_terms(10**9, 10**12, keys_declared=True)])
@pytest.mark.parametrize("part", [SHARE, PICO // 10, PICO // 10**6])
def test_a_profile_takes_the_share_that_it_may(terms: Terms, part: int) -> None:
    priced = price_profile(part, terms, pure=True)
    assert part * 0.99 - 10 <= priced.share <= part
    assert priced.cost.delta == 0


def test_without_delta_the_share_is_one_of_epsilon() -> None:
    priced = price_profile(SHARE, PURE, pure=True)
    assert priced.cost.orders == (3 * PICO // 1000,)
    assert priced.mechanism.event == LaplaceUnitsEvent(1, Fraction(1000, 3))


def test_gaussian_noise_is_taken_only_where_it_closes_nothing_that_is_open() -> None:
    assert price_profile(SHARE, WITH_DELTA, pure=True).mechanism.law is LAPLACE
    closed = price_profile(SHARE, WITH_DELTA, pure=False)
    assert isinstance(closed.mechanism.event, GaussianEvent)
    assert closed.mechanism.event.l2_squared == 1
    assert closed.cost.orders[-1] == CLOSED
    assert closed.share <= SHARE + 1
    assert price_profile(SHARE, PURE, pure=False).mechanism.law is LAPLACE, "without delta there is no other"


def test_a_share_below_the_smallest_amount_is_refused() -> None:
    with pytest.raises(LossOutOfRange) as refused:
        price_profile(1, open_terms(10**6, 0, keys_declared=False), pure=True)
    assert refused.value.extra["field"] == "profile.share"


@pytest.mark.parametrize("law", [LAPLACE, GAUSSIAN], ids=str)
def test_what_is_drawn_must_not_cost_more_than_was_charged(law: object) -> None:
    """Invariant M1, before the table is opened: a twin with a tenth less noise is stopped, and opens nothing."""
    priced = price_profile(SHARE, WITH_DELTA, pure=law is LAPLACE)
    better = UnitHistogram(priced.mechanism.law, priced.mechanism.amount * Fraction(11, 10))
    sealed = ExactTable({"units": np.zeros(BINS, dtype=np.int64)})
    with pytest.raises(AssertionError, match="cost more"):
        release_profile(replace(priced, mechanism=better), sealed, SecureNoise())
    assert len(release_profile(priced, sealed, SecureNoise())) == BINS
