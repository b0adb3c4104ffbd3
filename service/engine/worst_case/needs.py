"""What the statements of each need do at worst: the operators of service/engine/emit, counted instead of written.

One function per module there. Whatever is decided there by the plan's shape (may a unit exceed a bound at all, is the
index enough to know) is decided here in the same way; whatever is decided by rows goes the dearer way.
"""

from service.core.plan import (
    BoundsNeed,
    CandidatesNeed,
    DistinctNeed,
    HistogramNeed,
    KeysNeed,
    L2Weight,
    MomentsNeed,
    Need,
    RowsWeight,
    UnitsNeed,
    UnitSumWeight,
    UnitTotalsNeed,
)
from service.core.sizes import SLACK
from service.engine.emit.clipping import scanned_table
from service.engine.emit.kept_pairs import EDGE_MAX
from service.engine.worst_case.loads import Load, grouped, hash_joined, load, materialised, ordered
from service.engine.worst_case.shapes import type_width
from service.engine.worst_case.task import Task

RANKED_SHARE = 2  # of a unit's pairs, at most one in so many goes the long way although hashes decide most


def statement_load(task: Task, needs: tuple[Need, ...]) -> Load:
    """One statement (service/engine/emit/statements.py groups the needs), from its text to its result in the service,
    and what the service does with that result."""
    first = needs[0]
    match first:
        case MomentsNeed():
            work, passes = _moments(task, [need for need in needs if isinstance(need, MomentsNeed)])
        case HistogramNeed():
            work, passes = _sparse(task, first.weight, cells=first.bins, width=8)
        case CandidatesNeed():
            work, passes = _candidates(task, first)
        case DistinctNeed():
            width = _attribute_width(task, first.attribute)
            work, passes = _kept_pairs(task, first.pairs_per_unit, width=16 + width, on_keys=True)
            work = work + grouped(task.shape.rows, task.shape.rows, aggregates=0, width=8 + width) + _dense(task, 1)
        case UnitsNeed():
            work, passes = _units(task, first)
        case KeysNeed():
            work, passes = _keys(task, first)
        case BoundsNeed():
            work, passes = _bounds(task, first)
        case UnitTotalsNeed():
            once = grouped(task.shape.rows, task.units, aggregates=1, width=8)
            work, passes = task.rows.load + once + load(send=2 * first.bins, cell=first.bins), 1
    planned = passes * (task.rows.nodes + 10 * task.columns) + 40
    return work + load(statement=1, node=planned)


# --- Weights (clipping.py) -------------------------------------------------------------------------


def _may_exceed(task: Task, limit: int) -> tuple[Load, int, int] | None:
    """The load of finding units with more rows than `limit`, and how many units and rows that is at most; None: the
    plan's shape says that there are none."""
    bound = task.plan.row_bound
    if bound is None or bound.constant > limit:
        counted = task.rows.load + grouped(task.shape.rows, task.units, aggregates=1, width=8)
        return (counted, *_heavy(task, limit))
    if not bound.tables:
        return None
    listed = task.units * len(bound.tables)
    index = load(read=2 * listed, compute=2 * listed)
    if len(bound.tables) > 1:
        index = index + grouped(listed, task.units, aggregates=1, width=8)
    return (index, *_heavy(task, max(0, limit - bound.constant)))


def _heavy(task: Task, limit: int) -> tuple[int, int]:
    """Units that may have more than `limit` rows, and their rows: by the profile, where one table decides."""
    rows = task.shape.rows
    units = min(task.units, rows // (limit + 1)) if limit < rows else 0
    if task.size is None or task.size.profile is None:
        return units, rows
    beyond = [part for part in task.size.profile.bins(task.size.most) if part[1] > limit]
    slack = SLACK * task.size.profile.deviation
    by_profile = sum(max(0, count) + slack for _, _, count in beyond)
    by_rows = sum((max(0, count) + slack) * high for _, high, count in beyond)
    return min(units, int(by_profile) + 1), min(rows, int(by_rows) + 1)


def _clipped(task: Task, limit: int, *, by: int, values: int, in_keys: bool) -> tuple[Load, int]:
    """CANDIDATES, HEAVY, LOST, and the second aggregation over the rows of heavy units; and how often rows are read.
    `by`: groups of that aggregation; `values`: sums in it."""
    found = _may_exceed(task, limit)
    if found is None:
        return Load(), 0
    work, units, rows = found
    passes = 2 if task.plan.row_bound is None or task.plan.row_bound.constant > limit else 1
    work = work + task.rows.load + hash_joined(task.shape.rows, units, rows, width=8)
    if in_keys:
        work = work + hash_joined(rows, task.answered, rows, width=task.key_width)
    work = work + materialised(rows, columns=task.columns, width=task.row_width)
    work = work + grouped(rows, min(rows, by * units), aggregates=1, width=8 + task.key_width)
    work = work + hash_joined(rows, units, rows, width=16)
    return work + grouped(rows, by, aggregates=2 * values, width=task.key_width), passes


def _limit(task: Task, need: MomentsNeed) -> int:
    weight = need.weight
    if isinstance(weight, RowsWeight):
        return weight.rows_per_unit
    if isinstance(weight, L2Weight):
        return weight.bound
    assert isinstance(weight, UnitSumWeight)
    return weight.cap // max(1, abs(need.low), abs(need.high))


# --- Families of needs -----------------------------------------------------------------------------


def _dense(task: Task, columns: int) -> Load:
    """The key table shipped, joined with one row per group, put in order, and the result read by the service."""
    answered = task.answered
    shipped = load(name=answered * len(task.plan.keys)) + hash_joined(
        answered, task.all_groups, answered, width=task.key_width
    )
    result = load(send=answered * columns, cell=answered * columns, held=answered * columns * 32)
    return shipped + ordered(answered, width=8 * columns) + result


def _moments(task: Task, needs: list[MomentsNeed]) -> tuple[Load, int]:
    sums = sum(1 + need.degree for need in needs)
    groups = task.all_groups
    wide = task.rows.load + load(compute=3 * sums * task.shape.rows)
    work = wide + grouped(task.shape.rows, groups, aggregates=sums, width=task.key_width)
    in_keys = bool(task.plan.keys) and (isinstance(needs[0].weight, L2Weight) or not task.plan.keys_declared)
    clipped, passes = _clipped(task, _limit(task, needs[0]), by=groups, values=sums, in_keys=in_keys)
    return work + clipped + _dense(task, sums), 1 + passes


def _sparse(task: Task, weight: RowsWeight, *, cells: int, width: int) -> tuple[Load, int]:
    """A count per key and cell, those of heavy units taken off, joined with the keys and put in order."""
    rows = task.shape.rows
    groups = task.cells(cells)
    wide = task.key_width + width
    work = task.rows.load + load(compute=8 * rows) + grouped(rows, groups, aggregates=1, width=wide)
    clipped, passes = _clipped(task, weight.rows_per_unit, by=groups, values=1, in_keys=not task.plan.keys_declared)
    work = work + clipped + load(name=task.answered * len(task.plan.keys))
    work = work + hash_joined(2 * groups, task.answered, 2 * groups, width=task.key_width)
    found = min(groups, task.answered * cells)
    work = work + grouped(2 * groups, found, aggregates=1, width=16) + ordered(found, width=24)
    # The choice looks at every cell that has rows, and at every group.
    service = load(send=3 * found, cell=found / 4 + 20 * task.answered, held=found * 96)
    return work + service, 1 + passes


def _candidates(task: Task, need: CandidatesNeed) -> tuple[Load, int]:
    attribute = next(item for item in task.plan.attributes if item.name == need.attribute)
    listed = len(attribute.domain or ())
    work, passes = _sparse(
        task,
        need.weight,
        cells=listed + 1,
        width=type_width(attribute.type, attribute.max_bytes, attribute.domain),
    )
    return work + load(node=3 * listed), passes


def _units(task: Task, need: UnitsNeed) -> tuple[Load, int]:
    if not task.plan.keys:
        counted = grouped(task.shape.rows, task.units, aggregates=1, width=8)
        return task.rows.load + counted + load(send=1, cell=1), 1
    work, passes = _kept_pairs(task, need.groups_per_unit, width=16, on_keys=True)
    return work + _dense(task, 1), passes


def _attribute_width(task: Task, name: str) -> int:
    attribute = next(item for item in task.plan.attributes if item.name == name)
    return type_width(attribute.type, attribute.max_bytes, attribute.domain)


def _kept_pairs(task: Task, limit: int, *, width: int, on_keys: bool) -> tuple[Load, int]:
    """At most so many distinct pairs of each unit (kept_pairs.py), and how often rows are read for it.

    Of a unit with many rows, either its hashes rise soon and the lists of smallest ones decide, or its pairs
    repeat, and the distinct ones are at most half of its rows: never are all rows both in LOW and in FEW.
    """
    rows = task.shape.rows
    once = task.rows.load
    if on_keys and task.plan.keys:
        once = once + hash_joined(rows, task.answered, rows, width=task.key_width)
    shipped = load(name=task.answered * len(task.plan.keys)) if on_keys else Load()
    distinct = once + grouped(rows, rows, aggregates=0, width=width) + materialised(rows, columns=3, width=width)
    found = _may_exceed(task, limit)
    if found is None:
        return shipped + distinct, 1
    work, units, _ = found
    passes = 2
    work = work + shipped + distinct
    if limit <= EDGE_MAX:
        passes += 2
        work = work + _edges(task, limit, units, width=width) + once + hash_joined(rows, units, rows, width=24)
    work = work + load(find=rows)  # MANY
    ranked = -(-rows // RANKED_SHARE) if limit <= EDGE_MAX else rows
    work = (
        work + hash_joined(ranked, units, ranked, width=24) + load(hash=3 * ranked) + ordered(ranked, width=width + 8)
    )
    return work + materialised(rows, columns=3, width=width), passes


def _edges(task: Task, limit: int, units: int, *, width: int) -> Load:
    """LOW and EDGES: hashes of the rows of units that may have too many, and the smallest of each unit."""
    rows = task.shape.rows
    among = limit + 1 + max(2, limit // 2)
    candidates = hash_joined(task.units, units, units, width=16)
    low = min(rows, rows // RANKED_SHARE + units * (4 * limit + 8))
    hashed = load(hash=4 * rows) + materialised(low, columns=4, width=width + 8)
    lists = load(smallest=low, held=units * (8 * among + 64) * 2, compute=units * limit, order=units / 8)
    return candidates + hashed + lists


def _keys(task: Task, need: KeysNeed) -> tuple[Load, int]:
    """The pairs that units keep, or their first rows; then every key that anybody kept, in order, to the service."""
    rows, limit = task.shape.rows, need.groups_per_unit
    width = 8 + task.key_width
    if need.rule == "rows":
        work, passes = _row_slots(task, limit, width=width)
    else:
        work, passes = _kept_pairs(task, limit, width=width, on_keys=False)
    slots = min(rows, task.units * limit)
    work = work + grouped(slots, task.units, aggregates=1, width=8) + hash_joined(slots, task.units, slots, width=16)
    groups = min(slots, task.all_groups)
    work = work + grouped(slots, groups, aggregates=3, width=task.key_width)
    named = groups // max(1, need.min_units)
    work = work + ordered(named, width=task.key_width)
    result = load(send=2 * named, name=named * len(task.plan.keys), candidate=named, held=2 * named * (width + 32))
    return work + result, passes


def _row_slots(task: Task, limit: int, *, width: int) -> tuple[Load, int]:
    rows = task.shape.rows
    once = task.rows.load + load(read=rows, compute=2 * rows)
    if scanned_table(task.plan) is not None and task.plan.rows.args.get("where") is None:
        return once + hash_joined(min(rows, task.units * limit), task.units, rows, width=16), 1
    once = once + load(hash=rows * task.columns) + hash_joined(rows, task.units, rows, width=16)
    found = _may_exceed(task, limit)
    if found is None:
        return once + materialised(rows, columns=2, width=width), 1
    work, units, heavy = found
    work = work + once + hash_joined(rows, units, rows, width=16) + materialised(rows, columns=3, width=width + 8)
    passes = 2
    if limit <= EDGE_MAX:
        passes += 1
        work = work + once + load(smallest=heavy, held=units * (8 * limit + 64) * 2)
    work = work + load(find=rows) + ordered(rows, width=width + 8)
    return work + materialised(rows, columns=2, width=width), passes


def _bounds(task: Task, need: BoundsNeed) -> tuple[Load, int]:
    """A count per unit and bin, and a window over them."""
    rows = task.shape.rows
    cells = min(rows, task.units * 2 * need.bins)
    work = task.rows.load + load(compute=2 * need.bins * rows) + grouped(rows, cells, aggregates=1, width=16)
    return work + ordered(cells, width=24) + load(send=2 * need.bins, cell=2 * need.bins, find=cells), 1
