"""The laws of noise: what an amount buys costs that amount, and widths are those of what is drawn."""

from fractions import Fraction

import numpy as np
import pytest

from service.core.amounts import ATTO, CLOSED, PICO
from service.core.events import ExponentialEvent
from service.privacy.accounting.costs import cost, open_terms
from service.privacy.noise.laws import LAWS, Law
from service.privacy.noise.sampling import SecureNoise
from service.privacy.noise.scaled import noise_for
from service.privacy.noise.sensitivity import Sensitivity

TERMS = open_terms(PICO, ATTO // 10**6, keys_declared=True)
MOVED = {
    "a reach": Sensitivity.within(12),
    "people": Sensitivity.of_units(5),
    "a size": Sensitivity.within(3).times(Fraction(5, 7)),
}
AMOUNTS = (Fraction(1, 1000), Fraction(1, 3), Fraction(7))


def assert_costs(event: object, amount: Fraction, law: Law) -> None:
    """No more than the amount: of epsilon at order infinity, of rho times the order at every other."""
    paid = cost(event, TERMS).orders  # type: ignore[arg-type]
    assert paid[-1] <= (amount * PICO + 1 if law.pure else CLOSED)
    for spent, order in zip(paid, TERMS.orders, strict=False):
        assert spent <= amount * PICO * law.cost_at(order) + 1


@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("moved", MOVED.values(), ids=MOVED)
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_what_an_amount_buys_costs_that_amount_and_half_the_noise_costs_more(
    law: Law, moved: Sensitivity, amount: Fraction
) -> None:
    scale = law.scale(moved, amount)
    assert_costs(law.event(moved, scale), amount, law)
    with pytest.raises(AssertionError):
        assert_costs(law.event(moved, scale / 2), amount, law)


@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_an_exponential_draw_costs_no_more_than_its_amount(law: Law, amount: Fraction) -> None:
    assert_costs(ExponentialEvent(law.draw_epsilon(amount)), amount, law)


@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_epsilon_of_equal_noise_has_the_same_deviation(law: Law, amount: Fraction) -> None:
    moved = Sensitivity.within(1000)
    deviation = law.deviation((1.0,), (law.scale(moved, amount),))
    assert deviation == pytest.approx(2**0.5 * 1000 / float(law.noise_epsilon(amount)), rel=1e-6)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_deviations_and_widths_are_those_of_the_draws(law: Law) -> None:
    """Of 3·X - 2·Y, of X alone as whole numbers, and of what X reaches in one case of a hundred."""
    moved, size = Sensitivity.within(40), 200_000
    noise = noise_for(law, moved, Fraction(1, 2))
    one, other = noise.draw(SecureNoise(), size), noise.draw(SecureNoise(), size)
    mixed = 3.0 * one - 2.0 * other
    scales = (noise.scale, noise.scale)
    assert np.std(mixed) == pytest.approx(law.deviation((3.0, 2.0), scales), rel=0.02)
    assert np.mean(np.abs(mixed) <= law.half_width((3.0, 2.0), scales, 0.95)) == pytest.approx(0.95, abs=0.003)
    assert np.mean(np.abs(one) <= law.whole_half_width(noise.scale, 0.9)) == pytest.approx(0.9, abs=0.01)
    assert np.mean(one >= law.passed_with(noise.scale, 0.01)) == pytest.approx(0.01, abs=0.002)
    assert np.mean(one >= noise.reach(Fraction(1, 100))) <= 0.012


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_replicas_have_the_variances_that_were_asked_for(law: Law) -> None:
    found = law.replica_noise((4.0, 100.0), (2000, 50))
    assert found.std(axis=(1, 2)) == pytest.approx([2.0, 10.0], rel=0.03)
    wide = law.replica_noise((1.0,), (20, 5000))
    assert wide.shape == (1, 20, 5000)


def test_people_are_counted_one_by_one_and_in_no_other_unit() -> None:
    assert Sensitivity.of_units(4).times(1).units == 4
    with pytest.raises(AssertionError):
        Sensitivity.of_units(4).times(3)
