"""How many bytes a text has at most, through expressions, as ranges.py has it for numbers.

in   texts with a length: declared (columns of private tables), measured (public ones), written (literals)
out  the same for the result; None where nothing is known, as in tables that were prepared before texts were cut

Why: what a row costs in time and memory must be known before the charge. A text that grows from subquery to subquery
would exhaust the memory, but only if the row is there.
Invariant R2: where the length of a value is known, no row's text has more bytes, whatever the data. A computed text
that could have more than MADE_BYTES is refused before the charge.
"""

from dataclasses import replace

from sqlglot import exp

from service.core.schema import VARCHAR, SqlType, byte_count
from service.sql.expr.values import Value
from service.sql.read.output_names import sql_as_written
from service.sql.refusals import refused

MADE_BYTES = 16_384
CHARACTER_BYTES = 4  # the most that one character of UTF-8 has

# What CAST writes: the engine's widest numbers have 40 characters with their sign, its furthest days seven digits for
# the year and " (BC)" behind, moments a time of day with a fraction as well.
WRITTEN_BYTES = {"BOOLEAN": 5, "BIGINT": 41, "DECIMAL": 41, "DATE": 20, "TIMESTAMP": 40}


def text_bytes(value: Value) -> int | None:
    """What plans keep of it; None for what is no text."""
    return value.max_bytes if value.type == VARCHAR else None


def longest(values: list[Value], kind: SqlType) -> int | None:
    """One of several texts (NULL has no bytes): known where all are. None where they are no texts."""
    known = [value.max_bytes for value in values]
    return None if kind != VARCHAR or None in known else max((each for each in known if each is not None), default=None)


def beginning(value: Value, characters: int) -> int | None:
    """A part of the text with at most so many characters."""
    most = CHARACTER_BYTES * characters
    if value.max_bytes is None:
        return most if most <= MADE_BYTES else None
    return min(value.max_bytes, most)


def other_case(value: Value) -> int | None:
    """UPPER and LOWER turn one character into one, of up to three bytes for two: ß and Ⱥ do. No other grows by more."""
    return None if value.max_bytes is None else value.max_bytes * 3 // 2


def replaced(value: Value, old: str, new: str) -> int | None:
    """REPLACE finds parts that don't overlap, so at most as many as fit into the text beside each other."""
    if value.max_bytes is None:
        return None
    before, after = byte_count(old), byte_count(new)
    return value.max_bytes + value.max_bytes // before * max(0, after - before)


def joined(values: list[Value]) -> int | None:
    known = [value.max_bytes for value in values]
    return None if None in known else sum(each for each in known if each is not None)


def made(found: Value, max_bytes: int | None, node: exp.Expression) -> Value:
    """A computed text with its length, or a refusal where it would be too long."""
    if max_bytes is not None and max_bytes > MADE_BYTES:
        raise refused(
            f"{sql_as_written(node)} can have {max_bytes} bytes, and texts are computed up to {MADE_BYTES}",
            node,
            construct="text",
            remedy="shorten what goes into it: LEFT(x, 1000), or have an admin declare a smaller max_bytes",
        )
    return replace(found, max_bytes=max_bytes)
