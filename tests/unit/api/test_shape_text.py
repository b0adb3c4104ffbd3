"""Shapes as people read them on the page of the API."""

from service.api.shape_text import sketch

SCHEMAS = {"Side": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}


def test_fields_options_and_lists_are_written_as_they_are_read() -> None:
    shape = {
        "type": "object",
        "required": ["kind", "sides", "ends"],
        "properties": {
            "kind": {"enum": ["a", "b"]},
            "sides": {"type": "array", "items": {"$ref": "#/components/schemas/Side"}},
            "ends": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}]},
            "by_name": {"anyOf": [{"type": "object", "additionalProperties": {"type": "string"}}, {"type": "null"}]},
            "own": {"type": "object", "additionalProperties": True},
        },
    }
    assert sketch(shape, SCHEMAS) == (
        '{\n  "kind": "a" | "b",\n  "sides": [{\n    "n": integer\n  }, …],\n  "ends": [string, number],\n'
        '  "by_name"?: {\n    …: string\n  } | null,\n  "own"?: {…}\n}'
    )
