"""Does the exponential mechanism draw the law it is priced for? False alarms: 1e-6 per test."""

from fractions import Fraction

import numpy as np
import pytest

from service.core.boundary import Array
from service.privacy.mechanisms import exponential
from service.privacy.mechanisms.exponential import Candidates, choose
from service.privacy.noise.sampling import SecureNoise
from tests.statistical.laws import FALSE_ALARM, shares_p_value

DRAWS = 30_000
COSTS = [0, 3, 3, 9, 2, 40, 700, 1]
COPIES = [1, 5, 1, 300, 2, 10_000, 1, 1]


def side_by_side(costs: list[int], copies: list[int], draws: int, kind: type = np.int64) -> Candidates:
    """The same draw many times over, as many groups would stand."""
    return Candidates(
        np.tile(np.array(costs, dtype=kind), draws),
        np.tile(np.array(copies, dtype=np.int64), draws),
        np.arange(draws + 1) * len(costs),
    )


def law(rate: Fraction) -> list[float]:
    return [copies * float(np.exp(-float(rate) * cost)) for cost, copies in zip(COSTS, COPIES, strict=True)]


def drawn(rate: Fraction, draws: int = DRAWS, kind: type = np.int64) -> Array:
    return choose(side_by_side(COSTS, COPIES, draws, kind), rate, SecureNoise()) % len(COSTS)


@pytest.mark.parametrize("rate", [Fraction(0), Fraction(1, 100), Fraction(1, 3), Fraction(1), Fraction(5)], ids=str)
@pytest.mark.parametrize("kind", [np.int64, object], ids=["int64", "object"])
def test_draws_follow_copies_times_the_exponential_of_the_cost(rate: Fraction, kind: type) -> None:
    assert shares_p_value(drawn(rate, kind=kind), law(rate)) > FALSE_ALARM


@pytest.mark.parametrize("rate", [Fraction(1, 3), Fraction(1)], ids=str)
def test_the_law_is_the_same_when_every_draw_is_decided_exactly(
    rate: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exponential, "BAND", 1 << 62)
    assert shares_p_value(drawn(rate, draws=2_000), law(rate)) > FALSE_ALARM


def test_the_fit_catches_half_the_rate() -> None:
    assert shares_p_value(drawn(Fraction(1, 6)), law(Fraction(1, 3))) < FALSE_ALARM


def test_the_fit_catches_forgotten_copies() -> None:
    once = side_by_side(COSTS, [1] * len(COSTS), DRAWS)
    assert shares_p_value(choose(once, Fraction(1, 3), SecureNoise()) % len(COSTS), law(Fraction(1, 3))) < FALSE_ALARM


def test_uniform_choices_have_no_modulo_bias() -> None:
    """Three choices out of words of two bits: 0 would come twice as often if words were folded."""
    fair = SecureNoise().uniform(np.full(DRAWS, 3))
    assert shares_p_value(fair, [1, 1, 1]) > FALSE_ALARM
    folded = (SecureNoise().words(DRAWS) >> np.uint64(62)).astype(np.int64) % 3
    assert shares_p_value(folded, [1, 1, 1]) < FALSE_ALARM


@pytest.mark.parametrize("n", [2, 5, 1000, 3 * 2**61])
def test_below_is_uniform(n: int) -> None:
    """For 3·2**61, folding 64-bit words would favour the lower two thirds by a half."""
    source = SecureNoise()
    tenths = np.array([source.below(n) * min(n, 12) // n for _ in range(6_000)])
    assert shares_p_value(tenths, [1] * min(n, 12)) > FALSE_ALARM
