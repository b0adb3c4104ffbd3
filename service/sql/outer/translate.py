"""The translator of outer SQL: rebuilds it node by node over released tables and public ones.

in   the parts of a SELECT outside the private core (HAVING, ORDER BY, arithmetic over aggregates, windows …)
out  the same over columns of core_0, core_1, … with every name quoted and every literal ours

It runs in a scratch database that holds released values only, so its errors tell nothing new. It is
rebuilt from listed classes all the same: no table functions, no files, no settings.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlglot import exp

from service.core.places import remember
from service.core.plan import Output
from service.sql.expr.casts import cast_type
from service.sql.expr.compiler import too_many_nodes
from service.sql.expr.dates import ALIASES, PARTS
from service.sql.expr.literals import interval, literal_value
from service.sql.expr.trees import cast_to
from service.sql.read.allow import AGGREGATE, SCALAR, WINDOW
from service.sql.read.output_names import output_names
from service.sql.read.spellings import OWN, SIMPLE
from service.sql.refusals import refused
from service.sql.rows.kinds import OuterColumn, Used

REBUILT = {**SCALAR, **AGGREGATE, **WINDOW, exp.Order: None, exp.Ordered: None, exp.Distinct: None, exp.Where: None}


@dataclass(slots=True)
class Translator:
    """Rebuilds expressions of outer SQL: `resolve` knows columns, keys and aggregates, the rest comes from the list."""

    resolve: Callable[[exp.Expression], tuple[exp.Expression, OuterColumn] | None]
    query: Callable[[exp.Expression], tuple[exp.Expression, Used]]
    aggregates: bool = False
    used: list[tuple[int, str]] = field(default_factory=list)
    row_wise: bool = True

    def output(self, node: exp.Expression) -> tuple[exp.Expression, OuterColumn]:
        """One output: its tree and what it is made of."""
        self.used, self.row_wise = [], True
        known = self.resolve(_bare(node))
        if known is not None:
            return remember(known[0], _bare(node)), known[1]
        tree = self.tree(node)
        if too_many_nodes(tree):
            raise refused(
                "this output grows too large when its names are replaced by what they stand for",
                node,
                construct="expression",
                remedy="split it: compute parts of it in a WITH query",
            )
        uses = tuple(dict.fromkeys(self.used))
        expression = self._inlined(node) if self.row_wise else None
        return tree, OuterColumn(None, None, uses, expression)

    def _inlined(self, node: exp.Expression) -> exp.Expression | None:
        """The output over core columns: names of nested queries replaced by what they stand for."""
        inner = Translator(self._core_column, self.query, self.aggregates)
        try:
            tree = inner.tree(node)
        except _NotRowWise:
            return None
        return None if too_many_nodes(tree) else tree

    def _core_column(self, node: exp.Expression) -> tuple[exp.Expression, OuterColumn] | None:
        known = self.resolve(node)
        if known is None:
            return None
        if known[1].expression is None:
            raise _NotRowWise
        return known[1].expression.copy(), known[1]

    def tree(self, node: exp.Expression) -> exp.Expression:
        return remember(self._tree(node), node)

    def _tree(self, node: exp.Expression) -> exp.Expression:
        known = self.resolve(node)
        if known is not None:
            self.used += known[1].uses
            return known[0]
        if isinstance(node, exp.Subquery | exp.Exists) or (
            isinstance(node, exp.In) and node.args.get("query") is not None
        ):
            return self._nested(node)
        if isinstance(node, exp.Literal):
            return literal_value(node).tree
        if isinstance(node, exp.Cast | exp.TryCast):
            kind = cast_type(node, node.args["to"])
            return cast_to(self.tree(node.this), str(kind), safe=True)
        if isinstance(node, exp.Anonymous):
            return self._part(node)
        if isinstance(node, exp.Interval):
            amount, unit = interval(node)
            return exp.Interval(this=exp.Literal(this=str(amount), is_string=True), unit=exp.Var(this=unit))
        if isinstance(node, exp.Is) and not isinstance(node.expression, exp.Null | exp.Boolean):
            raise refused("IS takes NULL, TRUE or FALSE", node, construct="IS", remedy="write IS NULL or IS NOT NULL")
        if type(node) in AGGREGATE or isinstance(node, exp.Window):
            self.row_wise = False
        self._check(node)
        return self._rebuilt(node)

    def _check(self, node: exp.Expression) -> None:
        if isinstance(node, exp.Column):
            chosen = node.find_ancestor(exp.Select)
            outputs = ", ".join(output_names(chosen.expressions)) if chosen is not None else ""
            remedy = f"put it into GROUP BY, aggregate it, or name an output: {outputs[:300]}"
            raise refused(
                f"column {node.name[:60]} is neither grouped nor aggregated", node, construct="column", remedy=remedy
            )
        if type(node) in AGGREGATE and not self.aggregates and not isinstance(node.parent, exp.Window):
            raise refused(
                "an aggregate can not stand here",
                node,
                construct=type(node).key.upper(),
                remedy="aggregate in a subquery first",
            )
        own = SIMPLE.get(type(node)) if type(node) in OWN.values() else None
        if own is not None:
            name = type(node).key.upper()
            raise refused(
                f"{name} of released values is not answered", node, construct=name, remedy=f"write {own.plain}"
            )
        if type(node) not in REBUILT:
            remedy = "see docs/supported-sql.md for what is answered"
            raise refused(
                f"{type(node).key.upper()} can not stand here", node, construct=type(node).key.upper(), remedy=remedy
            )

    def _rebuilt(self, node: exp.Expression) -> exp.Expression:
        """The same class with its arguments rebuilt; flags and words are copied as they are."""
        arguments: dict[str, object] = {}
        for key, value in node.args.items():
            if isinstance(value, exp.Expression):
                arguments[key] = self._word(value) if isinstance(value, exp.Var | exp.Star) else self.tree(value)
            elif isinstance(value, list):
                arguments[key] = [self.tree(part) for part in value]
            elif key != "_type":
                arguments[key] = value
        return type(node)(**arguments)

    def _word(self, node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.Star):
            if not isinstance(node.parent, exp.Count):
                raise refused("* can not stand here", node, construct="*", remedy="name the columns, or write COUNT(*)")
            return exp.Star()
        word = str(node.this).upper()
        if not word.replace("_", "").isalpha() or len(word) > 20:
            raise refused("this word can not stand here", node, construct="word", remedy="use a plain unit like MONTH")
        return exp.Var(this=word)

    def _part(self, node: exp.Anonymous) -> exp.Expression:
        name, moment = (*node.expressions, None, None)[:2]
        word = str(name.this).upper() if isinstance(name, exp.Literal) else ""
        word = ALIASES.get(word, word)
        if word not in PARTS or moment is None:
            raise refused(
                "this date part is not supported", node, construct="DATE_PART", remedy=f"use one of {', '.join(PARTS)}"
            )
        return exp.Extract(this=exp.Var(this=word), expression=self.tree(moment))

    def _nested(self, node: exp.Expression) -> exp.Expression:
        """A subquery over released or public tables; it may not reach out of itself."""
        self.row_wise = False
        inner = node.args["query"] if isinstance(node, exp.In) else node
        tree, uses = self.query(inner.this if isinstance(inner, exp.Subquery | exp.Exists) else inner)
        self.used += uses
        if isinstance(node, exp.Exists):
            return exp.Exists(this=tree)
        if isinstance(node, exp.In):
            return exp.In(this=self.tree(node.this), query=exp.Subquery(this=tree))
        return exp.Subquery(this=tree)


class _NotRowWise(Exception):
    pass


def _bare(node: exp.Expression) -> exp.Expression:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def as_output(label: str, made: OuterColumn, *, row_wise: bool) -> Output:
    """A released column as an output of the Query."""
    expression = made.expression if row_wise else None
    return Output(label, "value" if made.uses else "key", made.type, made.direct, made.uses, expression)
