"""The engine hands over the same exact integers as ever, for every accepted query and every way to ask it.

tests/fixtures/golden.json.gz was written from the first version. What differs here is either a change of what is
computed, which must be meant, or a mistake. A new query of the corpus, or a DuckDB that hashes otherwise:
`python -m tests.fixtures.golden tests/fixtures/golden.json.gz`, and look at the difference.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.engine.base import Engine
from tests.fixtures.golden import SECONDS, imported, questions, record

FILE = Path(__file__).parents[2] / "fixtures" / "golden.json.gz"
GOLDEN: dict[str, Any] = json.loads(gzip.decompress(FILE.read_bytes()))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with imported(tmp_path_factory.mktemp("golden")) as held:
        yield held


def test_every_accepted_query_is_in_the_file() -> None:
    assert {name: (kept["dataset"], kept["sql"]) for name, kept in GOLDEN.items()} == questions()


@pytest.mark.parametrize("name", GOLDEN)
def test_a_query_has_the_same_needs_and_the_same_integers_as_ever(name: str, engine: Engine) -> None:
    kept = GOLDEN[name]
    with engine.slot(kept["dataset"], SECONDS) as slot:
        found = record(slot, kept["dataset"], kept["sql"], kept["ranges"], kept["sums"])
    assert found["ways"] == kept["ways"], "what is needed, and what is answered together"
    assert found["integers"] == kept["integers"]
