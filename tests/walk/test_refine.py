"""Asking again for more: only the difference is paid, and nothing is lost by asking coarsely first."""

import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from service.app import Books, Walk
from service.core.plan import Loss
from service.core.request import Ask, AskedBounds
from tests.fixtures.whole import ANALYST, OTHER, clinic, visits

PICO = 10**12
COUNT = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Books, Walk]]:
    with clinic(tmp_path_factory.mktemp("clinic"), epsilon="3000") as opened:
        yield opened


def rho(sql: str, amount: float, **more: Any) -> Ask:
    return Ask("clinic", sql, Loss("rho", int(amount * PICO)), **more)


def ask(walk: Walk, question: Ask, principal: Any = ANALYST) -> dict[str, Any]:
    done = walk.answerer.submit(question, principal, None, "", 30)
    assert done.body is not None
    body: dict[str, Any] = json.loads(done.body)
    return body


def test_refining_costs_the_difference_and_its_estimate_says_so(opened: tuple[Books, Walk]) -> None:
    books, walk = opened
    sql = "SELECT ward, COUNT(*) AS n, SUM(cost) AS s FROM visits WHERE cost > 3 GROUP BY ward"
    coarse = ask(walk, rho(sql, 0.125))
    assert coarse["cost"]["rho"] == "0.125"
    estimate = walk.answerer.estimate(rho(sql, 0.5), OTHER)
    before = books.ledger.balance("clinic").spent
    fine = ask(walk, rho(sql, 0.5), OTHER)
    after = books.ledger.balance("clinic").spent
    assert fine["cost"] == estimate["cost"]
    assert fine["cost"]["rho"] == "0.375"
    at, order = 0, books.ledger.terms("clinic").orders[0]
    assert after[at] - before[at] == pytest.approx(float(order) * 0.375 * PICO, rel=1e-9)
    assert fine["columns"][1]["noise_std"] == pytest.approx(coarse["columns"][1]["noise_std"] / 2, rel=1e-6)


def test_a_coarser_question_is_answered_from_the_finer_answer_for_nothing(opened: tuple[Books, Walk]) -> None:
    _, walk = opened
    sql = "SELECT ward, COUNT(*) AS n FROM visits WHERE cost > 5 GROUP BY ward"
    fine = ask(walk, rho(sql, 0.5))
    coarse = ask(walk, rho(sql, 0.1))
    assert (coarse["rows"], coarse["cost"]["replay_of"]) == (fine["rows"], fine["id"])


def test_the_refined_noise_has_the_variance_that_the_whole_price_buys(opened: tuple[Books, Walk]) -> None:
    """60 refinements: the variance of three counts each is within five deviations of the promise."""
    _, walk = opened
    table = visits().to_pydict()
    exact = np.array([sum(ward == wanted for ward in table["ward"]) for wanted in "abc"])
    errors, unrefined, promised = [], [], 0.0
    for turn in range(60):
        sql = f"SELECT ward, COUNT(*) AS n FROM visits WHERE cost > -{turn + 1} GROUP BY ward"
        coarse = ask(walk, rho(sql, 0.005))
        fine = ask(walk, rho(sql, 0.02))
        promised = fine["columns"][1]["noise_std"]
        errors += [row[1] - truth for row, truth in zip(fine["rows"], exact, strict=True)]
        unrefined += [row[1] - truth for row, truth in zip(coarse["rows"], exact, strict=True)]
    spread = np.sqrt(2 / len(errors))
    assert abs(np.var(errors) / promised**2 - 1) < 5 * spread, "not the noise that was promised"
    # The broken twin: a top-up that hands the stored answer out again.
    assert abs(np.var(unrefined) / promised**2 - 1) > 5 * spread, "the check would not see a top-up that adds nothing"


def test_fresh_pays_in_full(opened: tuple[Books, Walk]) -> None:
    _, walk = opened
    first = ask(walk, rho(COUNT, 0.25))
    again = ask(walk, replace(rho(COUNT, 0.25), fresh=True))
    assert again["cost"]["rho"] == "0.25"
    assert again["cost"]["replay_of"] is None
    assert again["id"] != first["id"]


def test_pure_epsilon_is_never_refined_from_gaussian_noise(opened: tuple[Books, Walk]) -> None:
    _, walk = opened
    sql = "SELECT ward, COUNT(*) AS n FROM visits WHERE cost > 9 GROUP BY ward"
    ask(walk, rho(sql, 0.001))
    pure = ask(walk, Ask("clinic", sql, Loss("epsilon", PICO)))
    assert pure["cost"]["epsilon"] == "1"


# --- Releases made under other bounds are other numbers, however little noise they have ----------------------


def bounded(rows: int, **more: Any) -> AskedBounds:
    return AskedBounds(rows_per_unit=rows, **more)


def test_refining_never_reads_a_release_made_under_other_bounds(opened: tuple[Books, Walk]) -> None:
    """A precise sum of one row per patient, then a coarse and a finer one of four: about 44,000 and 111,000."""
    _, walk = opened
    sql = "SELECT SUM(cost) AS s FROM visits WHERE cost >= 0"
    precise = ask(walk, rho(sql, 2, bounds=bounded(1)))
    capped = ask(walk, rho(sql, 2, bounds=bounded(4, unit_sum={"visits.cost": Fraction(5)})))
    ask(walk, rho(sql, 0.05, bounds=bounded(4)))
    finer = ask(walk, rho(sql, 0.2, bounds=bounded(4)))
    again = ask(walk, rho(sql, 0.2, bounds=bounded(4)))
    assert precise["rows"][0][0] < 50_000 and capped["rows"][0][0] < 10_000
    assert finer["cost"]["rho"] == "0.15"
    assert 100_000 < finer["rows"][0][0] < 120_000
    assert (again["rows"], again["cost"]["replay_of"]) == (finer["rows"], finer["id"])


def test_found_bounds_are_replayed_under_the_same_bound_of_rows_only(opened: tuple[Books, Walk]) -> None:
    _, walk = opened
    for sql in (
        "SELECT AVG(cost) AS m, COUNT(cost) AS n FROM visits WHERE cost > 1",
        "SELECT MEDIAN(cost) AS n FROM visits",
    ):
        found = {"visits.cost": None}
        one = ask(walk, rho(sql, 0.5, bounds=bounded(1, columns=found)))
        four = ask(walk, rho(sql, 0.5, bounds=bounded(4, columns=found)))
        again = ask(walk, rho(sql, 0.5, bounds=bounded(4, columns=found)))
        assert four["cost"]["replay_of"] is None and four["id"] != one["id"]
        assert (again["rows"], again["cost"]["replay_of"]) == (four["rows"], four["id"])
        if "COUNT" in sql:
            assert four["rows"][0][1] > 1.5 * one["rows"][0][1], "four rows of a patient count, not one"
