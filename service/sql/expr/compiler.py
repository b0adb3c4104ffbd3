"""A row expression of the analyst, compiled to an engine-safe tree with a type, a range and codes.

in   WHERE l_shipdate < DATE '1994-01-01' + INTERVAL '1' YEAR, SUM(price * (1 - discount)), CASE, casts …
out  a Value: a total tree over prepared columns, built by us node by node

Why not pass the tree on: a cast, an integer addition or a division may raise on one person's row, and that
error would be a noise-free answer. Invariant S2: what is emitted never raises because of a row. Whatever
has no entry in a table here is refused.
"""

from collections.abc import Callable
from typing import Protocol

from sqlglot import exp

from service.core.errors import ConstructRefused
from service.core.schema import DATE, TIMESTAMP, VARCHAR
from service.sql.expr.literals import convert
from service.sql.expr.values import NULL, Value
from service.sql.refusals import refused, spelled

NODES = 6_000  # of one emitted expression
CHAIN = 300  # conditions joined by one AND or OR


class Scope(Protocol):
    """What names mean where an expression stands."""

    def column(self, node: exp.Column) -> Value: ...

    def semi_join(self, node: exp.Expression) -> Value: ...

    def special(self, node: exp.Expression) -> Value | None:
        """A node that the scope knows as a whole: an aggregate, a group key. None: compile it."""


Handler = Callable[[exp.Expression, "Compiler"], Value]
TABLE: dict[type[exp.Expression], Handler] = {}


class Compiler:
    """Compiles expressions in one scope: one node at a time, through the entry that TABLE has for its class."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def value(self, node: exp.Expression) -> Value:
        """A compiled node, with all that is known of it; refused where TABLE has no entry."""
        known = self.scope.special(node)
        if known is not None:
            return known
        handler = TABLE.get(type(node))
        if handler is None:
            raise refuse_unknown(node)
        found = handler(node, self)
        if too_many_nodes(found.tree) or (found.code is not None and too_many_nodes(found.code.tree)):
            raise refused(
                "this expression grows too large when it is made safe",
                node,
                construct="expression",
                remedy="split it: compute parts of it in a subquery, or nest fewer functions",
            )
        return found

    def typed(self, node: exp.Expression, *kinds: str) -> Value:
        """A value of one of the kinds; NULL fits everywhere. A text literal becomes a date where one is wanted."""
        value = self.value(node)
        if value.type.name in kinds or value.type is NULL:
            return value
        if value.constant is not None and value.type == VARCHAR and "DATE" in kinds:
            found = convert(value, TIMESTAMP if len(str(value.constant[0])) > 10 else DATE, node)
            if found is not None:
                return found
        wanted = " or ".join(kinds)
        raise refused(
            f"{wanted} is expected here, not {value.type}",
            node,
            construct=type(node).key.upper(),
            remedy=f"CAST it to {kinds[0]}, or use another column",
        )

    def boolean(self, node: exp.Expression) -> Value:
        return self.typed(node, "BOOLEAN")

    def numeric(self, node: exp.Expression) -> Value:
        return self.typed(node, "BIGINT", "DOUBLE", "DECIMAL")


def too_many_nodes(tree: exp.Expression) -> bool:
    """Whether a tree outgrew NODES. Guards repeat their operand, so nesting multiplies: stop while that is cheap."""
    seen, waiting = 0, [tree]
    while waiting:
        seen += 1
        if seen > NODES:
            return True
        waiting += waiting.pop().iter_expressions()
    return False


def refuse_unknown(node: exp.Expression) -> ConstructRefused:
    """The refusal of a node that has no entry."""
    name = spelled(node)
    if isinstance(node, exp.AggFunc):
        return refused(
            f"{name} aggregates, and no aggregate can stand here",
            node,
            construct=name,
            remedy="put conditions on aggregates into HAVING; aggregate again over a subquery that aggregates",
        )
    return refused(
        f"{name} is not on the list of supported SQL here",
        node,
        construct=name,
        remedy="see docs/supported-sql.md for the functions and constructs that are answered",
    )


def handles(*kinds: type[exp.Expression]) -> Callable[[Handler], Handler]:
    """Enters a handler into TABLE for these classes of nodes."""

    def register(handler: Handler) -> Handler:
        for kind in kinds:
            TABLE[kind] = handler
        return handler

    return register
