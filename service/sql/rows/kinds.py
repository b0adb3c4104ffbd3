"""What a query turns out to be: private rows, released values, or public tables alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from service.core.plan import POSITION
from service.sql.expr.trees import aliased
from service.sql.outer.translate import Made
from service.sql.rows.bind import Env, Rows


@dataclass(frozen=True, slots=True)
class Released:
    """SQL over released tables. `core`: every row is a row of that core, at `position`."""

    select: exp.Expression
    columns: Mapping[str, Made]
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
Source = tuple[
    str, Result, exp.Join | None, exp.Expression
]  # visible name, what it is, how it is joined, where it stands
