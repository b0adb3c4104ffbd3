"""Every refusal names the construct and a remedy, and says where."""

import pytest

from service.core.errors import BoundsMissing, ConstructRefused, ServiceError
from service.core.request import Ask
from service.sql.understand import understand
from tests.fixtures.sql.corpus import refused
from tests.fixtures.sql.shop import SCHEMA


@pytest.mark.parametrize(("construct", "words", "sql"), refused())
def test_a_refusal_names_construct_place_and_remedy(construct: str, words: str, sql: str) -> None:
    with pytest.raises(ServiceError) as refusal:
        understand(Ask("shop", sql), SCHEMA)
    error = refusal.value
    assert words in error.detail
    if construct == "bounds-missing":
        assert isinstance(error, BoundsMissing)
    else:
        assert isinstance(error, ConstructRefused)
        assert error.extra["construct"] == construct
    assert error.extra["remedy"]
    assert error.extra["line"] == 1
    assert int(error.extra["column"]) >= 1
