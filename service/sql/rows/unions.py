"""UNION ALL of private rows: both sides' rows as one relation, each row still with its unit."""

from dataclasses import replace

from sqlglot import exp

from service.core.plan import RowBound
from service.core.prepared import UNIT_COLUMN
from service.sql.expr import ranges
from service.sql.expr.comparisons import unified
from service.sql.expr.conditions import joined_domain
from service.sql.expr.lengths import longest
from service.sql.expr.trees import aliased, cast_to, name, subquery
from service.sql.expr.values import Value, derived
from service.sql.refusals import refused
from service.sql.rows.bind import Rows
from service.sql.rows.relations import Context, Relation, as_column


def union_all(left: Rows, right: Rows, node: exp.Expression, context: Context) -> Rows:
    """The rows of both sides; a unit's bounds add up."""
    if len(left.fields) != len(right.fields):
        raise refused(
            "the two sides have different numbers of columns",
            node,
            construct="UNION ALL",
            remedy="select the same columns",
        )
    if left.relation.private != right.relation.private:
        raise refused(
            "private and public rows can not be mixed", node, construct="UNION ALL", remedy="union private rows only"
        )
    alias = context.alias()
    selects, fields = [], {}
    pairs = [_common(a, b, node) for a, b in zip(left.fields.values(), right.fields.values(), strict=True)]
    for side, rows in enumerate((left, right)):
        outputs: list[exp.Expression] = []
        if rows.relation.unit is not None:
            outputs.append(aliased(rows.relation.unit.copy(), UNIT_COLUMN))
        for position, pair in enumerate(pairs):
            outputs.append(aliased(pair[side].tree.copy(), f"c{position}"))
            code = pair[side].code
            if code is not None:
                outputs.append(aliased(cast_to(code.tree.copy(), "BIGINT"), f"c{position}#"))
        selects.append(rows.relation.select(outputs))
    for position, (label, pair) in enumerate(zip(left.fields, pairs, strict=True)):
        fields[label] = as_column(_merged(*pair), f"c{position}", alias)
    union = exp.Union(this=selects[0], expression=selects[1], distinct=False)
    return Rows(_both(left.relation, right.relation, subquery(union, alias), alias), fields)


def _both(left: Relation, right: Relation, source: exp.Expression, alias: str) -> Relation:
    """What is known of the two holds of them together: bounds and expectations add up."""
    bound = None
    if left.bound is not None and right.bound is not None:
        bound = RowBound(left.bound.constant + right.bound.constant, left.bound.tables + right.bound.tables)
    return Relation(
        source,
        frozenset({alias}),
        name(UNIT_COLUMN, alias) if left.private else None,
        bound,
        bare=True,
        expected=None if left.expected is None or right.expected is None else left.expected + right.expected,
        crossed=max(left.crossed, right.crossed),
        reach=None if left.reach is None or right.reach is None else left.reach.beside(right.reach),
        clamped_totals=left.clamped_totals or right.clamped_totals,
    )


def _common(a: Value, b: Value, node: exp.Expression) -> tuple[Value, Value]:
    (a, b), kind = unified([a, b], node) if a.type != b.type else ([a, b], a.type)
    codes = ranges.align([a.code, b.code]) if a.code is not None and b.code is not None else None
    a, b = (replace(side, type=kind, code=None if codes is None else codes[i]) for i, side in enumerate((a, b)))
    return a, b


def _merged(a: Value, b: Value) -> Value:
    found = derived(a.tree, a.type, a, b)
    code = None
    if a.code is not None and b.code is not None:
        code = replace(a.code, low=min(a.code.low, b.code.low), high=max(a.code.high, b.code.high))
    domain = None
    if a.domain is not None and b.domain is not None and a.constant is None and b.constant is None:
        domain = tuple(dict.fromkeys(a.domain + b.domain))
    elif a.domain is not None and b.domain is not None:
        domain = joined_domain([a, b])
    return replace(
        found, code=code, range=ranges.hull([a.range, b.range]), domain=domain, tokens=a.tokens & b.tokens,
        max_bytes=longest([a, b], found.type),
    )  # fmt: skip
