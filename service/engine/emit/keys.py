"""The private keys of a plan with what judges them: the first stage of undeclared GROUP BY.

Slots first: a unit chooses what it keeps among all of its groups, before any group is dropped;
otherwise one person could move other people's slots.

Neighbours: one unit more or less. Sensitivity: rule `units`: n moves by 1 in at most k groups; rule
`weighted`: j <= k kept groups move by isqrt(ONE² // j) each, L2 <= ONE; rule `shared`: by ONE // j each,
L1 <= ONE; rule `rows`: at most k kept rows of ONE // kept each, L1 <= ONE, in at most k groups. Checked by
tests/property/test_bounding_choices.py.

A group with fewer than `min_units` units can not be released, so it is not even emitted.
"""

from collections.abc import Callable
from dataclasses import replace
from math import isqrt

from sqlglot import exp

from service.core.plan import ONE, KeysNeed, Plan
from service.core.prepared import RANK_COLUMN
from service.engine.emit.clipping import CANDIDATES, ROWS, UNIT, index_of, may_exceed, rows_of_candidates, scanned_table
from service.engine.emit.kept_pairs import EDGE_MAX, EDGES, FEW, KEPT, KEY, MANY, UNITS, Pairs, kept_pairs
from service.engine.emit.spelling import Statement, choice, int64, nth_smallest, quotient, root, tree_sql
from service.engine.quoting import quoted

RANK = quoted(RANK_COLUMN)


def keys_statement(plan: Plan, need: KeysNeed, salt: int) -> Statement:
    """Every key that some unit kept, in the order of the keys themselves."""
    assert plan.keys, "no GROUP BY, no keys to select"
    assert need.groups_per_unit >= 1
    by = tuple(quoted(key.name) for key in plan.keys)
    if need.rule == "rows":
        clauses, weighed = _row_slots(plan, need, salt, by)
    else:
        clauses, weighed = _pair_slots(plan, need, salt, by)
    counted = need.rule != "units" and need.min_units > 1
    members = f"count(DISTINCT {UNIT})" if need.rule == "rows" else "count(*)"  # pairs are distinct
    units = [f'{members} AS "units"'] if counted else []
    total = "count(*)" if need.rule == "units" else "sum(w)"
    columns = ", ".join([f'{int64(total)} AS "n"', *units, *by])
    enough = f" HAVING {members} >= {need.min_units}" if need.min_units > 1 else ""
    order = ", ".join(f"{column} NULLS LAST" for column in by)
    opening = f"WITH {', '.join(clauses)} " if clauses else ""
    sql = f"{opening}SELECT {columns} FROM ({weighed}) GROUP BY {', '.join(by)}{enough} ORDER BY {order}"
    return Statement(sql, ("n", "units") if counted else ("n",), tuple(key.name for key in plan.keys))


def _pair_slots(plan: Plan, need: KeysNeed, salt: int, by: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """A slot is a (unit, group) pair."""
    columns = ", ".join((UNIT, *by))
    pairs = Pairs(by, lambda rows: f"SELECT {columns} FROM ({rows})")
    limit = need.groups_per_unit
    kept = kept_pairs(plan, pairs, limit, salt)
    if need.rule == "units":
        return kept.clauses, kept.all(columns)
    assert need.rule in ("shared", "weighted")
    shared = need.rule == "shared"
    weight = quotient(str(ONE), "count(*)") if shared else root(quotient(str(ONE * ONE), "count(*)"))
    groups = f"SELECT {UNIT}, {weight} AS w FROM {KEPT} GROUP BY {UNIT}"
    weighed = f"SELECT {columns}, w FROM {KEPT} JOIN ({groups}) USING ({UNIT})"
    if kept.full is not None:
        known = ONE // limit if shared else isqrt(ONE * ONE // limit)
        weighed = f"SELECT {columns}, {known} AS w FROM ({kept.full}) UNION ALL {weighed}"
    return kept.clauses, weighed


def _row_slots(plan: Plan, need: KeysNeed, salt: int, by: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """A slot is a row: the first k of the unit's rows by rank. Every kept row weighs ONE // kept rows.

    A stored rank counts the unit's rows from 0 in a random order, so an unfiltered scan keeps those below k
    without looking at the others.

    Rows of equal rank (after a join that repeats them) are ordered by their keys: those that are still
    equal count the same, so it does not matter which is kept.
    """
    limit = need.groups_per_unit
    columns = ", ".join((UNIT, *by))
    table = scanned_table(plan)
    if table is not None and plan.rows.args.get("where") is None:
        scan = f"SELECT {columns} FROM ({tree_sql(_with_rank(plan.rows))}) WHERE {RANK} < {limit}"
        share = quotient(str(ONE), ROWS)
        few = f"SELECT {UNIT}, {share} AS w FROM {index_of(table)} WHERE {ROWS} < {limit}"
        weighed = f"SELECT s.*, coalesce(f.w, {ONE // limit}) AS w FROM ({scan}) AS s LEFT JOIN ({few}) AS f"
        return (), f"{weighed} USING ({UNIT})"
    clauses = _kept_rows(plan, limit, salt, by)
    kept = f"SELECT {UNIT}, {quotient(str(ONE), 'count(*)')} AS w FROM {KEPT} GROUP BY {UNIT}"
    return clauses, f"SELECT {columns}, w FROM {KEPT} JOIN ({kept}) USING ({UNIT})"


def _kept_rows(plan: Plan, limit: int, salt: int, by: tuple[str, ...]) -> tuple[str, ...]:
    """WITH clauses that end with KEPT: (UNIT, keys…) of the first `limit` rows of every unit.

    As with distinct pairs: units that can not have more than `limit` rows keep all, the others first
    drop what lies beyond their limit-th smallest rank, and only if ranks repeat are rows numbered.
    """
    columns = ", ".join((UNIT, *by))
    ranked, source = _ranked_rows(plan, salt, by)
    everything = source(tree_sql(ranked.rows))
    candidates = may_exceed(plan, limit)
    if candidates is None:
        return (f"{KEPT} AS MATERIALIZED (SELECT {columns} FROM ({everything}))",)
    clauses = [f"{CANDIDATES} AS MATERIALIZED ({candidates})"]
    few = everything
    if limit <= EDGE_MAX:
        edges = nth_smallest(source(rows_of_candidates(ranked, inside_keys=False)), UNIT, limit)
        clauses.append(f"{EDGES} AS MATERIALIZED ({edges})")
        joined = f"({everything}) AS p LEFT JOIN {EDGES} AS e USING ({UNIT})"
        few = f"SELECT p.* FROM {joined} WHERE e.edge IS NULL OR p.h <= e.edge"
    numbered = f"SELECT *, row_number() OVER (PARTITION BY {UNIT} ORDER BY h, {', '.join(by)}) AS place"
    numbered += f" FROM {FEW} SEMI JOIN {MANY} USING ({UNIT})"
    kept = f"SELECT {columns} FROM {FEW} ANTI JOIN {MANY} USING ({UNIT})"
    kept += f" UNION ALL SELECT {columns} FROM ({numbered}) WHERE place <= {limit}"
    clauses.append(f"{FEW} AS MATERIALIZED ({few})")
    clauses.append(f"{MANY} AS MATERIALIZED (SELECT {UNIT} FROM {FEW} GROUP BY {UNIT} HAVING count(*) > {limit})")
    return (*clauses, f"{KEPT} AS MATERIALIZED ({kept})")


def _ranked_rows(plan: Plan, salt: int, by: tuple[str, ...]) -> tuple[Plan, Callable[[str], str]]:
    """A plan whose rows can be ranked, and how: by the stored rank of the table that drives them, or by a
    salted hash of the whole row where the rows are no longer a table's."""
    columns = ", ".join(f"r.{column}" for column in (UNIT, *by))
    if _driven_by_table(plan):
        ranked = replace(plan, rows=_with_rank(plan.rows))
        return ranked, lambda rows: f"SELECT {columns}, r.{RANK} AS h FROM ({rows}) AS r"
    names = [key.name for key in plan.keys] + [measure.name for measure in plan.measures]
    names += [attribute.name for attribute in plan.attributes]
    hashed = choice(salt, f"u.{KEY}", tuple(f"r.{quoted(name)}" for name in names))
    joined = f"AS r JOIN {UNITS} AS u ON r.{UNIT} = u.{UNIT}"
    return plan, lambda rows: f"SELECT {columns}, {hashed} AS h FROM ({rows}) {joined}"


def _driven_by_table(plan: Plan) -> bool:
    """FROM names a private table (row bounds name only those), and every row is one of its rows."""
    present = {name for name, value in plan.rows.args.items() if value}
    source = plan.rows.args.get("from_")
    if present - {"expressions", "from_", "where", "joins"} or source is None or plan.row_bound is None:
        return False
    return isinstance(source.this, exp.Table) and source.this.name in plan.row_bound.tables


def _with_rank(select: exp.Select) -> exp.Select:
    table = select.args["from_"].this.alias_or_name
    return select.select(exp.column(RANK_COLUMN, table=table, quoted=True), copy=True)
