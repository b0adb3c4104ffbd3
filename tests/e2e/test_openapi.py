"""The OpenAPI document is true: generated requests, valid and not, get documented answers and never a 5xx."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.fixtures.service import House, open_house

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = 8
# Generated bodies name no dataset that is there, or no sum that makes sense, and no ledger was restored here;
# tests/e2e/test_responses.py has good ones.
HARD = {"PUT /v1/panels/{panel}", "PUT /v1/datasets/{dataset}", "POST /v1/ledger/accept-restore"}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    opened = open_house(tmp_path_factory.mktemp("openapi"), requests_per_minute=1_000_000, metrics=True)
    yield opened
    opened.close()


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["valid", "broken"])
def test_every_operation_answers_as_documented(house: House, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_asgi("/openapi.json", house.app)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 25
    for operation in operations:
        if mode is GenerationMode.NEGATIVE and not takes_anything(operation):
            continue
        send(house, operation, mode, {})
    assert mode is GenerationMode.NEGATIVE or house.answerer.asked, "no valid query got through"


def test_bodies_of_things_that_are_there_are_as_documented(house: House) -> None:
    """Names that are generated are names of nothing; with real ones the document's schemas meet real bodies."""
    wanted = {"dataset": "shop", "sql": "SELECT COUNT(*) AS n FROM orders", "epsilon": "0.1", "budget": "1"}
    assert house.ask("PUT", "/v1/panels/sales", json=wanted).status_code == 200
    there = {"dataset": "shop", "query_id": "q_1", "panel": "sales", "prefix": house.keys["viewer"].split("_")[1]}
    schema = schemathesis.openapi.from_asgi("/openapi.json", house.app)
    for operation in (found.ok() for found in schema.get_all_operations()):
        named = {parameter.name for parameter in operation.path_parameters}
        if operation.method != "delete" and named <= there.keys():
            statuses = send(house, operation, GenerationMode.POSITIVE, {name: there[name] for name in named})
            assert any(status < 400 for status in statuses) or operation.label in HARD, f"{operation.label} {statuses}"


def takes_anything(operation: Any) -> bool:
    """Whether there is something that could be broken."""
    return bool(operation.body or operation.path_parameters or operation.query)


def send(house: House, operation: Any, mode: GenerationMode, names: dict[str, str]) -> set[int]:
    """Generated requests, to the things of these names; the statuses that came back."""
    statuses: set[int] = set()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        if names:
            case.path_parameters = names
        response = case.call_and_validate(headers=house.headers("admin"), checks=CHECKS)
        statuses.add(response.status_code)

    check()
    return statuses
