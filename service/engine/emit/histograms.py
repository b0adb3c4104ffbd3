"""Weighted histograms per key: what quantiles, extremes and modes are chosen from.

in   HistogramNeed(m0, low 0, width 10, bins 100, RowsWeight(20))
out  (position, bin, Σ w) for every bin of every key that some row falls in

Like moments, ONE times the plain count minus what heavy units must not count, so one unit moves all
cells of all keys together by L1 <= ONE·rows_per_unit.
"""

from service.core.plan import ONE, CandidatesNeed, HistogramNeed, Plan, RowsWeight
from service.core.prepared import KEYS_TABLE, POSITION
from service.engine.emit.clipping import clip, measure_named, on_keys
from service.engine.emit.moments import Sum, all_rows, heavy_rows
from service.engine.emit.spelling import Statement, clamped, int64, quotient
from service.engine.quoting import exact_literal, quoted

COLUMNS = (POSITION, "bin", "weight")


def histogram_statement(plan: Plan, need: HistogramNeed) -> Statement:
    """Codes outside the grid count in its first or last bin: they are below or above all of it."""
    measure = measure_named(plan, need.measure)
    top = need.low + need.width * need.bins - 1
    assert need.width >= 1
    assert need.bins >= 1
    assert max(abs(need.low), abs(top), abs(measure.low), abs(measure.high)) < 2**61, "codes wider than bins can hold"
    column = int64(quoted(measure.name))
    inside = need.low <= measure.low and measure.high <= top
    code = column if inside else clamped(column, low=need.low, high=top)
    return _sparse(plan, need.weight, quotient(f"{code} - {need.low}", str(need.width)))


def candidates_statement(plan: Plan, need: CandidatesNeed) -> Statement:
    """Cells are candidates of the attribute's declared domain; other values and NULL count nowhere."""
    attribute = next(a for a in plan.attributes if a.name == need.attribute)
    assert attribute.domain is not None
    listed = [(i, value) for i, value in enumerate(attribute.domain) if value is not None]
    assert listed, "a mode needs candidates"
    pairs = ", ".join(f"({i}, {exact_literal(value, attribute.type)})" for i, value in listed)
    # Two literals may become one value in the attribute's type: then only the first is a candidate.
    domain = f"SELECT min(i) AS bin, value FROM (VALUES {pairs}) AS d(i, value) GROUP BY value"
    return _sparse(plan, need.weight, quoted(attribute.name), domain)


def _sparse(plan: Plan, weight: RowsWeight, cell: str, domain: str | None = None) -> Statement:
    clipping = clip(plan, weight)
    by = tuple(quoted(key.name) for key in plan.keys)
    count = (Sum("weight", cell, 1, counts=True),)
    grouped = (*by, f"{cell} AS cell")
    parts = [f"SELECT *, {ONE} * weight AS net FROM ({all_rows(plan, grouped, count)})"]
    if clipping is not None:
        parts.append(f"SELECT *, -weight AS net FROM ({heavy_rows(grouped, count)})")
    cells = " UNION ALL ".join(parts)
    position = f"k.{quoted(POSITION)}" if plan.keys else "0"
    bin_ = "d.bin" if domain else "c.cell"
    source = f"({cells}) AS c"
    if plan.keys:
        source += f" JOIN {quoted(KEYS_TABLE)} AS k ON {on_keys(plan, 'c', 'k')}"
    if domain:
        source += f" JOIN ({domain}) AS d ON c.cell = d.value"
    opening = f"WITH {', '.join(clipping.clauses)} " if clipping is not None else ""
    columns = f'{int64(position)} AS {quoted(POSITION)}, {int64(bin_)} AS "bin", {int64("sum(c.net)")} AS "weight"'
    sql = f"{opening}SELECT {columns} FROM {source} WHERE c.cell IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2"
    return Statement(sql, COLUMNS, uses_keys=bool(plan.keys))
