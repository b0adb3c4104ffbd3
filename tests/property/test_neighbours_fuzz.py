"""Random questions, from SQL text to the integers that noise is added to, on neighbouring datasets.

As test_neighbours_whole_chain.py, but nobody chose the questions: a grammar (tests/fixtures/sql/grammar.py) puts
joins, subqueries, filters, expressions, keys, bounds and prices together, and three people are removed in turn:
one with many equal rows, one with many odd rows, one with few rows that joins multiply. Everything that is drawn
is held against one total: parts, choices (by the share of their histogram that moved), keys and bounds.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

import duckdb
import numpy as np
import pytest
from sqlglot import exp

from service.core.amounts import PICO
from service.core.boundary import KeyTable, Primitive
from service.core.errors import ServiceError
from service.core.plan import ONE, BoundsNeed, KeysNeed, Need, Plan
from service.core.request import Ask, AskedBounds
from service.engine.emit.statements import emit
from service.privacy.noise.laws import LAPLACE
from service.privacy.pricing.price import price
from service.privacy.pricing.priced import PricedPlan, PricedQuery, SelectedKeys
from service.privacy.release import release_bounds, release_primitives
from service.sql.understand import understand
from tests.fixtures.prepared import fetch, prepared
from tests.fixtures.recorder import SALT, NoNoise, computed
from tests.fixtures.sql import grammar
from tests.fixtures.sql.exact import day
from tests.fixtures.sql.shop import SCHEMA, START, rows
from tests.property.test_neighbours_whole_chain import TERMS, Data, assert_claim, keys_of, moved, without

ALIKE, ODD, JOINED = 2, 5, 7
FAR = 2**60
Database = duckdb.DuckDBPyConnection
Worlds = tuple[Database, dict[int, Database]]

SEEDS = 9  # of the default run; each asks QUESTIONS
QUESTIONS = 10


def world() -> Data:
    everyone = rows(23, customers=14)
    everyone["stores"] += [{"store": FAR + i, "city": f"City {i % 2}"} for i in range(30)]
    for number in range(60):
        everyone["orders"].append(order(10_000 + number, ALIKE))
    draw = random.Random(5)
    for number in range(80):
        odd = {
            "amount": draw.choice((Decimal("99999999.99"), Decimal("-5.55"), Decimal(900), Decimal("0.01"), None)),
            "status": draw.choice(("paid", "open", "1", "x", "", None)),
            "store": draw.choice((0, 1, 2, -1, 2**63 - 1, -(2**63), None)),
            "weight": draw.choice((1.0, -16.0, 1e300, float("inf"), float("nan"), -0.0, 0.5, None)),
            "raw": draw.choice((1.0, 0.5, float("nan"), float("-inf"), 1e308, -0.0, 900.0, None)),
            "placed": draw.choice((day(START + number % 9), day(-(10**5)), day(10**6), None)),
        }
        everyone["orders"].append({**order(20_000 + number, ODD), **odd})
        everyone["items"].append(item(20_000 + number, draw))
        everyone["visits"].append({"visitor": ODD, "page": draw.choice("xyz"), "seconds": draw.choice((0, 51, 10**6))})
    for number in range(5):
        everyone["orders"].append({**order(FAR + number, JOINED), "raw": float(FAR), "store": 30_000})
        everyone["items"] += [item(FAR + number, draw) for _ in range(2)]
    everyone["orders"].append(order(30_000, JOINED))
    return everyone


def order(number: int, customer: int) -> dict[str, object]:
    told = {"amount": Decimal(900), "status": "paid", "store": 1, "weight": 1.0, "raw": 1.0}
    return {
        "order_id": number,
        "customer_id": customer,
        "placed": day(START + 1),
        "moment": datetime(2021, 1, 1),
        **told,
    }


def item(number: int, draw: random.Random) -> dict[str, object]:
    price_ = draw.choice((Decimal(100), Decimal("1.23"), Decimal(-3)))
    return {"order_id": number, "product_id": 1, "price": price_, "discount": Decimal("0.5"), "quantity": 20}


@pytest.fixture(scope="module")
def worlds() -> Worlds:
    everyone = world()
    return prepared(SCHEMA, everyone), {p: prepared(SCHEMA, without(everyone, p)) for p in (ALIKE, ODD, JOINED)}


def asked(draw: random.Random) -> tuple[str, PricedQuery] | None:
    """A question with a price; where the bounds don't fit it, without them."""
    at = grammar.source(draw)
    text = grammar.sql(draw, at)
    bounds = grammar.bounds(draw, at, text)
    loss = grammar.loss(draw, bounds.clip)
    plain = AskedBounds(rows_per_unit=bounds.rows_per_unit, groups_per_unit=bounds.groups_per_unit, clip=bounds.clip)
    wide = dict.fromkeys((name for name in at.bounded if name in WITHOUT_RANGE), (Fraction(-50), Fraction(50)))
    given = AskedBounds(**{**{f: getattr(bounds, f) for f in FIELDS}, "columns": {**wide, **bounds.columns}})
    for some in (given, AskedBounds(**{**{f: getattr(plain, f) for f in FIELDS}, "columns": wide}), plain):
        try:
            query = understand(Ask("shop", text, bounds=some, min_units=draw.choice((None, 2))), SCHEMA)
            return f"{text} {some} {loss}", price(query, loss, TERMS)
        except ServiceError:
            continue
    return None


FIELDS = ("rows_per_unit", "groups_per_unit", "columns", "unit_sum", "clip", "slots")
WITHOUT_RANGE = ("orders.store", "orders.raw", "customers.lucky", "products.cost")


@dataclass(frozen=True)
class Seen:
    """What noise would be added to in one database: the parts of stage 2, and the cells of everything else."""

    parts: Mapping[Primitive, np.ndarray]
    cells: Mapping[Need, Mapping[tuple[str, ...], int]]

    def gaps(self, other: "Seen", need: Need) -> list[int]:
        one, two = self.cells[need], other.cells[need]
        return [abs(one.get(at, 0) - two.get(at, 0)) for at in one.keys() | two.keys()]


def every_key(plan: PricedPlan) -> KeysNeed | None:
    """The keys with all their people: a group that falls below min_units is never named."""
    return None if plan.keys_need is None else replace(plan.keys_need, min_units=1)


def seen(plan: PricedPlan, keys: KeyTable, database: Database) -> Seen:
    """People counted by the selection are held against its own claim: here they are 0."""
    exacts = computed(database, plan.plan, plan.value_needs(), keys)
    counted = SelectedKeys(keys, np.zeros(keys.size, dtype=np.int64)) if plan.counted_units is not None else keys
    needs = [*plan.bounds_needs, *filter(None, [every_key(plan)]), *(value.needs[0] for value in plan.chosen_values)]
    found = {need: cells(plan.plan, need, database) for need in dict.fromkeys(needs)}
    return Seen(release_primitives(plan, counted, exacts, NoNoise()), found)


def cells(plan: Plan, need: Need, database: Database) -> dict[tuple[str, ...], int]:
    """By group and bin. The key table is the one that the values were computed with."""
    ((statement, _),) = emit(plan, (need,), salt=SALT)
    columns = fetch(database, statement)
    value = "n" if "n" in columns else "weight"
    if isinstance(need, BoundsNeed):
        columns["bin"] = list(range(len(columns[value])))
    places = [columns[name] for name in columns if name not in (value, "units")] or [[0] * len(columns[value])]
    return {tuple(map(repr, at)): int(n) for *at, n in zip(*places, columns[value], strict=True)}


def with_bounds(plan: PricedPlan, database: Database) -> PricedPlan:
    """The bounds that one database gives, found without noise: public from then on."""
    if not plan.bounds_needs:
        return plan
    exacts = computed(database, plan.plan, plan.bounds_needs, None)
    return plan.given(release_bounds(plan, exacts, NoNoise()))


def spent(plan: PricedPlan, one: Seen, other: Seen) -> Fraction:
    """The epsilon or rho that telling the two apart takes, over everything that one core draws."""
    staged = [*plan.bounds_stage, *([plan.keys_stage[0]] if plan.keys_stage is not None else [])]
    total = sum((Fraction(part.amount, PICO) for part in staged), Fraction(0))  # these count in full
    for need in [*plan.bounds_needs, *filter(None, [every_key(plan)])]:
        assert_claim(need, one.gaps(other, need))
    linear, square = moved(dict(one.parts), dict(other.parts), plan)
    total += linear if plan.law is LAPLACE else square / 2
    for value in plan.draws.values():
        share = Fraction(sum(one.gaps(other, value.needs[0])), ONE * value.bound)
        assert share <= 1
        if plan.law is LAPLACE:
            total += (value.epsilon + value.around) * share
        else:
            total += (value.epsilon**2 / 8 + value.around) * share**2
    for tree in plan.trees.values():  # a row is counted once on each level; the event is for all of them
        share = Fraction(sum(one.gaps(other, tree.needs[0])), ONE * tree.mechanism.rows_per_unit)
        assert share <= 1
        total += tree.mechanism.amount * (share if plan.law is LAPLACE else share**2)
    return total


def leavers(priced: PricedQuery, worlds: Worlds) -> dict[int, Fraction]:
    """What each of the three people moves of one question, in epsilon or rho."""
    everyone, others = worlds
    totals = dict.fromkeys(others, Fraction(0))
    for core in priced.plans:
        plan = with_bounds(core, everyone)
        keys = keys_of(plan.plan, everyone, *others.values())
        whole = seen(plan, keys, everyone)
        for leaver, fewer in others.items():
            totals[leaver] += spent(plan, whole, seen(plan, keys, fewer))
    return totals


def check(seed: int, worlds: Worlds, questions: int) -> int:
    draw = random.Random(seed)
    answered = 0
    for _ in range(questions):
        question = asked(draw)
        if question is None:
            continue
        text, priced = question
        answered += 1
        for leaver, total in leavers(priced, worlds).items():
            assert total * PICO <= priced.amount, f"seed {seed}, without {leaver}: {float(total)} for {text}"
    return answered


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nobody_moves_more_than_a_random_question_paid_for(seed: int, worlds: Worlds) -> None:
    assert check(seed, worlds, QUESTIONS) > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000, 1_400))
def test_nobody_moves_more_than_many_random_questions_paid_for(seed: int, worlds: Worlds) -> None:
    check(seed, worlds, 4 * QUESTIONS)


def worst_of(words: tuple[str, ...], worlds: Worlds, tries: int = 6) -> Fraction:
    """The largest part of its price that anybody moves, over the first questions that contain all `words`."""
    worst = Fraction(0)
    for seed in range(20_000):
        draw = random.Random(seed)
        text = grammar.sql(draw, grammar.source(draw))
        question = asked(random.Random(seed)) if all(word in text for word in words) else None
        if question is None:
            continue
        tries -= 1
        worst = max(worst, *(total * PICO / question[1].amount for total in leavers(question[1], worlds).values()))
        if tries == 0 or worst > 1:
            break
    return worst


def test_the_fuzz_catches_casts_taken_for_literals(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("o.store = 1", "o.store = CAST(1.4 AS BIGINT)")
    assert worst_of(words, worlds) <= 1
    monkeypatch.setattr("service.sql.cores.disjoint.is_literal", lambda tree: tree.find(exp.Column) is None)
    assert worst_of(words, worlds) > 1


def test_the_fuzz_catches_keys_that_are_unique_only_as_integers(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("o.raw = s.store", "COUNT(*)")
    assert worst_of(words, worlds) <= 1
    monkeypatch.setattr("service.sql.rows.bind.in_one_type", lambda left, right, node: (left, right))
    assert worst_of(words, worlds, tries=40) > 1
