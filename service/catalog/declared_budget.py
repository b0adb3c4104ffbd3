"""The exact amounts that a declaration of a dataset names: its ceiling, which is the promise, and its first grant."""

from dataclasses import dataclass

from service.catalog.declare import DatasetDeclaration
from service.core.amounts import parse_delta, parse_epsilon
from service.core.errors import CatalogRefused


@dataclass(frozen=True, slots=True)
class DeclaredBudget:
    """Ceiling and first grant of a dataset, in pico and atto; what its account is opened with."""

    epsilon_ceiling: int
    delta_ceiling: int
    epsilon: int
    delta: int
    keys_declared: bool


def budget_of(declared: DatasetDeclaration) -> DeclaredBudget:
    """The exact amounts of a declaration; a grant above its ceiling is refused."""
    epsilon, delta = parse_epsilon(declared.epsilon), zero_or_delta(declared.delta)
    ceiling = declared.ceiling
    highest = parse_epsilon(ceiling.epsilon, "ceiling.epsilon") if ceiling else epsilon
    highest_delta = zero_or_delta(ceiling.delta, "ceiling.delta") if ceiling else delta
    if epsilon > highest or delta > highest_delta:
        raise CatalogRefused(
            "the budget is above its ceiling",
            {"remedy": "lower epsilon and delta, or raise the ceiling: it is the promise"},
        )
    return DeclaredBudget(highest, highest_delta, epsilon, delta, declared.keys_declared)


def zero_or_delta(text: object, name: str = "delta") -> int:
    """Delta, where zero is allowed: a dataset of pure epsilon has none."""
    try:
        is_zero = not isinstance(text, bool) and str(text).isascii() and float(str(text)) == 0
    except ValueError:
        is_zero = False
    return 0 if is_zero else parse_delta(text, name)
