"""What the profile of a table costs: a share of the ceiling, whatever the table holds."""

from dataclasses import dataclass
from fractions import Fraction

from service.core.amounts import PICO, Cost, Terms
from service.core.errors import LossOutOfRange
from service.privacy.accounting.costs import cost, limits, share
from service.privacy.mechanisms.profile import UnitHistogram
from service.privacy.noise.laws import GAUSSIAN, LAPLACE


@dataclass(frozen=True, slots=True)
class PricedProfile:
    """A profile with its charge. `amount` is pico of epsilon or rho, as the law is paid in."""

    mechanism: UnitHistogram
    amount: int
    cost: Cost
    share: int
    terms: Terms

    @property
    def words(self) -> str:
        noise = self.mechanism.noise
        return f"units by their number of rows: {noise.law.words(noise.scale, 1.0)}"


def price_profile(part: int, terms: Terms, *, pure: bool) -> PricedProfile:
    """The most accurate profile for `part` (pico) of the ceiling, counted as all shares are: at the account's reference
    order. Without delta that is pure epsilon; with delta a small epsilon costs far less there than at infinity.

    `pure`: order infinity is still open. Gaussian noise would close it for everybody who asks with epsilon.
    """
    law = LAPLACE if pure or not terms.orders else GAUSSIAN
    limit = limits(terms, terms.epsilon_ceiling, terms.delta_ceiling)[terms.reference]
    if law is GAUSSIAN:
        amount = int(Fraction(part * max(0, limit), PICO) / terms.orders[terms.reference])
    elif terms.orders and limit > 0:
        amount = _largest_epsilon(part, terms)
    else:  # no finite order ever holds, so epsilon is what counts
        amount = part * terms.epsilon_ceiling // PICO
    if amount < 1:
        raise LossOutOfRange(
            "that share of the ceiling is less than the smallest amount that is booked",
            {"field": "profile.share", "remedy": 'give a larger share, or "profile": null'},
        )
    mechanism = UnitHistogram(law, Fraction(amount, PICO))
    charged = cost(mechanism.event, terms)
    return PricedProfile(mechanism, amount, charged, share(charged, terms), terms)


def _largest_epsilon(part: int, terms: Terms) -> int:
    """Pico of epsilon whose Laplace noise takes at most that share, to a part in ten thousand; 0: none does."""

    def fits(amount: int) -> bool:
        return share(cost(UnitHistogram(LAPLACE, Fraction(amount, PICO)).event, terms), terms) <= part

    low, high = 0, terms.epsilon_ceiling
    while high - low > 1 + low // 10_000:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def assert_profile_covered(priced: PricedProfile) -> None:
    """Invariant M1 for a profile: what is about to be drawn costs at no order more than was charged, and no more pure
    epsilon than was set aside."""
    real = cost(priced.mechanism.event, priced.terms)
    pairs = zip(real.orders, priced.cost.orders, strict=True)
    assert all(drawn <= charged for drawn, charged in pairs), "a profile would cost more than was charged"
    assert real.delta <= priced.cost.delta, "a profile would use more delta than was charged"
    if priced.mechanism.law.pure:
        assert real.orders[-1] <= priced.amount, "a profile would cost more epsilon than was set aside"
