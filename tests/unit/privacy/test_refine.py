"""Asking again, more finely: pay the difference, lose nothing."""

from fractions import Fraction

import numpy as np
import pytest

from service.core.amounts import PICO
from service.core.boundary import ExactTable, KeyTable
from service.core.plan import ONE, Loss, Plan
from service.core.schema import DOUBLE
from service.privacy.noise.sampling import SecureNoise
from service.privacy.pricing.price import price
from service.privacy.pricing.priced import PricedQuery
from service.privacy.pricing.refine import difference, top_up
from service.privacy.primitives.derive import derive
from service.privacy.release import release_primitives
from tests.unit.privacy.questions import TERMS, aggregate, by_key, measure, plan, question

GROUPS = 5000
KEYS = KeyTable({"k0": np.arange(GROUPS).astype(object)}, GROUPS)


def core(*functions: str) -> Plan:
    aggregates = (aggregate(f, "m0", DOUBLE) for f in functions)
    return plan(*aggregates, measures=(measure(),), keys=by_key(GROUPS))


def at(asked: Plan, rho: int, kind: str = "rho") -> PricedQuery:
    return price(question(asked), Loss(kind, rho), TERMS)  # type: ignore[arg-type]


def primitives(priced: PricedQuery) -> dict[str, np.ndarray]:
    exact = {"m0.n": np.full(GROUPS, 900 * ONE), "m0.s1": np.full(GROUPS, 30_000 * ONE), "m0.s2": np.full(GROUPS, ONE)}
    (core_price,) = priced.plans
    return release_primitives(core_price, KEYS, [(core_price.value_needs(), ExactTable(exact))], SecureNoise())


def test_the_difference_is_all_that_is_charged() -> None:
    asked = core("avg", "count")
    coarse, fine = at(asked, PICO // 100), at(asked, PICO // 40)
    rest = difference(fine, [set(primitives(coarse))])
    assert rest is not None
    for paid, cheap, dear in zip(rest.cost.orders[:-1], coarse.cost.orders, fine.cost.orders, strict=False):
        assert abs(paid + cheap - dear) <= 1


def test_the_merged_answer_has_exactly_the_noise_that_was_wanted() -> None:
    asked = core("sum")
    coarse, fine = at(asked, PICO // 100), at(asked, PICO // 40)
    stored = primitives(coarse)
    rest = difference(fine, [set(stored)])
    assert rest is not None
    merged = top_up(stored, primitives(rest))
    assert list(merged) == list(fine.plans[0].parts.values())
    column = derive(asked, KEYS, merged).columns["sum_m0"]
    assert column.noise_std == pytest.approx(fine.plans[0].predictions["sum_m0"].noise_std)
    middle = (column.low + column.high) / 2
    seen = np.std(middle - 30_000)
    assert seen == pytest.approx(column.noise_std, rel=6 / (2 * GROUPS) ** 0.5)


def test_a_stored_answer_that_is_fine_enough_costs_nothing_for_its_part() -> None:
    stored = set(primitives(at(core("sum"), PICO)))
    pair = (measure(), measure("m1"))
    both = plan(*core("sum").aggregates, aggregate("sum", "m1", DOUBLE), measures=pair, keys=by_key(GROUPS))
    wanted = at(both, PICO // 10)
    rest = difference(wanted, [stored])
    assert rest is not None
    (left,) = rest.plans[0].slices
    assert left.demand.source == "m1"
    assert left.amount * Fraction(2) == PICO // 10


@pytest.mark.parametrize("kind", ["epsilon", "rho"])
def test_nothing_is_saved_under_laplace_noise_or_without_a_stored_twin(kind: str) -> None:
    asked = core("sum")
    wanted = at(asked, PICO // 40, kind)
    stored = set(primitives(at(asked, PICO // 100, kind))) if kind == "epsilon" else set()
    assert difference(wanted, [stored]) is None
