"""How DuckDB spells what emitted statements need, and what a statement is.

Functions and types are spelled here, so that the templates beside it hold SELECT, JOIN and WITH alone. Names, texts
and values come through service/engine/quoting.py.

Everything here is total: no spelling raises because of a row (invariant S2). Divisors are counts or sums
that are at least 1 where the statement divides, and every width is proven where it is used.
"""

from dataclasses import dataclass

from sqlglot import exp

DIALECT = "duckdb"


@dataclass(frozen=True, slots=True)
class Statement:
    """One engine statement: a single SELECT that yields integer `columns`, then sealed `keys`.

    `uses_keys`: the engine provides the public key table as KEYS_TABLE. Dense statements yield one
    row per key position in order; sparse ones name POSITION among their columns.
    """

    sql: str
    columns: tuple[str, ...]
    keys: tuple[str, ...] = ()
    uses_keys: bool = False


def tree_sql(tree: exp.Expression) -> str:
    """A tree of the binder's as SQL, every name quoted."""
    return tree.sql(DIALECT, identify=True)


def null_safe_equal(left: str, right: str) -> str:
    """NULL equals NULL; DuckDB still joins by hashing."""
    return f"{left} IS NOT DISTINCT FROM {right}"


def int128(value: str) -> str:
    """128 bits."""
    return f"CAST({value} AS HUGEINT)"


def int64(value: str) -> str:
    """64 bits; the caller has proven that it fits."""
    return f"CAST({value} AS BIGINT)"


def clamped(value: str, *, low: int, high: int) -> str:
    """CASE, not LEAST: NULL stays NULL, and it is two to three times faster here."""
    return f"CASE WHEN {value} < {low} THEN {low} WHEN {value} > {high} THEN {high} ELSE {value} END"


def quotient(dividend: str, divisor: str) -> str:
    """Integer division of numbers that are not negative, by one that is at least 1."""
    return f"(({dividend}) // ({divisor}))"


def root(value: str) -> str:
    """The integer part of the square root of an integer in 0…2^40, exactly.

    Such an integer is a double, IEEE square roots are correctly rounded, and below s² (s <= 2^20) the
    next smaller root, sqrt(s² - 1) < s - 1/(2s), is at least 2^-21 away from s while doubles near s are
    2^-32 apart: rounding never reaches s, so the floor is right.
    """
    return int64(f"floor(sqrt(CAST({value} AS DOUBLE)))")


def choice(salt: int, unit_key: str, parts: tuple[str, ...]) -> str:
    """64 bits that order what a unit keeps: of the secret salt, the unit's own key and the parts, in turn.

    DuckDB's hash of several arguments is linear in the hashes of its parts, so an order by it would
    be nearly the same for every unit and (a, b), (b, a) could collide. Here every step hashes again.
    NULL hashes like any value. A collision inside a unit is a tie, and ties lose: it costs that unit a
    slot and nobody anything else.
    """
    mixed = f"hash(xor({unit_key}, CAST({salt % 2**64} AS UBIGINT)))"
    for part in parts:
        mixed = f"hash(xor({mixed}, hash({part})))"
    return mixed


HASH_MAX = 2**64 - 1


def hash_share(wanted: int, most: str) -> str:
    """A hash that about `wanted` of `most` hashes lie below or at: all of them when there are no more."""
    share = f"CAST({wanted} AS UBIGINT) * (CAST({HASH_MAX} AS UBIGINT) // CAST({most} AS UBIGINT))"
    return f"CASE WHEN {most} <= {wanted} THEN CAST({HASH_MAX} AS UBIGINT) ELSE {share} END"


def edges(hashed: str, unit: str, *, place: int, among: int) -> str:
    """Per unit of `hashed` (unit, …, h): `edge`, the place-th smallest distinct h, where it is among the
    `among` smallest of all; other units are left out. `repeats`: some h below the edge may repeat.

    Comparing neighbours is many times faster than removing repeated members, which few lists need.
    """
    lists = f"SELECT {unit}, min(h, {among}) AS l FROM ({hashed}) GROUP BY {unit}"
    rising = " AND ".join(f"l[{i}] < l[{i + 1}]" for i in range(1, place))
    marked = f"SELECT {unit}, l, NOT coalesce({rising}, FALSE) AS repeats FROM ({lists})"
    edge = f"CASE WHEN repeats THEN list_sort(list_distinct(l))[{place}] ELSE l[{place}] END"
    return f"SELECT * FROM (SELECT {unit}, repeats, {edge} AS edge FROM ({marked})) WHERE edge IS NOT NULL"


def nth_smallest(hashed: str, unit: str, place: int) -> str:
    """Per unit of `hashed` (unit, …, h): `edge`, the place-th smallest h, NULL where there are fewer."""
    return f"SELECT {unit}, min(h, {place})[{place}] AS edge FROM ({hashed}) GROUP BY {unit}"
