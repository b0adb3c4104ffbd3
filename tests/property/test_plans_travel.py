"""A priced question that went to another process is the same question, down to what is told apart by identity.

Laws, aggregates and vectors are compared with `is`; a copy of one would silently be none of them.
"""

import pickle
from dataclasses import fields, is_dataclass
from fractions import Fraction

import pytest

from service.core.plan import Loss
from service.core.request import Ask
from service.privacy.noise.laws import Law
from service.privacy.pricing.priced import PricedPlan
from service.privacy.primitives.noised import JOINT_MEAN, NoisedVector
from service.walk.question import put_question
from tests.fixtures.ledgers import TERMS
from tests.fixtures.sql.corpus import accepted
from tests.fixtures.sql.shop import SCHEMA

KEYS_ALONE = "SELECT DISTINCT country FROM customers"  # needs no data, and has no price
QUERIES = [sql for sql in accepted() if sql != KEYS_ALONE]


def told_apart(one: object, other: object, path: str = "plan") -> list[str]:
    """Where two values differ: by identity where equality is identity, by equality elsewhere."""
    if type(one) is not type(other):
        return [path]
    if isinstance(one, Law) or (is_dataclass(one) and type(one).__eq__ is object.__eq__):
        return [] if one is other else [path]
    if is_dataclass(one):
        pairs = [(getattr(one, each.name), getattr(other, each.name), each.name) for each in fields(one)]
    elif isinstance(one, dict):
        assert isinstance(other, dict)
        pairs = [(*pair, str(at)) for at, pair in enumerate(zip(one.items(), other.items(), strict=True))]
    elif isinstance(one, tuple | list):
        assert isinstance(other, tuple | list)
        pairs = [(*pair, str(at)) for at, pair in enumerate(zip(one, other, strict=True))]
    else:
        return [] if one == other else [path]
    return [found for left, right, name in pairs for found in told_apart(left, right, f"{path}.{name}")]


def drawn(plan: PricedPlan) -> list[object]:
    """What will be drawn, as release will see it: made anew from the plan in the other process."""
    return [
        plan.value_needs(),
        plan.bounds_needs,
        plan.keys_need,
        list(plan.drawn.items()),
        list(plan.brackets.items()),
    ]


@pytest.mark.parametrize("loss", [Loss("epsilon", 10**12, delta=10**10), Loss("rho", 10**11, delta=10**10)])
@pytest.mark.parametrize("sql", QUERIES)
def test_a_question_is_the_same_in_another_process(sql: str, loss: Loss) -> None:
    for plan in put_question(Ask("shop", sql, loss), SCHEMA, TERMS).priced.plans:
        there = pickle.loads(pickle.dumps(plan))
        assert told_apart(plan, there) == []
        assert told_apart(drawn(plan), drawn(there)) == []


def test_a_copy_of_a_vector_would_be_noticed() -> None:
    copy = NoisedVector(JOINT_MEAN.name, JOINT_MEAN.shape, JOINT_MEAN.words)
    assert told_apart([Fraction(1), JOINT_MEAN], [Fraction(1), copy]) == ["plan.1"]
