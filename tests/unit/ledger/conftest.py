"""Every test here runs on both stores."""

from collections.abc import Iterator

import pytest

from service.ledger.book import Ledger
from service.store.database import Store
from tests.fixtures.ledgers import ADMIN, GRANT, KINDS, TERMS, fresh_url, open_ledger


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(kind: str) -> str:
    return fresh_url(kind)


@pytest.fixture
def book(url: str) -> Iterator[tuple[Store, Ledger]]:
    """A store and a ledger in which `shop` has its first budget."""
    with open_ledger(url) as (store, ledger):
        ledger.open_account("shop", TERMS, GRANT, ADMIN)
        yield store, ledger


@pytest.fixture
def store(book: tuple[Store, Ledger]) -> Store:
    return book[0]


@pytest.fixture
def ledger(book: tuple[Store, Ledger]) -> Iterator[Ledger]:
    """Whatever a test did, the journal explains it."""
    yield book[1]
    verdict = book[1].verify()
    assert verdict.holds, verdict.problem
