"""Aggregate calls: which node means which function over which argument."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from service.core.aggregates import COUNT, COUNT_DISTINCT, MODE, QUANTILE, AggregateSpec
from service.sql.read.allow import AGGREGATE
from service.sql.read.spellings import SIMPLE
from service.sql.read.written_numbers import written_number
from service.sql.refusals import refused

QUERIES = (exp.Select, exp.Union, exp.Subquery)


@dataclass(frozen=True, slots=True)
class Asked:
    """One aggregate as written. `argument` None: every row."""

    function: AggregateSpec
    argument: exp.Expression | None
    p: Fraction | None = None
    condition: exp.Expression | None = None


def is_aggregate(node: exp.Expression) -> bool:
    return type(node) in AGGREGATE


def own_aggregates(node: exp.Expression) -> Iterator[exp.Expression]:
    """Aggregates that belong to this SELECT: not those of subqueries, not a window's own function."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, QUERIES):
            continue
        if isinstance(part, exp.Window):
            function = part.this
            waiting += list(function.iter_expressions()) if isinstance(function, exp.Expression) else []
            waiting += [*(part.args.get("partition_by") or []), *filter(None, (part.args.get("order"),))]
            continue
        if is_aggregate(part):
            yield part
            continue
        waiting += reversed(list(part.iter_expressions()))


def asked(node: exp.Expression) -> Asked:
    """The call behind a node; FILTER and WITHIN GROUP are unwrapped."""
    if isinstance(node, exp.Filter):
        inner = asked(node.this)
        if inner.condition is not None:
            test: exp.Expression = exp.And(this=inner.condition, expression=node.expression.this)
        else:
            test = node.expression.this
        return Asked(inner.function, inner.argument, inner.p, test)
    if isinstance(node, exp.WithinGroup):
        return _within(node)
    if isinstance(node, exp.Count):
        return _count(node)
    if isinstance(node, exp.CountIf):
        return Asked(COUNT, None, condition=node.this)
    if isinstance(node, exp.ApproxDistinct):
        return Asked(COUNT_DISTINCT, node.this)
    if isinstance(node, exp.Median):
        return Asked(QUANTILE, _plain(node), Fraction(1, 2))
    if isinstance(node, exp.Mode) and node.this is not None:
        return Asked(MODE, _plain(node))
    if isinstance(node, exp.PercentileCont | exp.PercentileDisc) and node.args.get("expression") is not None:
        return Asked(QUANTILE, _plain(node), _rank(node.expression))
    if isinstance(node, exp.Quantile | exp.ApproxQuantile):
        return Asked(QUANTILE, _plain(node), _rank(node.args["quantile"]))
    if type(node) in SIMPLE:
        return Asked(SIMPLE[type(node)], _plain(node))
    raise refused(
        "this aggregate is not answered", node, construct=type(node).key.upper(), remedy="see docs/supported-sql.md"
    )


def _plain(node: exp.Expression) -> exp.Expression:
    argument = node.this
    if not isinstance(argument, exp.Expression) or isinstance(argument, exp.Distinct | exp.Order | exp.Star):
        raise refused(
            "DISTINCT, ORDER BY and * inside this aggregate are not answered",
            node,
            construct=type(node).key.upper(),
            remedy="aggregate a plain expression; for distinct values use COUNT(DISTINCT x)",
        )
    return argument


def _within(node: exp.WithinGroup) -> Asked:
    order = node.expression
    if not isinstance(order, exp.Order) or len(order.expressions) != 1:
        raise refused(
            "WITHIN GROUP takes one expression", node, construct="WITHIN GROUP", remedy="write QUANTILE_CONT(x, 0.5)"
        )
    ordered = order.expressions[0]
    if isinstance(node.this, exp.Mode):
        return Asked(MODE, ordered.this)
    if not isinstance(node.this, exp.PercentileCont | exp.PercentileDisc) or not isinstance(
        node.this.this, exp.Expression
    ):
        raise refused(
            "this ordered aggregate is not answered",
            node,
            construct="WITHIN GROUP",
            remedy="write QUANTILE_CONT(x, 0.5)",
        )
    rank = _rank(node.this.this)
    return Asked(QUANTILE, ordered.this, 1 - rank if ordered.args.get("desc") else rank)


def _count(node: exp.Count) -> Asked:
    argument = node.this
    if argument is None or isinstance(argument, exp.Star):
        return Asked(COUNT, None)
    if isinstance(argument, exp.Distinct):
        if len(argument.expressions) != 1:
            remedy = "count one expression, for instance a || '|' || b"
            raise refused("COUNT(DISTINCT a, b) is not answered", node, construct="COUNT DISTINCT", remedy=remedy)
        return Asked(COUNT_DISTINCT, argument.expressions[0])
    return Asked(COUNT, argument)


def _rank(node: exp.Expression) -> Fraction:
    if isinstance(node, exp.Literal) and not node.is_string:
        rank, _ = written_number(node)
        if 0 <= rank <= 1:
            return Fraction(rank)
    raise refused(
        "a quantile's rank is a literal from 0 to 1", node, construct="QUANTILE", remedy="write QUANTILE_CONT(x, 0.5)"
    )
