"""What does not fit the wire, in the words of this API: where it stands, and what would fit.

The input itself is never repeated; of names that a caller made up only those that look like names.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from service.core.schema import NAME_PATTERN

FORMS = ("one", "many")  # the two shapes of an estimate's body: ours, no field of the caller's
NAME_SHOWN = re.compile(rf"{NAME_PATTERN}\.{NAME_PATTERN}")
A_NAME = "a name has lower-case letters, digits and _, begins with a letter, and is at most 63 long"
RULES_IN_WORDS = {
    "missing": "is needed",
    "extra_forbidden": "there is no such field here",
    "model_type": "an object is needed",
    "model_attributes_type": "an object is needed",
    "dict_type": "an object is needed",
    "list_type": "a list is needed",
    "tuple_type": "two values are needed: [low, high]",
    "string_type": "text is needed",
    "int_type": "a whole number is needed",
    "bool_type": "true or false is needed",
}


def misfit(item: Mapping[str, Any]) -> dict[str, str]:
    """One error of pydantic's as place and rule."""
    location = tuple(item.get("loc", ()))
    return {"where": where(location), "message": message(item, location)}


def where(location: Sequence[Any]) -> str:
    """A field's path; only names from the contract and short ones: a caller's text may be anything."""
    if len(location) > 1 and location[0] == "body" and location[1] in FORMS:
        location = (location[0], *location[2:])
    parts = [str(part) for part in location if isinstance(part, int) or is_name(str(part))]
    return ".".join(part[:128] for part in parts)


def is_name(part: str) -> bool:
    return (part.isidentifier() and len(part) <= 64) or NAME_SHOWN.fullmatch(part) is not None


def message(item: Mapping[str, Any], location: Sequence[Any]) -> str:
    kind = str(item.get("type"))
    if kind == "string_pattern_mismatch":
        return _pattern(str(item.get("ctx", {}).get("pattern")))
    if kind == "missing" and location and isinstance(location[-1], int):
        return RULES_IN_WORDS["tuple_type"]
    if kind in RULES_IN_WORDS:
        return RULES_IN_WORDS[kind]
    words = str(item.get("msg", "does not fit")).removeprefix("Value error, ").removeprefix("Input ")
    return words[:200]


def _pattern(pattern: str) -> str:
    if pattern == f"^{NAME_PATTERN}$":
        return A_NAME
    if pattern == rf"^{NAME_PATTERN}\.{NAME_PATTERN}$":
        return 'write "table.column", both in lower-case letters, digits and _'
    return "has characters that are not allowed here"
