"""An analyst's history: every question with what it took of the budget, also those that a died process left."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.app import Books, Walk
from service.core.amounts import Cost
from service.core.plan import Loss
from service.core.request import Ask
from service.ledger.holds import Hold
from service.walk.history import HistoryPart
from tests.fixtures.open_shop import BUYER, shop

PICO = 10**12
COUNT = "SELECT COUNT(*) AS n FROM customers WHERE age > {}"


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[Books, Walk]]:
    with shop(tmp_path) as opened:
        yield opened


def ask(opened: tuple[Books, Walk], sql: str) -> str:
    return opened[1].answerer.submit(Ask("shop", sql, Loss("epsilon", PICO)), BUYER, None, "", 60).query_id


def listed(opened: tuple[Books, Walk], **wanted: Any) -> list[dict[str, Any]]:
    return opened[1].answerer.history(BUYER, HistoryPart(**wanted))


def test_a_paid_question_shows_its_share_and_a_replay_nothing(opened: tuple[Books, Walk]) -> None:
    paid = ask(opened, COUNT.format(30))
    again = ask(opened, COUNT.format(30))
    newest, oldest = listed(opened)
    spent = opened[0].ledger.quota("shop", BUYER.prefix).spent
    assert (oldest["id"], oldest["replay_of"]) == (paid, None)
    assert float(oldest["share"]) * PICO == pytest.approx(spent)
    assert (newest["id"], newest["share"], newest["replay_of"]) == (again, "0", paid)


def test_pages_meet_without_gap_or_overlap(opened: tuple[Books, Walk]) -> None:
    asked = [ask(opened, COUNT.format(age)) for age in range(5)]
    first = listed(opened, limit=2)
    second = listed(opened, limit=2, before=first[-1]["id"])
    third = listed(opened, limit=2, before=second[-1]["id"])
    assert [line["id"] for line in (*first, *second, *third)] == asked[::-1]
    assert listed(opened, before="q_of_nobody") == []


def test_a_charge_whose_process_died_is_listed_without_its_text(opened: tuple[Books, Walk]) -> None:
    books, _ = opened
    answered = ask(opened, COUNT.format(30))
    width = len(books.ledger.balance("shop").limits)
    books.ledger.reserve(Hold("q_left", "shop", BUYER.prefix, "", Cost((7,) * width), 5))
    line = next(line for line in listed(opened) if line["id"] == "q_left")
    assert (line["status"], line["sql"], line["share"]) == ("running", None, "5e-12")
    books.ledger.settle("q_left", "failed")
    states = {line["id"]: line["status"] for line in listed(opened, dataset="shop")}
    assert states == {"q_left": "failed", answered: "answered"}
    assert [line["id"] for line in listed(opened, text="count")] == [answered], "there is no text to search"
