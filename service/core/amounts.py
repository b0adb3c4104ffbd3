"""Amounts of privacy as integers: costs round up, limits round down.

Invariant A1: an amount is an integer number of pico (1e-12, epsilon and Rényi costs) or atto
(1e-18, delta). Input finer than the grid is refused, never rounded: what the analyst typed is what
is charged, and the noise scale is derived from the integer that was charged.
"""

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from fractions import Fraction

from service.core.errors import LossOutOfRange

PICO = 10**12
ATTO = 10**18

# A cost that no limit covers: what a Gaussian release costs at order infinity. Spent amounts
# saturate here, so an order once closed stays closed and a 64-bit column never overflows.
CLOSED = 2**62

LARGEST_EPSILON = 1_000_000  # far beyond any meaning, far below 2**62 pico

# A promise beyond either of these protects nobody by itself: it has to be meant, and is named weak wherever it shows.
WEAK_EPSILON = 20 * PICO
WEAK_DELTA = ATTO // 1000

EXACT = Context(prec=60)


def parse_amount(text: object, *, unit: int, name: str, largest: Decimal) -> int:
    """A positive decimal (string, int or Decimal; never a binary float) as an integer of `unit`."""
    if isinstance(text, bool) or not isinstance(text, str | int | Decimal):
        raise LossOutOfRange(f"{name} must be a decimal number or a decimal string", {"field": name})
    # Python reads digits of every script; here a number is written in one way.
    if isinstance(text, str) and (len(text) > 40 or text.strip() != text or "_" in text or not text.isascii()):
        raise LossOutOfRange(f"{name} must be a plain decimal like 0.1 or 1e-6", {"field": name})
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise LossOutOfRange(f"{name} must be a plain decimal like 0.1 or 1e-6", {"field": name}) from None
    if not value.is_finite():
        raise LossOutOfRange(f"{name} must be finite", {"field": name})
    if value <= 0:
        raise LossOutOfRange(f"{name} must be above zero", {"field": name})
    if value > largest:
        raise LossOutOfRange(f"{name} may be at most {largest}", {"field": name})
    if value.adjusted() < -30:
        raise _too_fine(name, unit)
    scaled = EXACT.multiply(value, Decimal(unit))
    if scaled != scaled.to_integral_value():
        raise _too_fine(name, unit)
    return int(scaled)


def _too_fine(name: str, unit: int) -> LossOutOfRange:
    return LossOutOfRange(
        f"{name} is finer than 1e-{len(str(unit)) - 1}, the smallest amount that is booked", {"field": name}
    )


def parse_epsilon(text: object, name: str = "epsilon") -> int:
    """Pico-epsilon (also used for rho and shares)."""
    return parse_amount(text, unit=PICO, name=name, largest=Decimal(LARGEST_EPSILON))


def parse_delta(text: object, name: str = "delta") -> int:
    """Atto-delta, below 1."""
    amount = parse_amount(text, unit=ATTO, name=name, largest=Decimal(1))
    if amount >= ATTO:
        raise LossOutOfRange(f"{name} must be below 1", {"field": name})
    return amount


def parse_share(text: object, name: str = "share") -> int:
    """Pico of a dataset's budget: a part of it, at most all."""
    amount = parse_epsilon(text, name)
    if amount > PICO:
        raise LossOutOfRange(f"{name} is a part of the budget, at most 1", {"field": name})
    return amount


def weakness(epsilon: int, delta: int) -> str | None:
    """Why a ceiling of so many pico and atto is a weak promise, in words; None: it is not one."""
    beyond = [f"epsilon {show_pico(epsilon)} is above {show_pico(WEAK_EPSILON)}"] if epsilon > WEAK_EPSILON else []
    beyond += [f"delta {show_atto(delta)} is above {show_atto(WEAK_DELTA)}"] if delta > WEAK_DELTA else []
    return f"weak promise: {' and '.join(beyond)}" if beyond else None


def cost_pico(value: Decimal) -> int:
    """A cost on the grid, rounded up: against ourselves. Saturates at CLOSED."""
    return min(CLOSED, int((value * PICO).to_integral_value(rounding=ROUND_CEILING)))


def limit_pico(value: Decimal) -> int:
    """A limit on the grid, rounded down: against ourselves."""
    return int((value * PICO).to_integral_value(rounding=ROUND_FLOOR))


def show_pico(amount: int) -> str:
    """The shortest decimal string of an integer number of pico."""
    return show_fraction(Fraction(amount, PICO))


def show_atto(amount: int) -> str:
    """A delta as people write it: 1e-6 and 5e-7 alike."""
    return show_fraction(Fraction(amount, ATTO), smallest_plain=-3)


def show_fraction(value: Fraction, *, smallest_plain: int = -6) -> str:
    """A decimal string without trailing zeros; scientific below 10^smallest_plain."""
    decimal = (EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))).normalize(EXACT)
    if decimal == 0:
        return "0"
    if smallest_plain <= decimal.adjusted() < 15:
        return f"{decimal:f}"
    return f"{decimal:e}".replace("e+", "e")


@dataclass(frozen=True, slots=True)
class Cost:
    """What one release costs: pico at every order of the account's list, and atto of delta.

    `orders` lines up with Terms.orders of the account that pays. The last order is infinity.
    """

    orders: tuple[int, ...]
    delta: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        assert len(self.orders) == len(other.orders), "costs of different accounts"
        total = tuple(min(CLOSED, a + b) for a, b in zip(self.orders, other.orders, strict=True))
        return Cost(total, self.delta + other.delta)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a dataset's account was opened with; never changes.

    `orders` are the finite Rényi orders in rising order; infinity comes last in every vector and is
    not listed. `weights` split delta_conv over them. `limits` are pico at the ceiling, infinity last.
    """

    orders: tuple[Fraction, ...]
    weights: tuple[Fraction, ...]
    epsilon_ceiling: int  # pico
    delta_ceiling: int  # atto
    delta_selection: int  # atto, the part that selecting undeclared keys may use
    reference: int  # index of the order in which shares are counted: a*, or infinity when delta is 0

    @property
    def delta_conversion(self) -> int:
        return self.delta_ceiling - self.delta_selection
