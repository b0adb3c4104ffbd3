"""What a query turns out to be: private rows, released values, or public tables alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from service.core.prepared import POSITION
from service.core.schema import SqlType
from service.sql.expr.trees import aliased
from service.sql.rows.bind import Env, Rows, RowScope
from service.sql.rows.relations import Context

Used = tuple[tuple[int, str], ...]  # (core, column) of the aggregates that something was computed from


@dataclass(frozen=True, slots=True)
class OuterColumn:
    """A column of released SQL: its type and what it was computed from.

    `expression` is the column over one core's columns, where it is row-wise; intervals are worked out from it.
    """

    type: SqlType | None = None
    direct: tuple[int, str] | None = None
    uses: Used = ()
    expression: exp.Expression | None = None


@dataclass(frozen=True, slots=True)
class Released:
    """SQL over released tables. `core`: every row is a row of that core, at `position`."""

    select: exp.Expression
    columns: Mapping[str, OuterColumn]
    core: int | None = None
    position: exp.Column | None = None
    tables: frozenset[str] = frozenset()

    def tree(self, *, positioned: bool = False) -> exp.Expression:
        made = self.select.copy()
        if positioned and self.position is not None:
            made.append("expressions", aliased(self.position.copy(), POSITION))
        return made


@dataclass(frozen=True, slots=True)
class Public:
    """A query over public tables alone: bound where it is used."""

    query: exp.Expression
    env: Env


Result = Rows | Released | Public
Source = tuple[str, Result, exp.Join | None, exp.Expression]  # visible name, kind, how it is joined, where it stands


class QueryWalk(Protocol):
    """The walk over a query (service/sql/split.py), as the rooms below it may call it for nested queries."""

    context: Context

    def query(self, node: exp.Expression, env: Env, parent: RowScope | None = None) -> Result: ...

    def items(self, select: exp.Select, env: Env) -> list[Source]: ...

    def rows(self, result: Result, node: exp.Expression) -> Rows: ...
