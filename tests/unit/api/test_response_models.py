"""The OpenAPI document says what comes back: no shape is left open, and nothing is serialised a second time."""

import ast
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from fastapi import Response
from fastapi.routing import APIRoute

from service.api.responses.problems import Problem, ProblemCode
from service.core import errors
from service.core.errors import ServiceError
from tests.fixtures.documented import routes
from tests.fixtures.service import House
from tests.test_docs import codes

SERVICE = Path(__file__).parents[3] / "service"
KINDS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, ServiceError)}

# Objects that belong to somebody else: a chart is its author's, a declaration in the journal is as it was stored.
FREE = {"chart", "before", "after"}


@pytest.fixture
def document(house: House) -> dict[str, Any]:
    return house.app.openapi()


def successes(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for status, response in operation["responses"].items():
                for media_type, content in response.get("content", {}).items() if status < "300" else ():
                    yield (
                        f"{method} {path} {status} {media_type}",
                        content.get("schema") or content.get("itemSchema", {}),
                    )


def bare(schema: dict[str, Any], document: dict[str, Any], name: str, done: set[str]) -> Iterator[str]:
    """Places where anything fits: no type at all, or an object that names neither fields nor what it holds."""
    reference = schema.get("$ref")
    if reference is not None:
        if reference not in done:
            yield from bare(
                document["components"]["schemas"][reference.split("/")[-1]], document, name, done | {reference}
            )
        return
    inner = [*schema.get("anyOf", []), *schema.get("oneOf", []), *schema.get("prefixItems", [])]
    inner += schema.get("patternProperties", {}).values()
    inner += [schema[key] for key in ("items", "additionalProperties") if isinstance(schema.get(key), dict)]
    if not inner and not schema.get("properties") and schema.get("type", "object") in ("object", "array"):
        yield name
    for option in inner:
        yield from bare(option, document, name, done)
    for field, option in schema.get("properties", {}).items():
        yield from bare(option, document, field, done)


def test_no_success_is_a_bare_object(document: dict[str, Any]) -> None:
    found = list(successes(document))
    assert len(found) > 40
    for name, schema in found:
        assert set(bare(schema, document, name, set())) <= FREE, name


def test_the_check_finds_bare_objects() -> None:
    for shape in ({}, {"type": "object"}, {"type": "object", "additionalProperties": True}, {"type": "array"}):
        assert list(bare(shape, {}, "here", set())) == ["here"]
        assert list(bare({"type": "array", "items": shape}, {}, "here", set())) == ["here"]
        assert list(bare({"type": "object", "properties": {"there": shape}}, {}, "here", set())) == ["there"]


def test_every_failure_is_a_problem(document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert "500" in operation["responses"]
            for status, response in operation["responses"].items():
                if status >= "400" and (path, status) != ("/readyz", "503"):
                    assert list(response["content"]) == ["application/problem+json"], f"{method} {path} {status}"


def test_routes_hand_over_finished_responses(house: House) -> None:
    """The framework would read and write every body again, through its model, if a route returned anything else."""
    for route in routes(house.app):
        assert isinstance(route, APIRoute)
        returned = typing.get_type_hints(route.endpoint)["return"]
        assert issubclass(returned, Response), f"{route.path} returns {returned}"


def test_every_problem_code_is_in_the_document() -> None:
    assert set(get_args(ProblemCode)) == codes()


def test_every_detail_that_an_error_gives_is_in_the_problems_model() -> None:
    """Keys of the dictionaries that errors are raised with, wherever they are written down."""
    given = {
        key.value
        for file in SERVICE.rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in KINDS
        for argument in call.args[1:]
        for made in ast.walk(argument)
        if isinstance(made, ast.Dict)
        for key in made.keys
        if isinstance(key, ast.Constant)
    }
    assert len(given) > 15
    assert given <= {field.alias or name for name, field in Problem.model_fields.items()}
