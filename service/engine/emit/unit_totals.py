"""Statements that find bounds privately: one histogram over all rows, or one over all units.

Both run before any group is known, so the key table plays no part.
"""

from service.core.plan import ONE, BoundsNeed, Plan, UnitTotalsNeed
from service.engine.emit.clipping import UNIT, measure_named
from service.engine.emit.spelling import Statement, int64, quotient, tree_sql
from service.engine.quoting import quoted


def bounds_statement(plan: Plan, need: BoundsNeed) -> Statement:
    """Rows per logarithmic bin, each row weighing ONE // (non-NULL rows of its unit).

    A unit's rows together weigh at most ONE, whatever bins they fall in: L1 <= ONE.
    """
    measure = measure_named(plan, need.measure)
    assert need.bins >= 1
    assert need.scale >= 1
    value = quoted(measure.name)
    rows = f"SELECT {UNIT}, {int64(value)} AS x FROM ({tree_sql(plan.rows)}) WHERE {value} IS NOT NULL"
    binned = f"SELECT {UNIT}, {_logarithmic_bin(need)} AS bin FROM ({rows})"
    cells = f"SELECT {UNIT}, bin, count(*) AS v FROM ({binned}) GROUP BY {UNIT}, bin"
    weighed = f"SELECT bin, v * {quotient(str(ONE), f'sum(v) OVER (PARTITION BY {UNIT})')} AS w FROM ({cells})"
    sums = f"SELECT bin, sum(w) AS w FROM ({weighed}) GROUP BY bin"
    column = f'{int64("coalesce(s.w, 0)")} AS "weight"'
    sql = f"SELECT {column} FROM range({2 * need.bins}) AS b(i) LEFT JOIN ({sums}) AS s ON b.i = s.bin ORDER BY b.i"
    return Statement(sql, ("weight",))


def _logarithmic_bin(need: BoundsNeed) -> str:
    """Compares with the exact integer edges: no logarithm, no rounding. Beyond the last edge: last bin."""
    edges = [need.scale << i for i in range(need.bins - 1)]
    positive = " ".join(f"WHEN x <= {edge} THEN {i}" for i, edge in enumerate(edges))
    negative = " ".join(f"WHEN x >= -{edge} THEN {need.bins + i}" for i, edge in enumerate(edges))
    last = need.bins - 1
    inside = f"CASE {positive} ELSE {last} END" if edges else str(last)
    below = f"CASE {negative} ELSE {need.bins + last} END" if edges else str(need.bins + last)
    return f"CASE WHEN x >= 0 THEN {inside} ELSE {below} END"


def unit_totals_statement(plan: Plan, need: UnitTotalsNeed) -> Statement:
    """Units by their Σ|x|: one value per unit, so one unit moves one cell by ONE."""
    measure = measure_named(plan, need.measure)
    assert need.bins >= 1
    assert need.width >= 1
    value = quoted(measure.name)
    totals = f"SELECT {UNIT}, sum(abs({int64(value)})) AS total FROM ({tree_sql(plan.rows)}) WHERE {value} IS NOT NULL"
    last = need.bins - 1
    cell = f"CASE WHEN total >= {last * need.width} THEN {last} ELSE {quotient('total', str(need.width))} END"
    binned = f"SELECT {cell} AS bin FROM ({totals} GROUP BY {UNIT})"
    columns = f'{int64("bin")} AS "bin", {int64(f"count(*) * {ONE}")} AS "weight"'
    sql = f"SELECT {columns} FROM ({binned}) GROUP BY 1 ORDER BY 1"
    return Statement(sql, ("bin", "weight"))
