"""What a unit keeps of the distinct things it has: at most k, chosen by a salted hash.

Kept are those strictly below the (k+1)-th smallest hash of the unit's distinct things: ties at the edge
all lose, so never more than k remain whatever collides (an analyst may know values that collide). The
same in other words, which the window uses: at most k of the unit's hashes are <= this one.

Invariant C3: what a unit keeps is a function of its own rows, the salt and the public key table.

Why in two ways: ranking every (unit, thing) pair costs many times the plain query. One pass over the
rows collects the k+1 smallest hashes of every unit that may have more than k rows, and the things they
belong to. Where these k+1 are all different, the first k are exactly what the unit keeps. The other units
(few rows, or repeated things among the first) go the long way: distinct things, ranked where more than k.
"""

from collections.abc import Callable
from dataclasses import dataclass

from service.core.plan import Plan
from service.sql.bound import CANDIDATES, UNIT, may_exceed, rows_of_candidates, scanned_table
from service.sql.emit_duckdb import choice, first_by, first_of, firsts, quoted, rising, text

UNITS = quoted("#units")
FIRSTS = quoted("#firsts")
FEW = quoted("#few")
MANY = quoted("#many")
KEPT = quoted("#kept")

FIRSTS_MAX = 256  # beyond, the lists of smallest hashes would cost more memory than they save time


@dataclass(frozen=True, slots=True)
class Things:
    """`parts` names the columns that make a thing, each with a value that stands in for NULL (None: it is
    never NULL). `source` turns a SELECT of rows into one of (UNIT, parts…), duplicates included."""

    parts: dict[str, str | None]
    source: Callable[[str], str]

    def columns(self, alias: str = "") -> str:
        return ", ".join(f"{alias}{column}" for column in (UNIT, *self.parts))


def kept_things(plan: Plan, things: Things, limit: int, salt: int) -> tuple[str, ...]:
    """WITH clauses that end with KEPT: distinct (UNIT, parts…), at most `limit` per unit."""
    assert limit >= 1
    everything = things.source(text(plan.rows))
    candidates = may_exceed(plan, limit)
    if candidates is None:
        return (f"{KEPT} AS MATERIALIZED (SELECT DISTINCT {things.columns()} FROM ({everything}))",)
    clauses = []
    short = ""
    if limit <= FIRSTS_MAX:
        keyed = f'SELECT u.{UNIT}, u."key" FROM {UNITS} AS u SEMI JOIN ({candidates}) AS c ON u.{UNIT} = c.{UNIT}'
        clauses.append(f"{CANDIDATES} AS MATERIALIZED ({keyed})")
        clauses.append(f"{FIRSTS} AS MATERIALIZED ({_firsts(plan, things, limit, salt)})")
        everything = (
            f"SELECT {things.columns('p.')} FROM ({everything}) AS p ANTI JOIN {FIRSTS} AS f ON p.{UNIT} = f.{UNIT}"
        )
        short = f"{_from_firsts(things, limit)} UNION ALL "
    clauses.append(f"{FEW} AS MATERIALIZED (SELECT DISTINCT {things.columns()} FROM ({everything}))")
    clauses.append(f"{MANY} AS MATERIALIZED (SELECT {UNIT} FROM {FEW} GROUP BY {UNIT} HAVING count(*) > {limit})")
    clauses.append(f"{KEPT} AS MATERIALIZED ({short}{_ranked(things, limit, salt)})")
    return tuple(clauses)


def _firsts(plan: Plan, things: Things, limit: int, salt: int) -> str:
    """Per unit, lists of the things with the k+1 smallest hashes; only units where those all differ."""
    scan = scanned_table(plan) is not None
    rows = things.source(text(plan.rows) if scan else rows_of_candidates(plan, inside_keys=False))
    hashed = f"SELECT {things.columns('p.')}, {_hash(things, 'p', 'c', salt)} AS h"
    hashed += f" FROM ({rows}) AS p JOIN {CANDIDATES} AS c ON p.{UNIT} = c.{UNIT}"
    lists = [f"{firsts('h', limit + 1)} AS h"]
    for i, (part, stand_in) in enumerate(things.parts.items()):
        value = part if stand_in is None else f"coalesce({part}, {stand_in})"
        lists.append(f"{first_by(value, 'h', limit + 1)} AS p{i}")
        if stand_in is not None:
            lists.append(f"{first_by(f'{part} IS NULL', 'h', limit + 1)} AS n{i}")
    grouped = f"SELECT {UNIT}, {', '.join(lists)} FROM ({hashed}) GROUP BY {UNIT}"
    return f"SELECT * FROM ({grouped}) WHERE {rising('h', limit + 1)}"


def _from_firsts(things: Things, limit: int) -> str:
    """The lists line up, because all their hashes differ."""
    unnested, columns = [UNIT], [UNIT]
    for i, (part, stand_in) in enumerate(things.parts.items()):
        unnested.append(f"{first_of(f'p{i}', limit)} AS p{i}")
        if stand_in is not None:
            unnested.append(f"{first_of(f'n{i}', limit)} AS n{i}")
        columns.append(f"p{i} AS {part}" if stand_in is None else f"CASE WHEN NOT n{i} THEN p{i} END AS {part}")
    return f"SELECT {', '.join(columns)} FROM (SELECT {', '.join(unnested)} FROM {FIRSTS})"


def _ranked(things: Things, limit: int, salt: int) -> str:
    light = f"SELECT {things.columns()} FROM {FEW} ANTI JOIN {MANY} USING ({UNIT})"
    hashed = f"SELECT {things.columns('p.')}, {_hash(things, 'p', 'u', salt)} AS h"
    hashed += f" FROM {FEW} AS p JOIN {MANY} AS m ON p.{UNIT} = m.{UNIT} JOIN {UNITS} AS u ON p.{UNIT} = u.{UNIT}"
    placed = f"SELECT *, count(*) OVER (PARTITION BY {UNIT} ORDER BY h) AS place FROM ({hashed})"
    return f"{light} UNION ALL SELECT {things.columns()} FROM ({placed}) WHERE place <= {limit}"


def _hash(things: Things, of: str, unit: str, salt: int) -> str:
    return choice(salt, f'{unit}."key"', tuple(f"{of}.{part}" for part in things.parts))
