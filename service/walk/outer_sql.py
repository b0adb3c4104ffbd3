"""The free half of a query: ordinary SQL over released tables, and intervals for what it computes.

Nothing here sees an exact value. The scratch engine is handed released keys and aggregates; intervals
of arithmetic over aggregates come from replicas, which are drawn from released values and known noise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from service.core.boundary import Array, ReleasedTable
from service.core.plan import Aggregate, Key, Output, Plan, Query
from service.core.prepared import POSITION
from service.core.schema import BIGINT, SqlType
from service.engine.base import (
    Cells,
    Scratch,
    ScratchColumns,
    ScratchLost,
    ScratchRefused,
    ScratchResult,
    TypedColumn,
)

KEY_TYPES = ("BOOLEAN", "BIGINT", "DOUBLE", "VARCHAR", "DATE", "TIMESTAMP")
REPLICA_CELLS_MAX = 4_000_000  # beyond this, arithmetic over aggregates has no interval


@dataclass(frozen=True, slots=True)
class OuterResult:
    """The answer by columns: its cells and, beside them, the ends of their intervals (None where unknown)."""

    types: tuple[str, ...]
    size: int
    cells: list[Cells]
    intervals: list[tuple[Array, Array] | None]


def replicas_wanted(query: Query) -> frozenset[str]:
    """Aggregates whose replicas are needed: those under arithmetic that is evaluated row by row."""
    if not query.outer.row_wise:
        return frozenset()
    return frozenset(name for output in query.outer.outputs if _is_computed(output) for _, name in output.uses)


@dataclass(frozen=True, slots=True)
class Asking:
    """The scratch engine, asked in somebody's name: analysts take turns there."""

    scratch: Scratch
    caller: str
    deadline_s: float

    def run(
        self, select: exp.Expression, tables: Mapping[str, ScratchColumns], public: tuple[str, ...], dataset: str
    ) -> ScratchResult:
        return self.scratch.run(select, tables, public, dataset, self.deadline_s, caller=self.caller)


def run_outer(
    scratch: Scratch, query: Query, released: Sequence[ReleasedTable], deadline_s: float, caller: str = ""
) -> OuterResult:
    """Run the outer SQL and attach intervals to the rows that it kept."""
    outer = query.outer
    plain = as_released(query, released)
    if plain is not None:
        return plain
    pairs = zip(query.cores, released, strict=True)
    tables = {f"core_{index}": with_types(plan, core_columns(table)) for index, (plan, table) in enumerate(pairs)}
    asking = Asking(scratch, caller, deadline_s)
    result = asking.run(outer.select, tables, outer.public_tables, query.dataset)
    width = len(outer.outputs)
    types, size = result.types[:width], result.size
    cells = [result.cells(at) for at in range(width)]
    if not outer.row_wise:
        return OuterResult(types, size, cells, [None] * width)
    positions = np.asarray(result.cells(width), dtype=np.int64)
    found = _column_intervals(asking, query, released[0])
    intervals = [None if ends is None else (ends[0][positions], ends[1][positions]) for ends in found]
    return OuterResult(types, size, cells, intervals)


def as_released(query: Query, released: Sequence[ReleasedTable]) -> OuterResult | None:
    """The answer of an outer SELECT that only names released columns: nothing is left to compute, so the scratch
    engine would hand back what it was given (tests/walk/test_outer.py compares). None: it has work to do."""
    if not is_plain(query):
        return None
    (table,) = released
    types, cells, intervals = [], [], []
    for output in query.outer.outputs:
        assert output.direct is not None, "that is what plain means"
        name = output.direct[1]
        column = table.columns.get(name)
        values = table.keys.columns[name] if column is None else column.values
        type_name = _plain_type(output, values)
        if type_name is None:
            return None
        types.append(type_name)
        cells.append(values.tolist() if column is None else values)
        intervals.append(None if column is None else (column.low, column.high))
    return OuterResult(tuple(types), table.keys.size, cells, intervals)


def is_plain(query: Query) -> bool:
    """Every output is a released column, and nothing filters, sorts or joins."""
    select, outputs = query.outer.select, query.outer.outputs
    if not query.outer.row_wise or query.outer.public_tables or not isinstance(select, exp.Select):
        return False
    wanted = [None if output.direct is None else output.direct[1] for output in outputs]
    parts = {name for name, part in select.args.items() if part}
    named = [_names(column) for column in select.expressions]
    return parts == {"expressions", "from_"} and named == [*wanted, POSITION] and None not in wanted


def _names(column: exp.Expression) -> str | None:
    """The released column that an output is, if it is one and nothing else."""
    is_one = isinstance(column, exp.Alias) and isinstance(column.this, exp.Column)
    return column.this.name if is_one else None


def _plain_type(output: Output, values: Array) -> str | None:
    """The type that the scratch engine would give the column; None where that is not plain to see."""
    if values.dtype.kind in "if":
        return {"i": "BIGINT", "f": "DOUBLE"}[values.dtype.kind]
    is_key = output.role == "key" and output.type is not None and output.type.name in KEY_TYPES
    return output.type.name if is_key and output.type is not None else None


def core_types(plan: Plan) -> dict[str, SqlType]:
    """The columns of a released core and their types, which nothing that is released can change."""
    named: list[Key | Aggregate] = [*plan.keys, *plan.aggregates]
    return {**{item.name: item.type for item in named}, POSITION: BIGINT}


def with_types(plan: Plan, columns: Mapping[str, Array]) -> ScratchColumns:
    """A core's columns with the types that were declared, whatever their values would look like."""
    types = core_types(plan)
    return {name: TypedColumn(values, types[name]) for name, values in columns.items()}


def core_columns(table: ReleasedTable) -> dict[str, Array]:
    """A released core as the scratch engine sees it: keys, aggregates, position."""
    columns: dict[str, Array] = dict(table.keys.columns)
    columns.update({name: column.values for name, column in table.columns.items()})
    columns[POSITION] = np.arange(table.keys.size, dtype=np.int64)
    return columns


def _is_computed(output: Output) -> bool:
    return output.role == "value" and output.direct is None and output.expression is not None and bool(output.uses)


def _column_intervals(asking: Asking, query: Query, table: ReleasedTable) -> list[tuple[Array, Array] | None]:
    """Per output: arrays of low and high by position, or None. Arithmetic over an aggregate that can not be
    simulated has none: to hold it still would promise too little noise."""
    computed = [
        index
        for index, output in enumerate(query.outer.outputs)
        if _is_computed(output) and all(name in table.replicas for _, name in output.uses)
    ]
    simulated = _simulate(asking, query, table, computed) if computed else {}
    intervals: list[tuple[Array, Array] | None] = []
    for index, output in enumerate(query.outer.outputs):
        if output.direct is not None and output.role == "value" and output.direct[1] in table.columns:
            column = table.columns[output.direct[1]]
            intervals.append((column.low, column.high))
        else:
            intervals.append(simulated.get(index))
    return intervals


def _simulate(
    asking: Asking, query: Query, table: ReleasedTable, computed: list[int]
) -> dict[int, tuple[Array, Array]]:
    """Evaluate the computed outputs on every replica of every group, and take the middle 95%."""
    if not table.replicas:
        return {}
    count = min(replica.shape[0] for replica in table.replicas.values())
    size = table.keys.size
    if count * size > REPLICA_CELLS_MAX:
        return {}
    repeated = {name: np.concatenate([values] * count) for name, values in core_columns(table).items()}
    copies = {name: replica[:count].reshape(-1) for name, replica in table.replicas.items()}
    columns = {**with_types(query.cores[0], repeated), **copies}
    outputs = query.outer.outputs
    select = exp.select(
        *(_alias_cast(outputs[index], f"o{index}") for index in computed), exp.column(POSITION, quoted=True)
    ).from_(exp.to_table("core_0"))
    try:
        result = asking.run(select, {"core_0": columns}, (), query.dataset)
    except ScratchRefused as refused:
        # A copy has fractions where the value is whole, and may not fit the SQL; the values themselves do.
        if len(computed) == 1 or isinstance(refused, ScratchLost):
            return {}
        alone = (_simulate(asking, query, table, [index]) for index in computed)
        return {index: ends for found in alone for index, ends in found.items()}
    order = np.argsort(result.cells(len(computed)), kind="stable")
    bounds: dict[int, tuple[Array, Array]] = {}
    for place, index in enumerate(computed):
        bounds[index] = _middle(result.numbers(place)[order].reshape(size, count))
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
