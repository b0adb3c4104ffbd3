"""Seconds and bytes at worst: a pure function of a plan, its needs, public sizes and the speed of a machine."""

from collections.abc import Mapping
from dataclasses import dataclass

from service.core.plan import DistinctNeed, Need, Plan
from service.core.sizes import PrivateSize, Size
from service.engine.base import WorstCase
from service.engine.emit.statements import by_statement
from service.engine.worst_case.loads import FEW, Load, Speed
from service.engine.worst_case.needs import statement_load
from service.engine.worst_case.rows import bounded_rows
from service.engine.worst_case.shapes import NotBounded, RowShape
from service.engine.worst_case.task import Task, task_of

CHILD_BYTES = 48 * 2**20  # what a child holds whatever it is asked: pages of files, plans, buffers of its threads
BUSY_WORKERS = 2  # so many statements at a time are inside the safety factor of whoever promises


@dataclass(frozen=True, slots=True)
class Machine:
    """How fast an engine child is, alone, and how many `workers` with so many `threads` share the `cores`."""

    speed: Speed
    workers: int = 1
    threads: int = 1
    cores: int = 1

    @property
    def crowding(self) -> float:
        """How much slower a statement gets when all workers are busy, as far as BUSY_WORKERS do not explain it."""
        return max(1.0, self.workers * self.threads / (BUSY_WORKERS * max(1, self.cores)))


def at_worst(
    plan: Plan, needs: tuple[Need, ...], sizes: Mapping[str, Size], groups: int | None, machine: Machine
) -> WorstCase | None:
    """None: a size is not known, or the rows have a part that can not be bounded."""
    try:
        rows = bounded_rows(plan, sizes)
    except NotBounded:
        return None
    task = task_of(plan, rows, groups, _counted_table(plan, sizes))
    whole = Load()
    for statement in by_statement(needs):
        whole = whole.after(statement_load(task, statement))
    seconds = whole.seconds(machine.speed) * machine.crowding
    return WorstCase(seconds, CHILD_BYTES + whole.held, _largest(task), _remedy(task, needs))


def _counted_table(plan: Plan, sizes: Mapping[str, Size]) -> PrivateSize | None:
    """The one table that says how many rows a unit has, where one does."""
    bound = plan.row_bound
    if bound is None or bound.constant or len(bound.tables) != 1:
        return None
    size = sizes.get(bound.tables[0])
    return size if isinstance(size, PrivateSize) else None


# --- In words --------------------------------------------------------------------------------------


def _largest(task: Task) -> str:
    """ "4,000 × 4,000 rows of cal for every row of people", or how many rows there are, and of how many groups."""
    shape = task.widest
    many = _multiplied(shape)
    if many:
        return f"{many} for every row of {shape.of}"
    words = f"{shape.rows:,} rows of {shape.of}"
    if task.plan.keys and task.all_groups > FEW:
        words += f", which may make {task.all_groups:,} groups"
    return words


def _multiplied(shape: RowShape) -> str:
    """Factors of one source side by side: "4,000 × 4,000 rows of cal"."""
    parts: list[str] = []
    factors = [factor for factor in shape.factors if factor.times > 1]
    for at, factor in enumerate(factors):
        last = at + 1 == len(factors) or factors[at + 1].of != factor.of
        parts.append(f"{factor.times:,} rows of {factor.of}" if last else f"{factor.times:,}")
    return " × ".join(parts)


def _remedy(task: Task, needs: tuple[Need, ...]) -> str:
    factors = [factor for factor in task.widest.factors if factor.times > 1]
    if factors:
        widest = max(factors, key=lambda factor: factor.times)
        private = task.plan.row_bound is not None and widest.of in task.plan.row_bound.tables
        if private or widest.of == task.widest.of or _is_private(task.plan, widest.of):
            return f"aggregate {widest.of} per unit first (SELECT unit, … FROM {widest.of} GROUP BY unit), then join"
        return f"join {widest.of} on an equality with a column whose values are rare in it, or leave it out"
    if any(isinstance(need, DistinctNeed) for need in needs):
        return "count distinct values of a column with a declared domain or range, or of a smaller table"
    if task.plan.keys and task.all_groups > FEW:
        return "group by fewer or coarser keys, or by declared ones; texts with a smaller max_bytes take less"
    return "ask for fewer aggregates at once, or of a smaller table"


def _is_private(plan: Plan, name: str) -> bool:
    return name in plan.tables and plan.tables[name].private
