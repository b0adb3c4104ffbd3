"""Canonical forms: what two spellings of one expression share.

The canonical text of a tree compares expressions, sorts conjuncts and makes the digest: parentheses vanish, and AND,
OR, =, + and * don't depend on the order of their operands. The canonical key is what rows are grouped by.
"""

from datetime import date, datetime
from functools import reduce

from sqlglot import exp

from service.core.schema import DATE, DOUBLE, TIMESTAMP
from service.sql.expr.trees import cast_to, when, wrapped
from service.sql.expr.values import Value, literal_tree

COMMUTATIVE = (exp.EQ, exp.NEQ, exp.Add, exp.Mul)


def canonical_text(node: object) -> str:
    """The text by which trees are compared: equal for two spellings of one expression. It is no SQL."""
    if isinstance(node, exp.Paren):
        return canonical_text(node.this)
    if isinstance(node, exp.Column):
        return f"{node.text('table')}.{node.name}"
    if isinstance(node, exp.Literal):
        return repr(node.this) if node.is_string else str(node.this)
    if isinstance(node, exp.Identifier):
        return str(node.this)
    if isinstance(node, exp.And | exp.Or):
        parts = sorted(canonical_text(part) for part in operands(node, type(node)))
        return f"{type(node).__name__}({' '.join(parts)})"
    if isinstance(node, COMMUTATIVE):
        return (
            f"{type(node).__name__}({' '.join(sorted((canonical_text(node.this), canonical_text(node.expression))))})"
        )
    if isinstance(node, exp.Expression):
        inner = ",".join(f"{key}={canonical_text(value)}" for key, value in sorted(node.args.items()) if _given(value))
        return f"{type(node).__name__}({inner})"
    if isinstance(node, list):
        return "[" + ",".join(canonical_text(part) for part in node) + "]"
    return str(node)


def _given(value: object) -> bool:
    return value is not None and value is not False and value != []


def operands(node: exp.Expression, kind: type[exp.Expression]) -> list[exp.Expression]:
    """The members of a chain of ANDs (or ORs), without recursion: chains may be long."""
    found, waiting = [], [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, exp.Paren):
            waiting.append(part.this)
        elif isinstance(part, kind):
            waiting += [part.expression, part.this]
        else:
            found.append(part)
    return found


def conjuncts(node: exp.Expression | None) -> list[exp.Expression]:
    """The members of a chain of ANDs; none for no condition."""
    return [] if node is None else operands(node, exp.And)


def all_of(parts: list[exp.Expression]) -> exp.Expression | None:
    """AND in canonical order, duplicates dropped."""
    unique = {canonical_text(part): part for part in parts}
    ordered = [wrapped(unique[key]) for key in sorted(unique)]
    return reduce(lambda a, b: exp.And(this=a, expression=b), ordered) if ordered else None


def canonical_key(value: Value) -> exp.Expression:
    """What rows are grouped by: the value in one form. No person's own spelling shows, and every key can be read.

    -0.0 becomes 0.0 and NaN becomes NULL; a date that a calendar doesn't hold (infinity, year 20,000) becomes
    NULL, because reading it back would fail.
    """
    if value.type in (DATE, TIMESTAMP):
        return value.tree.copy() if value.domain is not None else _calendar(value)
    if value.type != DOUBLE:
        return value.tree.copy()
    zero = cast_to(exp.Literal(this="0.0", is_string=False), "DOUBLE")
    shifted = exp.Add(this=wrapped(value.tree.copy()), expression=zero)
    return when((exp.Not(this=exp.IsNan(this=value.tree.copy())), shifted))


def _calendar(value: Value) -> exp.Expression:
    low, high = (literal_tree(edge, DATE) for edge in (date(1, 1, 1), date(9999, 12, 31)))
    if value.type == TIMESTAMP:
        low, high = (literal_tree(edge, TIMESTAMP) for edge in (datetime(1, 1, 1), datetime(9999, 12, 31)))
    inside = exp.And(
        this=exp.GTE(this=wrapped(value.tree.copy()), expression=low),
        expression=exp.LTE(this=wrapped(value.tree.copy()), expression=high),
    )
    return when((inside, value.tree.copy()))
