from collections.abc import Iterator

import pytest

from tests.fixtures.service import House, ScriptedAnswerer, open_house


@pytest.fixture(scope="module")
def shared_house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    opened = open_house(tmp_path_factory.mktemp("house"), requests_per_minute=1_000_000)
    yield opened
    opened.close()


@pytest.fixture
def house(shared_house: House) -> House:
    """One store per file, a fresh script per test."""
    fresh = ScriptedAnswerer()
    shared_house.answerer.sent, shared_house.answerer.error = fresh.sent, fresh.error
    shared_house.answerer.asked.clear()
    return shared_house
