"""A JSON schema as a sketch that people read: fields with their types, `?` behind those that may be left out."""

import json
from typing import Any

INDENT = "  "


def sketch(schema: dict[str, Any], schemas: dict[str, Any], margin: str = "") -> str:
    """One shape; `schemas` are those that references name, and `margin` is what stands before its lines."""
    if "$ref" in schema:
        return sketch(schemas[schema["$ref"].split("/")[-1]], schemas, margin)
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return " | ".join(dict.fromkeys(sketch(option, schemas, margin) for option in options))
    if "const" in schema or "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return _array(schema, schemas, margin)
    if schema.get("type") == "object":
        return _object(schema, schemas, margin)
    return str(schema.get("type", "anything"))


def _array(schema: dict[str, Any], schemas: dict[str, Any], margin: str) -> str:
    places = schema.get("prefixItems")
    if places:
        return f"[{', '.join(sketch(place, schemas, margin) for place in places)}]"
    return f"[{sketch(schema.get('items', {}), schemas, margin)}, …]"


def _object(schema: dict[str, Any], schemas: dict[str, Any], margin: str) -> str:
    inner = margin + INDENT
    needed = schema.get("required", [])
    lines = [
        f"{inner}{json.dumps(name)}{'' if name in needed else '?'}: {sketch(field, schemas, inner)}"
        for name, field in schema.get("properties", {}).items()
    ]
    values = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
    lines += [f"{inner}…: {sketch(value, schemas, inner)}" for value in values if isinstance(value, dict)]
    return "{\n" + ",\n".join(lines) + f"\n{margin}}}" if lines else "{…}"
