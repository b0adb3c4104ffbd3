"""Counts, sums and sums of squares per key, every row weighted by its unit: one statement.

in   MomentsNeed(m0, degree 1, RowsWeight(20)) over `SELECT "#unit", k0, m0 FROM orders`
out  per key: ONE·count(m0) − Σ lost, ONE·sum(m0) − Σ lost·m0

Why after aggregation: the key table is joined to one row per group, not to every row. Widths: with
fewer than ROWS_MAX rows and |x| <= 2^62 (2^32 when squared) every product and sum is below 2^126, so
128 bits hold them, and what stays below 2^63 is emitted as 64 bits.
"""

from dataclasses import dataclass

from service.core.plan import ONE, MomentsNeed, Plan, UnitSumWeight
from service.core.prepared import KEYS_TABLE, POSITION
from service.engine.emit.clipping import HEAVY, LOST, UNIT, Clipping, clip, code_within, measure_named, on_keys
from service.engine.emit.spelling import Statement, int64, int128, tree_sql
from service.engine.quoting import quoted

ROWS_MAX = 2**40  # rows after joins; more can not be read before any deadline
NARROW = 2**62


@dataclass(frozen=True, slots=True)
class Sum:
    """One output column: Σ w·value over rows where `value` is not NULL. No value: Σ w over every row.

    `largest` bounds |value|; `counts` makes it Σ w where `value` is not NULL.
    """

    name: str
    value: str | None
    largest: int
    counts: bool = False


def moments_statement(plan: Plan, needs: tuple[MomentsNeed, ...]) -> Statement:
    """All needs share one weight; needs about one measure share its clamp."""
    weight = needs[0].weight
    assert all(need.weight == weight for need in needs)
    clipping = clip(plan, weight, needs[0])
    sums = tuple({column.name: column for need in needs for column in _sums(plan, need)}.values())
    sql = dense(plan, clipping, sums)
    return Statement(sql, tuple(column.name for column in sums), uses_keys=bool(plan.keys))


def _sums(plan: Plan, need: MomentsNeed) -> tuple[Sum, ...]:
    if need.measure is None:
        assert need.degree == 0
        return (Sum("*.n", None, 1),)
    measure = measure_named(plan, need.measure)
    value = code_within(measure, low=need.low, high=need.high)
    largest = max(abs(need.low), abs(need.high))
    assert largest < 2**62, "codes wider than sums can hold"
    if isinstance(need.weight, UnitSumWeight):
        return (Sum(f"{measure.name}.us", int64(value), largest),)
    found = [Sum(f"{measure.name}.n", quoted(measure.name), 1, counts=True)]
    if need.degree >= 1:
        found.append(Sum(f"{measure.name}.s1", int64(value), largest))
    if need.degree == 2:
        assert largest <= 2**32, "codes wider than squares can hold"
        factor = int64(value) if largest < 2**31 else int128(value)
        found.append(Sum(f"{measure.name}.s2", f"{factor} * {factor}", largest * largest))
    return tuple(found)


def dense(plan: Plan, clipping: Clipping | None, sums: tuple[Sum, ...]) -> str:
    """One row per key in order of position, zeros where a group is empty; without GROUP BY one row."""
    by = tuple(quoted(key.name) for key in plan.keys)
    parts = {"p": all_rows(plan, by, sums)}
    if clipping is not None:
        parts["h"] = heavy_rows(by, sums)
    columns = ", ".join(f"{net(column, clipping)} AS {quoted(column.name)}" for column in sums)
    opening = f"WITH {', '.join(clipping.clauses)} " if clipping is not None else ""
    if not plan.keys:
        sources = " CROSS JOIN ".join(f"({part}) AS {alias}" for alias, part in parts.items())
        return f"{opening}SELECT {columns} FROM {sources}"
    joins = "".join(f" LEFT JOIN ({part}) AS {alias} ON {on_keys(plan, 'k', alias)}" for alias, part in parts.items())
    return f"{opening}SELECT {columns} FROM {quoted(KEYS_TABLE)} AS k{joins} ORDER BY k.{quoted(POSITION)}"


def all_rows(plan: Plan, by: tuple[str, ...], sums: tuple[Sum, ...]) -> str:
    """The plain aggregation, unweighted, over all groups: the key table drops the others afterwards.

    Dropping rows of unreleased groups first would probe the key table once per row, which costs more
    than grouping them: plain SQL groups them too.
    """
    return _grouped(f"({tree_sql(plan.rows)})", by, [f"{_plain(column)} AS {quoted(column.name)}" for column in sums])


def heavy_rows(by: tuple[str, ...], sums: tuple[Sum, ...]) -> str:
    """What heavy units' rows must not count."""
    source = f"{HEAVY} JOIN {LOST} USING ({UNIT})"
    return _grouped(source, by, [f"{_loss(column)} AS {quoted(column.name)}" for column in sums])


def _grouped(source: str, by: tuple[str, ...], columns: list[str]) -> str:
    closing = f" GROUP BY {', '.join(str(i + 1) for i in range(len(by)))}" if by else ""
    return f"SELECT {', '.join([*by, *columns])} FROM {source}{closing}"


def _plain(column: Sum) -> str:
    if column.value is None:
        return "count(*)"
    return f"count({column.value})" if column.counts else f"sum({column.value})"


def _loss(column: Sum) -> str:
    if column.value is None:
        return "sum(lost)"
    if column.counts:
        return f"sum(CASE WHEN {column.value} IS NOT NULL THEN lost END)"
    factor = column.value if column.largest * ONE < NARROW else int128(column.value)
    return f"sum(lost * ({factor}))"


def net(column: Sum, clipping: Clipping | None) -> str:
    """ONE·plain − loss, as 64 bits where that is proven to hold it."""
    name = quoted(column.name)
    value = f"{int128(f'coalesce(p.{name}, 0)')} * {ONE}"
    if clipping is not None:
        value = f"{value} - coalesce(h.{name}, 0)"
    return int64(value) if column.largest * ONE * ROWS_MAX < 2**63 else int128(value)
