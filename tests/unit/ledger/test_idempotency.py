"""One key, one request, one charge."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from service.core.errors import AnswerFailed, IdempotencyKeyReused
from service.ledger.book import AttemptExists, Ledger
from tests.fixtures.ledgers import ask


def test_a_second_attempt_finds_the_first_and_pays_nothing(ledger: Ledger) -> None:
    first = ask(key="k")
    ledger.reserve(first)
    with pytest.raises(AttemptExists) as caught:
        ledger.reserve(ask(key="k"))
    assert caught.value.attempt.query_id == first.query_id
    assert caught.value.attempt.state == "held"
    assert ledger.balance("shop").spent == (1, 2, 3)


def test_the_same_key_with_another_body_is_refused(ledger: Ledger) -> None:
    ledger.reserve(ask(key="k"))
    with pytest.raises(IdempotencyKeyReused):
        ledger.reserve(ask(key="k", request_hash="other"))
    assert ledger.balance("shop").spent == (1, 2, 3)


def test_a_key_never_crosses_principals(ledger: Ledger) -> None:
    ledger.reserve(ask(key="k"))
    assert ledger.lookup("hk_bob", "k") is None
    ledger.reserve(ask(key="k", principal="hk_bob"))
    assert ledger.lookup("hk_ann", "k") != ledger.lookup("hk_bob", "k")


def test_queries_without_a_key_never_collide(ledger: Ledger) -> None:
    for _ in range(3):
        ledger.reserve(ask(key=None))
    assert ledger.balance("shop").spent == (3, 6, 9)


def test_an_attempt_that_died_stays_failed_under_its_key(ledger: Ledger) -> None:
    asked = ask(key="k")
    ledger.reserve(asked)
    ledger.settle(asked.query_id, "failed")
    attempt = ledger.lookup("hk_ann", "k")
    assert attempt is not None
    assert attempt.state == "failed"
    with pytest.raises(AttemptExists):
        ledger.reserve(ask(key="k"))
    with pytest.raises(AnswerFailed):
        ledger.settle(asked.query_id, "answered")


def test_of_sixteen_equal_requests_at_once_one_is_charged(ledger: Ledger) -> None:
    def attempt(_: int) -> bool:
        try:
            ledger.reserve(ask(key="same"))
        except AttemptExists:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(attempt, range(16))) == 1
    assert ledger.balance("shop").spent == (1, 2, 3)
