"""Asking the same thing in other words: never a second draw for nothing.

An attacker who gets k independent draws of one number averages the noise away by sqrt(k). So whatever
is free must be the numbers that were released before, and whatever is drawn anew must be paid for.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from service.app import Books, Walk
from service.core.plan import Loss
from service.core.request import Ask, AskedBounds, Principal
from service.walk.history import HistoryPart
from tests.fixtures.slots import answerer_of
from tests.fixtures.whole import ANALYST, OTHER, clinic

PICO = 10**12
BASE = "SELECT ward, COUNT(*) AS n, SUM(cost) AS s FROM visits WHERE cost > 10 AND town <> 'x' GROUP BY ward"

# Spellings of BASE that are recognised: free, and the same numbers.
SAME = (
    BASE.lower(),
    BASE.replace("visits", "VISITS").replace("SELECT", "select"),
    "SELECT  ward,\n COUNT(*) AS n, -- a comment\n SUM(cost) AS s FROM visits WHERE cost>10 AND town<>'x' GROUP BY 1",
    "SELECT v.ward, COUNT(*) AS n, SUM(v.cost) AS s FROM visits AS v WHERE v.cost > 10 AND v.town <> 'x' GROUP BY v.ward",  # noqa: E501
    "SELECT ward AS w, COUNT(*) AS other, SUM(cost) AS name FROM visits WHERE cost > 10 AND town <> 'x' GROUP BY w",
    "SELECT ward, COUNT(*) AS n, SUM(cost) AS s FROM visits WHERE town <> 'x' AND cost > 10 GROUP BY ward",
    "SELECT ward, COUNT(*) AS n, SUM(cost) AS s FROM visits WHERE (cost > 10) AND ((town != 'x')) GROUP BY ward",
    "SELECT ward, COUNT(*) AS n, SUM(cost) AS s FROM visits WHERE 'x' <> town AND cost > 10 AND cost > 10 GROUP BY ward",  # noqa: E501
    "SELECT ward, COUNT(1) AS n, SUM(cost) AS s FROM visits WHERE cost > 10 AND town <> 'x' GROUP BY ALL",
    BASE + " ORDER BY ward",
    BASE + " ORDER BY n DESC LIMIT 3",
    BASE + " HAVING COUNT(*) > -1000000000",
    "SELECT ward, n, s FROM (" + BASE + ") AS inner_query",
    "WITH c AS (" + BASE + ") SELECT ward, n, s FROM c",
)

# Spellings that mean the same but look like something else: each may be paid for, none may be a free new draw.
TRICKY = (
    "SELECT ward, COUNT(*) AS n, SUM(cost) AS s FROM visits WHERE NOT (cost <= 10 OR town = 'x') GROUP BY ward",
    "SELECT ward, COUNT(*) AS n, SUM(cost) AS s FROM visits WHERE 10 < cost AND town <> 'x' GROUP BY ward",
    "SELECT ward, COUNT(*) AS n, SUM(cost) AS s FROM visits WHERE cost > 10.0 AND town <> 'x' GROUP BY ward",
    "SELECT ward, COUNT(*) AS n, SUM(cost) AS s FROM visits WHERE cost >= 11 AND town <> 'x' GROUP BY ward",
    "SELECT ward, COUNT(*) AS n, SUM(cost + 0) AS s FROM visits WHERE cost > 10 AND town <> 'x' GROUP BY ward",
    "SELECT ward, COUNT(*) AS n, SUM(cost) AS s FROM (SELECT * FROM visits WHERE cost > 10) AS v"
    " WHERE town <> 'x' GROUP BY ward",
    "SELECT ward, COUNT(ward) AS n, SUM(cost) AS s FROM visits WHERE cost > 10 AND town <> 'x' GROUP BY ward",
)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Books, Walk]]:
    with clinic(tmp_path_factory.mktemp("clinic"), epsilon="3000") as opened:
        yield opened


def asking(sql: str, epsilon: float = 0.5, **more: Any) -> Ask:
    return Ask("clinic", sql, Loss("epsilon", int(epsilon * PICO), more.pop("delta", 0)), **more)


def ask(walk: Walk, question: Ask, principal: Principal = ANALYST) -> dict[str, Any]:
    body = walk.answerer.submit(question, principal, None, "", 30).body
    assert body is not None
    answer: dict[str, Any] = json.loads(body)
    return answer


def spent(books: Books) -> int:
    return books.ledger.balance("clinic").spent[-1]


@pytest.fixture(scope="module")
def first(opened: tuple[Books, Walk]) -> dict[str, Any]:
    return ask(opened[1], asking(BASE))


@pytest.mark.parametrize("sql", SAME)
def test_another_spelling_is_free_and_has_the_same_numbers(
    opened: tuple[Books, Walk], first: dict[str, Any], sql: str
) -> None:
    books, walk = opened
    before = spent(books)
    again = ask(walk, asking(sql), OTHER)
    assert sorted(again["rows"]) == sorted(first["rows"])
    assert (again["cost"]["epsilon"], again["cost"]["replay_of"]) == ("0", first["id"])
    assert spent(books) == before


@pytest.mark.parametrize("sql", TRICKY)
def test_what_is_not_recognised_is_paid_for(opened: tuple[Books, Walk], first: dict[str, Any], sql: str) -> None:
    books, walk = opened
    before = spent(books)
    again = ask(walk, asking(sql), OTHER)
    if spent(books) == before:
        assert sorted(again["rows"]) == sorted(first["rows"]), "free, but not what was released"
    else:
        assert spent(books) == before + PICO // 2, "a new draw costs its whole price"


def test_another_bound_price_or_law_never_makes_a_free_draw(opened: tuple[Books, Walk]) -> None:
    """Whatever is free holds, to the digit, the numbers of the query that it names."""
    books, walk = opened
    sql = BASE.replace("10", "12")
    ask(walk, asking(sql))
    free = 0
    for question in (
        asking(sql, 0.6),
        asking(sql, 0.1),
        asking(sql, bounds=AskedBounds(rows_per_unit=2)),
        asking(sql, bounds=AskedBounds(rows_per_unit=400)),
        asking(sql, bounds=AskedBounds(columns={"visits.cost": (Fraction(0), Fraction(50))})),
        replace(asking(sql), loss=Loss("rho", PICO // 10)),
        replace(asking(sql), loss=Loss("share", PICO // 1000)),
        asking(sql, 0.55),
    ):
        before = books.ledger.balance("clinic").spent[0]
        again = ask(walk, question)
        if books.ledger.balance("clinic").spent[0] == before:
            free += 1
            stored = walk.answers.get(again["cost"]["replay_of"])
            assert stored is not None
            assert again["rows"] == json.loads(stored.body)["rows"]
        else:
            assert again["cost"]["replay_of"] is None
    assert free >= 2, "less accuracy than stored is free"


def test_a_projection_and_arithmetic_come_from_the_same_release(opened: tuple[Books, Walk]) -> None:
    """COUNT alone, SUM alone and their ratio are read from what was drawn together."""
    books, walk = opened
    where = "FROM visits WHERE cost > 13 GROUP BY ward"
    first = ask(walk, asking(f"SELECT ward, COUNT(*) AS n, SUM(cost) AS s {where}"))
    before = spent(books)
    counts = ask(walk, asking(f"SELECT ward, COUNT(*) AS n {where}", 0.1))
    sums = ask(walk, asking(f"SELECT SUM(cost) AS s, ward {where}", 0.1))
    ratio = ask(walk, asking(f"SELECT ward, SUM(cost) / COUNT(*) AS r, 2 * COUNT(*) AS d {where}"))
    by_ward = {row[0]: row for row in first["rows"]}
    assert {row[0]: row[1] for row in counts["rows"]} == {ward: row[1] for ward, row in by_ward.items()}
    assert {row[1]: row[0] for row in sums["rows"]} == {ward: row[2] for ward, row in by_ward.items()}
    for (ward, quotient, double), low, high in zip(ratio["rows"], ratio["low_95"], ratio["high_95"], strict=True):
        assert double == 2 * by_ward[ward][1]
        rounding = (high[1] - low[1]) / 500  # a value is shown to about a thousandth of its interval
        assert quotient == pytest.approx(by_ward[ward][2] / by_ward[ward][1], rel=0, abs=rounding)
    assert spent(books) == before
    assert {one["cost"]["replay_of"] for one in (counts, sums, ratio)} == {first["id"]}


def test_an_average_asked_after_sum_and_count_is_their_quotient_and_free(opened: tuple[Books, Walk]) -> None:
    """Differencing primitives against each other shows one draw, not two."""
    books, walk = opened
    where = "FROM visits WHERE cost > 20 GROUP BY ward"
    whole = ask(walk, asking(f"SELECT ward, SUM(cost) AS s, COUNT(cost) AS n {where}", 40))
    before = spent(books)
    mean = ask(walk, asking(f"SELECT ward, AVG(cost) AS a {where}", 20))
    assert (spent(books), mean["cost"]["replay_of"]) == (before, whole["id"])
    for (_, s, n), (_, average) in zip(whole["rows"], mean["rows"], strict=True):
        assert average == pytest.approx(s / n, rel=0.02)


def test_undeclared_groups_are_selected_once(opened: tuple[Books, Walk]) -> None:
    books, walk = opened
    sql = "SELECT town, COUNT(*) AS n FROM visits GROUP BY town"
    whole = ask(walk, asking(sql, 2, delta=10**9))
    before = books.ledger.balance("clinic")
    for other in (sql + " ORDER BY n", "SELECT COUNT(*) AS n, town FROM visits v GROUP BY v.town", sql + " LIMIT 100"):
        again = ask(walk, asking(other, 2, delta=10**9))
        cells = sorted(sorted(map(str, row)) for row in again["rows"])
        assert cells == sorted(sorted(map(str, row)) for row in whole["rows"])
    after = books.ledger.balance("clinic")
    assert (after.spent, after.delta_spent) == (before.spent, before.delta_spent)


def test_fresh_pays_and_draws_anew_and_the_next_free_answer_is_one_of_them(opened: tuple[Books, Walk]) -> None:
    books, walk = opened
    sql = "SELECT COUNT(*) AS n, SUM(cost) AS s FROM visits WHERE cost > 33"
    draws = [ask(walk, asking(sql, 0.01, fresh=True)) for _ in range(4)]
    assert len({json.dumps(one["rows"]) for one in draws}) > 1
    before = spent(books)
    free = [ask(walk, asking(sql, 0.01)) for _ in range(4)]
    assert spent(books) == before
    assert {json.dumps(one["rows"]) for one in free} == {json.dumps(draws[-1]["rows"])}


def test_a_stored_answer_is_free_for_everyone_who_may_read_and_after_a_restart(
    opened: tuple[Books, Walk], first: dict[str, Any]
) -> None:
    books, walk = opened
    before = spent(books)
    restarted = answerer_of(books, walk)
    body = restarted.submit(asking(BASE), OTHER, None, "", 30).body
    assert json.loads(body or b"")["rows"] == first["rows"]
    assert spent(books) == before
    listed = restarted.history(OTHER, HistoryPart("clinic", "sum(COST) AS s FROM visits WHERE cost > 10"))
    assert listed[0]["replay_of"] == first["id"]
