"""The OpenAPI document: what the routes declare, and beside it the problems that any such route can give.

Whoever needs a key can lack it or ask too often, whoever takes a body can be sent too much, whoever takes anything can
be sent what does not fit, and everybody can meet a bug. Routes name what is their own (`problems(404, 409)`).
"""

from typing import Any

from fastapi import FastAPI

from service.api.responses.problems import Problem, problem_response

REFERENCE = "#/components/schemas/{model}"
UNSAID = "Successful Response"  # what the framework says where a route says nothing
FRAMEWORKS_OWN = ("HTTPValidationError", "ValidationError")


def document(app: FastAPI) -> None:
    """Let the app make its document once, completed."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = complete(generate())
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def complete(made: dict[str, Any]) -> dict[str, Any]:
    """One Problem for all errors, the framework's own shape for none."""
    schemas = made["components"]["schemas"]
    for operations in made["paths"].values():
        for operation in operations.values():
            for response in operation["responses"].values():
                if response["description"] == UNSAID:
                    response["description"] = model_sentence(response, schemas)
            common = {str(status): problem_response(status) for status in common_problems(operation)}
            operation["responses"] = dict(sorted({**operation["responses"], **common}.items()))
    shape = Problem.model_json_schema(ref_template=REFERENCE)
    schemas.update(shape.pop("$defs", {}))
    schemas["Problem"] = shape
    for unused in FRAMEWORKS_OWN:
        schemas.pop(unused, None)
    made["components"]["schemas"] = dict(sorted(schemas.items()))
    return made


def common_problems(operation: dict[str, Any]) -> list[int]:
    """Statuses that follow from what an operation takes."""
    found = [500]
    if operation.get("security"):
        found += [401, 429]
    if "requestBody" in operation:
        found += [413, 422]
    elif operation.get("parameters"):
        found.append(422)
    return found


def model_sentence(response: dict[str, Any], schemas: dict[str, Any]) -> str:
    """What the model says of itself, in its first sentence."""
    shape = response.get("content", {}).get("application/json", {}).get("schema", {})
    many = "A list. " if "items" in shape else ""
    shape = shape.get("items", shape)
    options = shape.get("anyOf", [shape])
    said = [schemas[option["$ref"].split("/")[-1]].get("description", "") for option in options if "$ref" in option]
    return many + " Or: ".join(text.split(". ")[0].rstrip(".") + "." for text in said if text) if any(said) else "Done."
