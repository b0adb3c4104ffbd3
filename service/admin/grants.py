"""From an (epsilon, delta) of the ceiling to the limits that an account keeps."""

from service.core.amounts import Terms, show_atto, show_pico
from service.core.errors import LossOutOfRange
from service.ledger.book import Grant
from service.privacy.accounting.costs import limits, selection_limit


def grant_of(terms: Terms, epsilon: int, delta: int) -> Grant:
    """The limits that an (epsilon, delta) of the ceiling implies."""
    if epsilon > terms.epsilon_ceiling or delta > terms.delta_ceiling:
        raise LossOutOfRange(
            f"the ceiling is epsilon {show_pico(terms.epsilon_ceiling)} at delta {show_atto(terms.delta_ceiling)}",
            {"remedy": "grant less, or declare the dataset with a higher `ceiling`: that is a new and weaker promise"},
        )
    return Grant(epsilon, delta, limits(terms, epsilon, delta), selection_limit(terms, delta))
