"""What a unit keeps of the distinct things it has: at most k, chosen by a salted hash.

Kept are those strictly below the (k+1)-th smallest hash of the unit's distinct things: ties at the edge
all lose, so never more than k remain whatever collides (an analyst may know values that collide). The
same in other words, which the window uses: at most k of the unit's hashes are <= this one.

Invariant C3: what a unit keeps is a function of its own rows, the salt and the public key table.

Why three steps: ranking every (unit, thing) pair costs many times the plain query. (1) Units that can
not have more than k rows are not looked at. (2) For the others, the few smallest hashes over the rows,
duplicates included, show an edge that all kept things are below; nearly all rows end there. (3) Only
units that still have more than k distinct things (many duplicates among the few, or a collision) are
ranked. Step 2 alone may leave too many and never drops one that step 3 would keep.
"""

from collections.abc import Callable
from dataclasses import dataclass

from service.core.plan import Plan
from service.sql.bound import CANDIDATES, UNIT, may_exceed, rows_of_candidates
from service.sql.emit_duckdb import choice, quoted, smallest, text

UNITS = quoted("#units")
EDGES = quoted("#edges")
FEW = quoted("#few")
MANY = quoted("#many")
KEPT = quoted("#kept")

EDGE_MAX = 256  # beyond, the lists of smallest hashes would cost more memory than they save time


@dataclass(frozen=True, slots=True)
class Things:
    """`source` turns a SELECT of rows into one of (UNIT, parts…), a row per row, no duplicates removed."""

    parts: tuple[str, ...]
    source: Callable[[str], str]

    @property
    def columns(self) -> str:
        return ", ".join((UNIT, *self.parts))


def kept_things(plan: Plan, things: Things, limit: int, salt: int) -> tuple[str, ...]:
    """WITH clauses that end with KEPT: distinct (UNIT, parts…), at most `limit` per unit."""
    assert limit >= 1
    everything = things.source(text(plan.rows))
    candidates = may_exceed(plan, limit)
    if candidates is None:
        return (f"{KEPT} AS MATERIALIZED (SELECT DISTINCT {things.columns} FROM ({everything}))",)
    clauses = [f"{CANDIDATES} AS MATERIALIZED ({candidates})"]
    few = f"SELECT DISTINCT {things.columns} FROM ({everything})"
    if limit <= EDGE_MAX:
        clauses.append(f"{EDGES} AS MATERIALIZED ({_edges(plan, things, limit, salt)})")
        below = f"e.edge IS NULL OR {_hash(things, 'p', 'e', salt)} < e.edge"
        joined = f"({everything}) AS p LEFT JOIN {EDGES} AS e ON p.{UNIT} = e.{UNIT}"
        few = f"SELECT DISTINCT {_of(things, 'p')} FROM {joined} WHERE {below}"
    clauses.append(f"{FEW} AS MATERIALIZED ({few})")
    clauses.append(f"{MANY} AS MATERIALIZED (SELECT {UNIT} FROM {FEW} GROUP BY {UNIT} HAVING count(*) > {limit})")
    clauses.append(f"{KEPT} AS MATERIALIZED ({_ranked(things, limit, salt)})")
    return tuple(clauses)


def _edges(plan: Plan, things: Things, limit: int, salt: int) -> str:
    """Per candidate unit the (limit+1)-th smallest distinct hash, where the smallest few rows show it."""
    rows = things.source(rows_of_candidates(plan, inside_keys=False))
    hashed = f'SELECT p.{UNIT}, u."key", {_hash(things, "p", "u", salt)} AS h'
    hashed += f" FROM ({rows}) AS p JOIN {UNITS} AS u ON p.{UNIT} = u.{UNIT}"
    return smallest(hashed, UNIT, place=limit + 1, among=limit + 1 + max(2, limit // 2))


def _ranked(things: Things, limit: int, salt: int) -> str:
    light = f"SELECT {things.columns} FROM {FEW} ANTI JOIN {MANY} USING ({UNIT})"
    hashed = f"SELECT {_of(things, 'p')}, {_hash(things, 'p', 'u', salt)} AS h"
    hashed += f" FROM {FEW} AS p JOIN {MANY} USING ({UNIT}) JOIN {UNITS} AS u ON p.{UNIT} = u.{UNIT}"
    placed = f"SELECT *, count(*) OVER (PARTITION BY {UNIT} ORDER BY h) AS place FROM ({hashed})"
    return f"{light} UNION ALL SELECT {things.columns} FROM ({placed}) WHERE place <= {limit}"


def _hash(things: Things, of: str, unit: str, salt: int) -> str:
    return choice(salt, f'{unit}."key"', tuple(f"{of}.{part}" for part in things.parts))


def _of(things: Things, alias: str) -> str:
    return ", ".join(f"{alias}.{column}" for column in (UNIT, *things.parts))
