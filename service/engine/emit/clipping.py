"""Contribution bounds as SQL: which units are too heavy, and how much of their rows does not count.

Every unit has an integer weight w <= ONE, the same for all of its rows, and a released sum is Σ w·x.
Nearly all units are light (w = ONE), so statements compute ONE·Σx over all rows at the speed of plain
SQL and subtract the loss, Σ (ONE − w)·x, over the rows of heavy units only.

Invariant C1: `lost` of a unit is a function of that unit's rows in Plan.rows, the bound and the public
key table; nothing about other units, row order or threads enters.
Invariant C2: with c rows of a unit, Σ w <= ONE·rows_per_unit (RowsWeight); Σ_g (w·v_g)² <= (ONE·bound)²
(L2Weight); Σ |w·x| <= ONE·cap (UnitSumWeight).
Guarded by tests/property/test_bounding_*.py.
"""

from dataclasses import dataclass

from sqlglot import exp

from service.core.plan import ONE, L2Weight, Measure, MomentsNeed, Plan, RowsWeight, UnitSumWeight, Weight
from service.core.prepared import KEYS_TABLE, ROW_COUNT, UNIT_COLUMN, index_name, is_code, total_name
from service.engine.emit.spelling import clamped, int64, int128, null_safe_equal, quotient, root, tree_sql
from service.engine.quoting import quoted

UNIT = quoted(UNIT_COLUMN)
ROWS = quoted(ROW_COUNT)
CANDIDATES_NAME = "#candidates"
CANDIDATES = quoted(CANDIDATES_NAME)
HEAVY = quoted("#heavy")
LOST = quoted("#lost")

BOUND_MAX = 2**31  # ONE·bound and bound² stay below 2^63


@dataclass(frozen=True, slots=True)
class Clipping:
    """WITH clauses that define HEAVY (the rows of units that may be heavy, as in Plan.rows) and LOST
    (UNIT, "lost" = ONE − w, one row per unit with w < ONE)."""

    clauses: tuple[str, ...]


def clip(plan: Plan, weight: Weight, need: MomentsNeed | None = None) -> Clipping | None:
    """How `weight` falls short of ONE, or None when the plan's shape proves that no unit is heavy.

    `need` is the one sum that a UnitSumWeight is about.
    """
    if isinstance(weight, RowsWeight):
        return _clip_rows(plan, weight.rows_per_unit)
    if isinstance(weight, L2Weight):
        return _clip_l2(plan, weight.bound)
    assert need is not None
    return _clip_unit_sum(plan, weight, need)


def _clip_rows(plan: Plan, bound: int) -> Clipping | None:
    """w = (ONE·B) // max(c, B): below ONE exactly when c > B, and then c·w <= ONE·B."""
    assert 1 <= bound <= BOUND_MAX
    candidates = may_exceed(plan, bound)
    if candidates is None:
        return None
    counts = f"SELECT {UNIT}, count(*) AS c FROM {HEAVY} GROUP BY {UNIT}"
    weight = quotient(str(ONE * bound), "c")
    lost = f"SELECT {UNIT}, {ONE} - {weight} AS lost FROM ({counts}) WHERE c > {bound}"
    return _clauses(plan, candidates, lost, inside_keys=not plan.keys_declared)


def _clip_l2(plan: Plan, bound: int) -> Clipping | None:
    """w = min(ONE, isqrt(ONE²·C² // S)), S = Σ_g v_g² over the groups of the key table.

    w <= ONE·C/√S, so Σ_g (w·v_g)² <= ONE²·C². S <= c² for c rows, so a unit with at most C rows is
    light. S > C² makes the quotient less than 2^40: the integer root is exact there.
    """
    assert 1 <= bound <= BOUND_MAX
    candidates = may_exceed(plan, bound)
    if candidates is None:
        return None
    by = ", ".join([UNIT, *(quoted(key.name) for key in plan.keys)])
    groups = f"SELECT {UNIT}, {int128('count(*)')} AS v FROM {HEAVY} GROUP BY {by}"
    squares = f"SELECT {UNIT}, sum(v * v) AS s FROM ({groups}) GROUP BY {UNIT}"
    weight = root(quotient(int128(str(ONE * ONE * bound * bound)), "s"))
    lost = f"SELECT {UNIT}, {ONE} - {weight} AS lost FROM ({squares}) WHERE s > {bound * bound}"
    return _clauses(plan, candidates, lost, inside_keys=bool(plan.keys))


def _clip_unit_sum(plan: Plan, weight: UnitSumWeight, need: MomentsNeed) -> Clipping | None:
    """w = (ONE·C) // max(Σ|x|, C): Σ|w·x| <= ONE·C."""
    largest = max(abs(need.low), abs(need.high))
    if largest == 0:
        return None
    assert need.measure is not None
    measure = measure_named(plan, need.measure)
    candidates = may_exceed(plan, weight.cap // largest)
    if candidates is None:
        return None
    indexed = _indexed_sums(plan, measure, need, weight.cap)
    value = code_within(measure, low=need.low, high=need.high)
    totals = f"SELECT {UNIT}, sum(abs({int64(value)})) AS total FROM {HEAVY} GROUP BY {UNIT}"
    share = int64(quotient(int128(str(ONE * weight.cap)), "total"))
    lost = f"SELECT {UNIT}, {ONE} - {share} AS lost FROM ({totals}) WHERE total > {weight.cap}"
    return _clauses(plan, indexed or candidates, lost, inside_keys=not plan.keys_declared)


def _clauses(plan: Plan, candidates: str, lost: str, *, inside_keys: bool) -> Clipping:
    return Clipping(
        (
            f"{CANDIDATES} AS MATERIALIZED ({candidates})",
            f"{HEAVY} AS MATERIALIZED ({rows_of_candidates(plan, inside_keys=inside_keys)})",
            f"{LOST} AS MATERIALIZED ({lost})",
        )
    )


# --- Which units to look at ------------------------------------------------------------------------


def may_exceed(plan: Plan, limit: int) -> str | None:
    """A SELECT of every unit that may have more than `limit` rows in Plan.rows, and how many at most
    ("most"); None: there is no such unit.

    Reads the indexes where the plan's shape bounds the rows (RowBound); otherwise counts the rows.
    """
    bound = plan.row_bound
    if bound is None or bound.constant > limit:
        return f"SELECT {UNIT}, count(*) AS most FROM ({tree_sql(plan.rows)}) GROUP BY {UNIT} HAVING count(*) > {limit}"
    if not bound.tables:
        return None
    most = f"{bound.constant} + "
    if len(bound.tables) == 1:
        return f"SELECT {UNIT}, {most}{ROWS} AS most FROM {index_of(bound.tables[0])} WHERE {most}{ROWS} > {limit}"
    parts = " UNION ALL ".join(f"SELECT {UNIT}, {ROWS} FROM {index_of(table)}" for table in bound.tables)
    total = f"{most}sum({ROWS})"
    return f"SELECT {UNIT}, {total} AS most FROM ({parts}) GROUP BY {UNIT} HAVING {total} > {limit}"


def _indexed_sums(plan: Plan, measure: Measure, need: MomentsNeed, cap: int) -> str | None:
    """The units whose Σ|code| over the whole table exceeds the cap, where that bounds Σ|x| of the plan.

    It does for a plain scan that sums the code column itself: WHERE only drops rows, and clamping again
    to a range around 0 only shrinks |x|.
    """
    table = scanned_table(plan)
    column = next((p.unalias() for p in plan.rows.selects if p.alias_or_name == measure.name), None)
    if table is None or not isinstance(column, exp.Column) or not is_code(column.name):
        return None
    if (need.low, need.high) != (measure.low, measure.high) and not need.low <= 0 <= need.high:
        return None
    return f"SELECT {UNIT} FROM {index_of(table)} WHERE {quoted(total_name(column.name))} > {cap}"


def scanned_table(plan: Plan) -> str | None:
    """The private table, when Plan.rows is a plain scan of it: SELECT … FROM table [WHERE …]."""
    present = {name for name, value in plan.rows.args.items() if value}
    source = plan.rows.args.get("from_")
    if present - {"expressions", "from_", "where"} or source is None or not isinstance(source.this, exp.Table):
        return None
    table: str = source.this.name
    return table if plan.row_bound is not None and plan.row_bound.tables == (table,) else None


def index_of(table: str) -> str:
    """A private table's index of units."""
    return quoted(index_name(table))


# --- Rows ------------------------------------------------------------------------------------------


def rows_of_candidates(plan: Plan, *, inside_keys: bool) -> str:
    """The rows of units in CANDIDATES, found before the joins; `inside_keys`: only those whose group is in
    the public key table, so that no allowance is wasted on groups that were not released.

    Sound by P2: a unit's rows are a function of that unit's rows (and public tables), so leaving the
    other units out of the private tables changes nothing for those that stay.
    """
    private = set(plan.row_bound.tables) if plan.row_bound is not None else set()
    source = tree_sql(plan.rows.transform(lambda node: _only_candidates(node, private)))
    if scanned_table(plan) is None:  # another private table may be there, whose units are not yet known
        source = f"SELECT r.* FROM ({source}) AS r SEMI JOIN {CANDIDATES} AS c ON r.{UNIT} = c.{UNIT}"
    return _inside_keys(plan, source) if inside_keys else source


def _only_candidates(node: exp.Expression, private: set[str]) -> exp.Expression:
    if not isinstance(node, exp.Table) or node.name not in private:
        return node
    unit, units = exp.column(UNIT_COLUMN, quoted=True), exp.table_(CANDIDATES_NAME, quoted=True)
    wanted = exp.In(this=unit, query=exp.Subquery(this=exp.select(unit.copy()).from_(units)))
    table = exp.table_(node.name, quoted=True)
    return exp.select("*").from_(table).where(wanted).subquery(exp.to_identifier(node.alias_or_name, quoted=True))


def _inside_keys(plan: Plan, source: str) -> str:
    return f"SELECT r.* FROM ({source}) AS r SEMI JOIN {quoted(KEYS_TABLE)} AS k ON {on_keys(plan, 'r', 'k')}"


def on_keys(plan: Plan, left: str, right: str) -> str:
    """Equality of all group keys; TRUE without GROUP BY."""
    columns = [quoted(key.name) for key in plan.keys]
    return " AND ".join(null_safe_equal(f"{left}.{c}", f"{right}.{c}") for c in columns) or "TRUE"


def measure_named(plan: Plan, name: str) -> Measure:
    return next(measure for measure in plan.measures if measure.name == name)


def code_within(measure: Measure, *, low: int, high: int) -> str:
    """The measure's code inside [low, high]; its own range needs no second clamp."""
    column = quoted(measure.name)
    return column if low <= measure.low and measure.high <= high else clamped(column, low=low, high=high)
