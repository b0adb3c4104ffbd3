"""Identifiers: sortable by time to the millisecond, random beyond it, safe in URLs."""

import secrets
import time

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32
PAIRS = [first + second for first in ALPHABET for second in ALPHABET]


def new_id(prefix: str) -> str:
    """`q_01J…`: 48 bits of time, 80 random bits."""
    number = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    digits = []
    for _ in range(13):
        digits.append(PAIRS[number & 1023])
        number >>= 10
    return f"{prefix}_{''.join(reversed(digits))}"
