"""The free half of a query: ordinary SQL over released tables, and intervals for what it computes.

Nothing here sees an exact value. The scratch engine is handed released keys and aggregates; intervals
of arithmetic over aggregates come from replicas, which are drawn from released values and known noise.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from service.core.boundary import Array, ReleasedTable
from service.core.plan import POSITION, Output, Query

REPLICA_CELLS_MAX = 4_000_000  # beyond this, arithmetic over aggregates has no interval

Interval = tuple[Any, Any]


class ScratchRun(Protocol):
    """What scratch.run needs to look like here; service/engine/scratch.py keeps it."""

    def run(
        self,
        sql: str,
        tables: Mapping[str, Mapping[str, Array]],
        *,
        public: tuple[str, ...],
        dataset: str,
        deadline_s: float,
    ) -> Any: ...


@dataclass(frozen=True, slots=True)
class OuterResult:
    """The rows of the answer and, cell by cell, their intervals (None where unknown)."""

    types: tuple[str, ...]
    rows: list[list[Any]]
    low: list[list[Any]]
    high: list[list[Any]]


def replicas_wanted(query: Query) -> frozenset[str]:
    """Aggregates whose replicas are needed: those under arithmetic that is evaluated row by row."""
    if not query.outer.row_wise:
        return frozenset()
    return frozenset(name for output in query.outer.outputs if _is_computed(output) for _, name in output.uses)


def run_outer(scratch: ScratchRun, query: Query, released: Sequence[ReleasedTable], deadline_s: float) -> OuterResult:
    """Run the outer SQL and attach intervals to the rows that it kept."""
    outer = query.outer
    tables = {f"core_{index}": core_columns(table) for index, table in enumerate(released)}
    result = scratch.run(
        outer.select.sql(dialect="duckdb"),
        tables,
        public=outer.public_tables,
        dataset=query.dataset,
        deadline_s=deadline_s,
    )
    width = len(outer.outputs)
    rows = [list(row[:width]) for row in result.rows]
    types = tuple(result.types[:width])
    if not outer.row_wise:
        empty = [[None] * width for _ in rows]
        return OuterResult(types, rows, empty, [list(cells) for cells in empty])
    positions = [int(row[width]) for row in result.rows]
    intervals = _column_intervals(scratch, query, released[0], deadline_s)
    low = [[_at(intervals[j], 0, position) for j in range(width)] for position in positions]
    high = [[_at(intervals[j], 1, position) for j in range(width)] for position in positions]
    return OuterResult(types, rows, low, high)


def core_columns(table: ReleasedTable) -> dict[str, Array]:
    """A released core as the scratch engine sees it: keys, aggregates, position."""
    columns: dict[str, Array] = dict(table.keys.columns)
    columns.update({name: column.values for name, column in table.columns.items()})
    columns[POSITION] = np.arange(table.keys.size, dtype=np.int64)
    return columns


def _is_computed(output: Output) -> bool:
    return output.role == "value" and output.direct is None and output.expression is not None and bool(output.uses)


def _column_intervals(
    scratch: ScratchRun, query: Query, table: ReleasedTable, deadline_s: float
) -> list[tuple[Array, Array] | None]:
    """Per output: arrays of low and high by position, or None."""
    computed = [index for index, output in enumerate(query.outer.outputs) if _is_computed(output)]
    simulated = _simulate(scratch, query, table, computed, deadline_s) if computed else {}
    intervals: list[tuple[Array, Array] | None] = []
    for index, output in enumerate(query.outer.outputs):
        if output.direct is not None and output.role == "value" and output.direct[1] in table.columns:
            column = table.columns[output.direct[1]]
            intervals.append((column.low, column.high))
        else:
            intervals.append(simulated.get(index))
    return intervals


def _simulate(
    scratch: ScratchRun, query: Query, table: ReleasedTable, computed: list[int], deadline_s: float
) -> dict[int, tuple[Array, Array]]:
    """Evaluate the computed outputs on every replica of every group, and take the middle 95%."""
    if not table.replicas:
        return {}
    count = min(replica.shape[0] for replica in table.replicas.values())
    size = table.keys.size
    if count * size > REPLICA_CELLS_MAX:
        return {}
    columns: dict[str, Array] = {name: np.concatenate([values] * count) for name, values in core_columns(table).items()}
    for name, replica in table.replicas.items():
        columns[name] = replica[:count].reshape(-1)
    outputs = query.outer.outputs
    select = exp.select(
        *(_alias_cast(outputs[index], f"o{index}") for index in computed), exp.column(POSITION, quoted=True)
    ).from_(exp.to_table("core_0"))
    result = scratch.run(
        select.sql(dialect="duckdb"), {"core_0": columns}, public=(), dataset=query.dataset, deadline_s=deadline_s
    )
    order = np.argsort(np.array([row[-1] for row in result.rows], dtype=np.int64), kind="stable")
    bounds: dict[int, tuple[Array, Array]] = {}
    for place, index in enumerate(computed):
        cells = np.array(
            [math.nan if row[place] is None else float(row[place]) for row in result.rows], dtype=np.float64
        )[order].reshape(size, count)
        bounds[index] = _middle(cells)
    return bounds


def _alias_cast(output: Output, name: str) -> exp.Alias:
    assert output.expression is not None
    double = exp.TryCast(this=output.expression.copy(), to=exp.DataType.build("DOUBLE"))
    return exp.Alias(this=double, alias=exp.to_identifier(name))


def _middle(cells: npt.NDArray[np.float64]) -> tuple[Array, Array]:
    """The 2.5% and 97.5% points of each row; NaN where a replica could not be evaluated."""
    with np.errstate(invalid="ignore"):
        low, high = np.quantile(cells, [0.025, 0.975], axis=1)
    return low, high


def _at(interval: tuple[Array, Array] | None, side: int, position: int) -> Any:
    if interval is None:
        return None
    value = interval[side][position]
    if isinstance(value, float | np.floating) and not math.isfinite(float(value)):
        return None
    return value
