"""Nobody is surprised by a cost: the later charge is the estimate, to the last digit, over the whole corpus."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from service.api.asks import ask_of, fitted
from service.api.requests import EstimateListWire, QuestionWire
from service.app import Books, Walk
from service.core.amounts import CLOSED, show_atto, show_pico
from service.core.errors import ConstructRefused, LossOutOfRange
from service.core.plan import Accuracy, Loss
from service.core.request import Ask
from service.walk.history import HistoryPart
from service.walk.question import put_question
from tests.fixtures.open_shop import BUYER, shop
from tests.fixtures.sql.corpus import accepted

PICO = 10**12
DELTA = 10**9
COUNT = "SELECT country, COUNT(*) AS n FROM customers WHERE age > {} GROUP BY country"
TOWNS = "SELECT status, COUNT(*) AS n FROM orders WHERE store > {} GROUP BY status"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Books, Walk]]:
    with shop(tmp_path_factory.mktemp("shop")) as opened:
        yield opened


def asked(opened: tuple[Books, Walk], ask: Ask) -> tuple[dict[str, Any], dict[str, Any]]:
    """The estimate and the answer; what the ledger moved by is the estimate's cost exactly."""
    books, walk = opened
    estimate = walk.answerer.estimate(ask, BUYER)
    before = books.ledger.balance("shop")
    answer: dict[str, Any] = json.loads(walk.answerer.submit(ask, BUYER, None, "", 60).body or b"")
    after = books.ledger.balance("shop")
    assert answer["cost"] == estimate["cost"]
    if estimate["cost"]["epsilon"] is not None and before.spent[-1] < CLOSED:
        assert show_pico(after.spent[-1] - before.spent[-1]) == estimate["cost"]["epsilon"]
    assert show_atto(after.delta_spent - before.delta_spent) == estimate["cost"]["delta"]
    if estimate["replay_of"] is None:
        assert estimate["remaining_after"] == answer["remaining"]
        assert estimate["plan_digest"] == answer["receipt"]["plan_digest"]
        assert estimate["mechanisms"] == answer["receipt"]["mechanisms"]
    return estimate, answer


@pytest.mark.parametrize("sql", accepted())
def test_the_charge_is_the_estimate(opened: tuple[Books, Walk], sql: str) -> None:
    ask = Ask("shop", sql, Loss("epsilon", 10 * PICO, DELTA))
    try:
        estimate, answer = asked(opened, ask)
    except ConstructRefused as refused:  # nothing private in it: refused by both in the same words, for nothing
        with pytest.raises(ConstructRefused, match=re.escape(refused.detail)):
            opened[1].answerer.submit(ask, BUYER, None, "", 60)
        return
    told = {column["name"]: column.get("half_width_95") for column in estimate["columns"]}
    for column in answer["columns"]:
        promised, got = told[column["name"]], column.get("half_width_95")
        if promised is not None and got is not None and estimate["replay_of"] is None:
            assert got == pytest.approx(promised, rel=1e-9), column["name"]


@pytest.mark.parametrize("sql", accepted()[::10])
def test_so_it_is_under_rho(opened: tuple[Books, Walk], sql: str) -> None:
    """At every order, not only the one that is shown."""
    books, walk = opened
    ask = Ask("shop", sql, Loss("rho", PICO // 7, DELTA), fresh=True)
    before = books.ledger.balance("shop").spent
    estimate, _ = asked(opened, ask)
    assert Fraction(estimate["cost"]["rho"]) == Fraction(PICO // 7, PICO)
    moved = books.ledger.balance("shop").spent[0] - before[0]
    again = walk.answerer.estimate(ask, BUYER)
    assert again["cost"] == estimate["cost"]
    assert moved > 0


@pytest.mark.parametrize("name", ["m", "country"])
def test_weights_and_accuracy_name_values_and_are_told_which_there_are(opened: tuple[Books, Walk], name: str) -> None:
    weighted = Loss("epsilon", PICO, weights={name: Fraction(2)})
    for loss in (weighted, Loss("accuracy", 0, accuracy=Accuracy(name, Fraction(5), Fraction(19, 20)))):
        with pytest.raises(LossOutOfRange, match="not a value of this query") as refused:
            opened[1].answerer.estimate(Ask("shop", COUNT.format(1), loss), BUYER)
        assert refused.value.extra["remedy"] == "name one of: n"


def test_of_several_questions_the_refused_one_is_named(opened: tuple[Books, Walk]) -> None:
    good, bad = Ask("shop", COUNT.format(1), Loss("epsilon", PICO)), Ask("shop", "SELECT x FROM customers")
    with pytest.raises(ConstructRefused) as refused:
        opened[1].answerer.estimate_all([good, bad], BUYER)
    assert refused.value.extra["where"] == "body.queries.1"
    wire = EstimateListWire.model_validate({"queries": [{"dataset": "shop", "sql": "SELECT 1", "epsilon": "none"}]})
    with pytest.raises(LossOutOfRange) as refused_amount:
        fitted(wire)
    assert refused_amount.value.extra["where"] == "body.queries.0"


def test_an_estimate_touches_neither_ledger_nor_history(opened: tuple[Books, Walk]) -> None:
    books, walk = opened
    before = (books.ledger.balance("shop"), len(walk.answerer.history(BUYER, HistoryPart())))
    walk.answerer.estimate(Ask("shop", COUNT.format(1), Loss("epsilon", PICO)), BUYER)
    assert (books.ledger.balance("shop"), len(walk.answerer.history(BUYER, HistoryPart()))) == before


@pytest.mark.parametrize("half_width", [3, 50])
def test_which_epsilon_gives_that_width(opened: tuple[Books, Walk], half_width: int) -> None:
    _, walk = opened
    accuracy = Accuracy("n", Fraction(half_width), Fraction(95, 100))
    wanted = Ask("shop", COUNT.format(half_width), Loss("accuracy", 0, accuracy=accuracy))
    estimate, answer = asked(opened, wanted)
    assert 0 < answer["columns"][1]["half_width_95"] <= half_width * 1.000001
    for kind, amount in estimate["would_need"].items():
        loss = Loss(kind, int(Fraction(amount) * PICO))
        priced = walk.answerer.estimate(Ask("shop", COUNT.format(half_width + 100), loss), BUYER)
        assert priced["columns"][1]["half_width_95"] <= half_width * 1.000001
        assert priced["columns"][1]["half_width_95"] >= half_width * 0.6 - 1, "and not far more than was asked for"
    assert set(estimate["would_need"]) == {"epsilon", "rho"}


def test_groups_that_are_not_declared_have_a_threshold_of_their_own_field(opened: tuple[Books, Walk]) -> None:
    _, walk = opened
    declared = walk.answerer.estimate(Ask("shop", COUNT.format(7), Loss("epsilon", PICO)), BUYER)
    assert declared["groups"] == [{"declared": True, "threshold": None}]
    loose = walk.answerer.estimate(Ask("shop", TOWNS.format(7), Loss("epsilon", PICO, 10**12)), BUYER)
    tight = walk.answerer.estimate(Ask("shop", TOWNS.format(7), Loss("epsilon", PICO, 10**6)), BUYER)
    (one,), (other,) = loose["groups"], tight["groups"]
    assert one["threshold"]["people"] < other["threshold"]["people"], "less delta, more people"
    assert (one["threshold"]["delta"], one["threshold"]["min_units"]) == ("1e-6", 1)


def test_defaults_that_were_taken_are_named(opened: tuple[Books, Walk]) -> None:
    _, walk = opened
    estimate = walk.answerer.estimate(Ask("shop", TOWNS.format(8), Loss("epsilon", PICO)), BUYER)
    assert estimate["defaults_applied"] == {
        "delta": "5e-9", "rows_per_unit": 50, "groups_per_unit": 5, "min_units": 1,
        "bounds_from": "rows_per_unit: declared for the dataset; groups_per_unit: declared for the dataset",
    }  # fmt: skip


def test_a_list_is_priced_together_and_repeats_count_once(opened: tuple[Books, Walk]) -> None:
    books, walk = opened
    asks = [Ask("shop", COUNT.format(20 + n), Loss("epsilon", PICO // 4)) for n in (0, 1, 2, 2)]
    batch = walk.answerer.estimate_all(asks, BUYER)
    (total,) = batch["totals"]
    assert (total["dataset"], total["epsilon"], total["fits"]) == ("shop", "0.75", True)
    before = books.ledger.quota("shop", BUYER.prefix).spent
    for ask in asks:
        walk.answerer.submit(ask, BUYER, None, "", 60)
    assert show_pico(books.ledger.quota("shop", BUYER.prefix).spent - before) == total["share"]


def test_a_query_that_does_not_fit_says_so(opened: tuple[Books, Walk]) -> None:
    _, walk = opened
    estimate = walk.answerer.estimate(Ask("shop", COUNT.format(40), Loss("epsilon", 10**6 * PICO)), BUYER)
    assert (estimate["fits"], estimate["similar_queries_left"]) == (False, 0)


def fit(*queries: dict[str, Any], epsilon: str = "0.5") -> list[Ask]:
    return fitted(EstimateListWire.model_validate({"queries": list(queries), "fit": {"epsilon": epsilon}}))


def test_twelve_queries_are_made_to_fit_half_an_epsilon(opened: tuple[Books, Walk]) -> None:
    _, walk = opened
    asks = fit(*({"dataset": "shop", "sql": COUNT.format(60 + n)} for n in range(12)))
    (total,) = walk.answerer.estimate_all(asks, BUYER)["totals"]
    assert Fraction(1, 2) - Fraction(12, PICO) <= Fraction(total["epsilon"]) <= Fraction(1, 2)


def test_queries_with_their_own_epsilon_keep_their_proportions() -> None:
    one, other = fit(
        {"dataset": "shop", "sql": "SELECT 1", "epsilon": "3", "delta": "1e-9", "weights": {"n": 2}},
        {"dataset": "shop", "sql": "SELECT 1", "epsilon": "1"},
        epsilon="0.4",
    )
    assert one.loss == Loss("epsilon", 3 * PICO // 10, DELTA, None, {"n": Fraction(2)})
    assert other.loss == Loss("epsilon", PICO // 10)


def test_too_little_for_so_many_is_refused() -> None:
    with pytest.raises(LossOutOfRange, match="too little"):
        fit(*({"dataset": "shop", "sql": "SELECT 1"} for _ in range(3)), epsilon="1e-12")


def test_a_delta_or_weights_alone_go_with_the_default_epsilon(opened: tuple[Books, Walk]) -> None:
    ask = ask_of(QuestionWire.model_validate({"dataset": "shop", "sql": TOWNS.format(9), "delta": "1e-9"}))
    with pytest.raises(LossOutOfRange, match="has no default"):
        opened[1].answerer.estimate(ask, BUYER)
    schema = opened[0].catalog.schema("shop")
    given = replace(schema, defaults=replace(schema.defaults, epsilon=PICO // 5))
    question = put_question(ask, given, opened[0].ledger.terms("shop"))
    assert (question.loss.amount, question.loss.delta) == (PICO // 5, DELTA)
