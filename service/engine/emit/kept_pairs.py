"""What a unit keeps of its distinct pairs (a group, or a group and a value): at most k, by a salted hash.

Kept are those strictly below the (k+1)-th smallest hash of the unit's distinct pairs: ties at the edge
all lose, so never more than k remain whatever collides (an analyst may know values that collide). The
same in other words, which the window uses: at most k of the unit's hashes are <= this one.

Invariant C3: what a unit keeps is a function of its own rows, the salt and the public key table.

Ranking every distinct pair of a unit costs many times the plain query, so three shortcuts come first, none of
which changes what is kept. (1) A unit with at most k rows keeps everything. (2) Of a unit with many rows
only the share of hashes is looked at that should hold the k+1 smallest. (3) The k+1 smallest among those
show the edge. Where this fails (few distinct pairs, or bad luck) the unit goes the long way: its distinct
pairs, ranked if they are more than k.
"""

from collections.abc import Callable
from dataclasses import dataclass

from service.core.plan import Plan
from service.core.prepared import UNIT_KEY, UNITS_TABLE
from service.engine.emit.clipping import CANDIDATES, UNIT, index_of, may_exceed, rows_of_candidates, scanned_table
from service.engine.emit.spelling import choice, edges, hash_share, tree_sql
from service.engine.quoting import quoted

UNITS = quoted(UNITS_TABLE)
KEY = quoted(UNIT_KEY)
LOW = quoted("#low")
EDGES = quoted("#edges")
FEW = quoted("#few")
MANY = quoted("#many")
KEPT = quoted("#kept")

EDGE_MAX = 256  # beyond, the lists of smallest hashes would cost more memory than they save time


@dataclass(frozen=True, slots=True)
class Pairs:
    """What a unit keeps at most so many of. `parts` names the columns that make a pair; `source` turns a SELECT of rows
    into one of (UNIT, parts…), duplicates included."""

    parts: tuple[str, ...]
    source: Callable[[str], str]

    def columns(self, alias: str = "") -> str:
        return ", ".join(f"{alias}{column}" for column in (UNIT, *self.parts))


@dataclass(frozen=True, slots=True)
class KeptPairs:
    """What units keep, distinct (UNIT, parts…): `clauses` end with KEPT, the pairs of some units; `full`,
    if there is one, is a SELECT of those of all others, each of which keeps exactly as many as it may."""

    clauses: tuple[str, ...]
    full: str | None

    def all(self, columns: str) -> str:
        kept = f"SELECT {columns} FROM {KEPT}"
        return kept if self.full is None else f"SELECT {columns} FROM ({self.full}) UNION ALL {kept}"


def kept_pairs(plan: Plan, pairs: Pairs, limit: int, salt: int) -> KeptPairs:
    """At most `limit` distinct pairs per unit."""
    assert limit >= 1
    everything = f"({pairs.source(tree_sql(plan.rows))}) AS p"
    candidates = may_exceed(plan, limit)
    if candidates is None:
        return KeptPairs((f"{KEPT} AS MATERIALIZED (SELECT DISTINCT {pairs.columns()} FROM {everything})",), None)
    clauses: list[str] = []
    few = f"SELECT DISTINCT {pairs.columns('p.')} FROM {everything}"
    full = None
    if limit <= EDGE_MAX:
        clauses = _edge_clauses(plan, pairs, limit, salt)
        below = f"FROM {LOW} AS p JOIN {EDGES} AS e ON p.{UNIT} = e.{UNIT} AND p.h < e.edge"
        few += _without_edge(plan)
        few += f" UNION ALL SELECT DISTINCT {pairs.columns('p.')} {below} AND e.repeats"
        # Hashes that rise strictly up to the edge are of as many rows, none of which says the same as another.
        full = f"SELECT {pairs.columns('p.')} {below} AND NOT e.repeats"
    clauses.append(f"{FEW} AS MATERIALIZED ({few})")
    clauses.append(f"{MANY} AS MATERIALIZED (SELECT {UNIT} FROM {FEW} GROUP BY {UNIT} HAVING count(*) > {limit})")
    clauses.append(f"{KEPT} AS MATERIALIZED ({_ranked(pairs, limit, salt)})")
    return KeptPairs(tuple(clauses), full)


def _without_edge(plan: Plan) -> str:
    """Joins rows `p` to the units that must go the long way. They are few: where an index lists all units, looking
    for theirs is cheaper than passing over the others'."""
    table = scanned_table(plan)
    if table is None:
        return f" ANTI JOIN {EDGES} AS e ON p.{UNIT} = e.{UNIT}"
    rest = f"SELECT {UNIT} FROM {index_of(table)} ANTI JOIN {EDGES} USING ({UNIT})"
    return f" SEMI JOIN ({rest}) AS e ON p.{UNIT} = e.{UNIT}"


def _edge_clauses(plan: Plan, pairs: Pairs, limit: int, salt: int) -> list[str]:
    """CANDIDATES with their keys and shares, LOW (their pairs inside the share), EDGES."""
    among = limit + 1 + max(2, limit // 2)
    keyed = f"SELECT u.{UNIT}, u.{KEY}, {hash_share(2 * limit + 3, 'c.most')} AS share"
    keyed += f" FROM {UNITS} AS u JOIN ({may_exceed(plan, limit)}) AS c ON u.{UNIT} = c.{UNIT}"
    rows = tree_sql(plan.rows) if scanned_table(plan) is not None else rows_of_candidates(plan, inside_keys=False)
    hashed = f"SELECT {pairs.columns('p.')}, {_hash(pairs, 'p', 'c', salt)} AS h, c.share"
    hashed += f" FROM ({pairs.source(rows)}) AS p JOIN {CANDIDATES} AS c ON p.{UNIT} = c.{UNIT}"
    return [
        f"{CANDIDATES} AS MATERIALIZED ({keyed})",
        f"{LOW} AS MATERIALIZED (SELECT {pairs.columns()}, h FROM ({hashed}) WHERE h <= share)",
        f"{EDGES} AS MATERIALIZED ({edges(f'SELECT {UNIT}, h FROM {LOW}', UNIT, place=limit + 1, among=among)})",
    ]


def _ranked(pairs: Pairs, limit: int, salt: int) -> str:
    light = f"SELECT {pairs.columns()} FROM {FEW} ANTI JOIN {MANY} USING ({UNIT})"
    hashed = f"SELECT {pairs.columns('p.')}, {_hash(pairs, 'p', 'u', salt)} AS h"
    hashed += f" FROM {FEW} AS p JOIN {MANY} AS m ON p.{UNIT} = m.{UNIT} JOIN {UNITS} AS u ON p.{UNIT} = u.{UNIT}"
    placed = f"SELECT *, count(*) OVER (PARTITION BY {UNIT} ORDER BY h) AS place FROM ({hashed})"
    return f"{light} UNION ALL SELECT {pairs.columns()} FROM ({placed}) WHERE place <= {limit}"


def _hash(pairs: Pairs, of: str, unit: str, salt: int) -> str:
    return choice(salt, f"{unit}.{KEY}", tuple(f"{of}.{part}" for part in pairs.parts))
