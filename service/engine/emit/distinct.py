"""Distinct values and distinct units per key, each unit keeping at most k of what it has."""

from service.core.plan import DistinctNeed, Plan, UnitsNeed
from service.core.prepared import KEYS_TABLE, POSITION
from service.engine.emit.clipping import UNIT, on_keys
from service.engine.emit.kept_pairs import Pairs, kept_pairs
from service.engine.emit.spelling import Statement, int64, tree_sql
from service.engine.quoting import quoted

POS = quoted(POSITION)


def distinct_statement(plan: Plan, need: DistinctNeed, salt: int) -> Statement:
    """Neighbours: one unit more or less. It brings at most `pairs_per_unit` (group, value) pairs, and a
    pair is counted once whoever brings it: all counts together move by L1 <= pairs_per_unit."""
    value = quoted(need.attribute)
    pairs = Pairs((POS, value), lambda rows: _pairs(plan, rows, f", r.{value}", f"r.{value} IS NOT NULL"))
    kept = kept_pairs(plan, pairs, need.pairs_per_unit, salt)
    counted = f"SELECT DISTINCT {POS}, {value} FROM ({kept.all(f'{POS}, {value}')})"
    return _counted(plan, f"{need.attribute}.d", kept.clauses, counted)


def units_statement(plan: Plan, need: UnitsNeed, salt: int) -> Statement:
    """One unit is counted in at most `groups_per_unit` groups, by 1 in each; without GROUP BY in one."""
    if not plan.keys:
        sql = f'SELECT count(DISTINCT {UNIT}) AS "units" FROM ({tree_sql(plan.rows)})'
        return Statement(sql, ("units",))
    pairs = Pairs((POS,), lambda rows: _pairs(plan, rows, "", "TRUE"))
    kept = kept_pairs(plan, pairs, need.groups_per_unit, salt)
    return _counted(plan, "units", kept.clauses, kept.all(POS))


def _pairs(plan: Plan, rows: str, values: str, where: str) -> str:
    """(unit, position, value) of every row: groups outside the key table take nobody's place."""
    if not plan.keys:
        return f"SELECT r.{UNIT}, 0 AS {POS}{values} FROM ({rows}) AS r WHERE {where}"
    joined = f"({rows}) AS r JOIN {quoted(KEYS_TABLE)} AS k ON {on_keys(plan, 'r', 'k')}"
    return f"SELECT r.{UNIT}, k.{POS}{values} FROM {joined} WHERE {where}"


def _counted(plan: Plan, name: str, clauses: tuple[str, ...], counted: str) -> Statement:
    keys = quoted(KEYS_TABLE) if plan.keys else f"(SELECT 0 AS {POS})"
    counts = f"SELECT {POS}, count(*) AS n FROM ({counted}) GROUP BY {POS}"
    column = f"{int64('coalesce(c.n, 0)')} AS {quoted(name)}"
    source = f"{keys} AS k LEFT JOIN ({counts}) AS c ON k.{POS} = c.{POS}"
    sql = f"WITH {', '.join(clauses)} SELECT {column} FROM {source} ORDER BY k.{POS}"
    return Statement(sql, (name,), uses_keys=bool(plan.keys))
