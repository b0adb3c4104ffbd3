"""The small values that responses are made of."""

from typing import Annotated, Any

from pydantic import Field

from service.api.formats import ARROW, CSV, JSON

AmountText = Annotated[
    str,
    Field(
        pattern=r"^-?\d+(\.\d+)?(e-?\d+)?$",
        description="An amount of privacy as an exact decimal string.",
        examples=["0.1", "1e-6"],
    ),
]
Pico = Annotated[
    str, Field(pattern=r"^-?\d+$", description="A whole number of 1e-12 as a string.", examples=["100000000000"])
]
Atto = Annotated[str, Field(pattern=r"^\d+$", description="A whole number of 1e-18 as a string.")]
QueryId = Annotated[str, Field(description="Names a query.", examples=["q_01JC3M5W8Z6V7T9K2N4Q0R1S3X"])]
KeyPrefix = Annotated[str, Field(description="The public part of a key: it names the key, and opens nothing.")]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$", description="SHA-256 of the plan.")]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Cell = Annotated[
    str | int | float | bool | None,
    Field(description="Numbers and booleans as they are, dates and moments as ISO 8601; null: no value."),
]
FlatRow = Annotated[
    dict[str, Cell],
    Field(description="One row by column name; {name}_low_95 and {name}_high_95 stand beside every value."),
]

Documented = dict[int | str, dict[str, Any]]  # what FastAPI takes as `responses`

_TABLES = {
    CSV: {"type": "string", "description": "The flat rows, with a header line."},
    ARROW: {
        "type": "string",
        "format": "binary",
        "contentMediaType": ARROW,
        "description": "The flat rows as one Arrow IPC stream.",
    },
}


def forms(*others: str) -> dict[str, Any]:
    """JSON, whose schema is the model's, and these tables."""
    return {JSON: {}, **{media_type: {"schema": _TABLES[media_type]} for media_type in others}}


ETAG: dict[str, Any] = {"description": "Names these bytes; send it as If-None-Match.", "schema": {"type": "string"}}
NOT_CHANGED: dict[str, Any] = {"description": "Not changed since that ETag.", "headers": {"ETag": ETAG}}
