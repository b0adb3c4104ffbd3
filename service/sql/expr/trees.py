"""Canonical text of an emitted tree: what two spellings of one expression share.

Used to compare expressions, to sort conjuncts and for the digest. Parentheses vanish, AND, OR, =, +
and * don't depend on the order of their operands.
"""

from functools import reduce

from sqlglot import exp

COMMUTATIVE = (exp.EQ, exp.NEQ, exp.Add, exp.Mul)


def text(node: object) -> str:
    if isinstance(node, exp.Paren):
        return text(node.this)
    if isinstance(node, exp.Column):
        return f"{node.text('table')}.{node.name}"
    if isinstance(node, exp.Literal):
        return repr(node.this) if node.is_string else str(node.this)
    if isinstance(node, exp.Identifier):
        return str(node.this)
    if isinstance(node, exp.And | exp.Or):
        parts = sorted(text(part) for part in operands(node, type(node)))
        return f"{type(node).__name__}({' '.join(parts)})"
    if isinstance(node, COMMUTATIVE):
        return f"{type(node).__name__}({' '.join(sorted((text(node.this), text(node.expression))))})"
    if isinstance(node, exp.Expression):
        inner = ",".join(f"{key}={text(value)}" for key, value in sorted(node.args.items()) if _given(value))
        return f"{type(node).__name__}({inner})"
    if isinstance(node, list):
        return "[" + ",".join(text(part) for part in node) + "]"
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
    return [] if node is None else operands(node, exp.And)


COMPOUND = (exp.Binary, exp.Unary, exp.Predicate, exp.Connector)


def wrapped(node: exp.Expression) -> exp.Expression:
    """Parentheses around anything an operator next to it could tear apart: the generator adds none."""
    if isinstance(node, COMPOUND) and not isinstance(node, exp.Paren):
        return exp.Paren(this=node)
    return node


def binary(kind: type[exp.Expression], left: exp.Expression, right: exp.Expression) -> exp.Expression:
    return kind(this=wrapped(left), expression=wrapped(right))


def all_of(parts: list[exp.Expression]) -> exp.Expression | None:
    """AND in canonical order, duplicates dropped."""
    unique = {text(part): part for part in parts}
    ordered = [wrapped(unique[key]) for key in sorted(unique)]
    return reduce(lambda a, b: exp.And(this=a, expression=b), ordered) if ordered else None


def name(identifier: str, table: str | None = None) -> exp.Column:
    """A quoted column reference; every emitted name is one of ours."""
    column = exp.Column(this=exp.Identifier(this=identifier, quoted=True))
    if table is not None:
        column.set("table", exp.Identifier(this=table, quoted=True))
    return column


def aliased(node: exp.Expression, alias: str) -> exp.Alias:
    return exp.Alias(this=node, alias=exp.Identifier(this=alias, quoted=True))


def table(identifier: str, alias: str) -> exp.Table:
    return exp.Table(
        this=exp.Identifier(this=identifier, quoted=True),
        alias=exp.TableAlias(this=exp.Identifier(this=alias, quoted=True)),
    )


def subquery(query: exp.Expression, alias: str) -> exp.Subquery:
    return exp.Subquery(this=query, alias=exp.TableAlias(this=exp.Identifier(this=alias, quoted=True)))


def number(value: int) -> exp.Expression:
    literal = exp.Literal(this=str(abs(value)), is_string=False)
    return exp.Neg(this=literal) if value < 0 else literal


def cast(node: exp.Expression, to: str, *, safe: bool = False) -> exp.Expression:
    kind = exp.TryCast if safe else exp.Cast
    return kind(this=node, to=exp.DataType.build(to, dialect="duckdb"))


def when(*branches: tuple[exp.Expression, exp.Expression], otherwise: exp.Expression | None = None) -> exp.Case:
    return exp.Case(ifs=[exp.If(this=test, true=then) for test, then in branches], default=otherwise)


def is_null(node: exp.Expression) -> exp.Expression:
    return exp.Is(this=wrapped(node), expression=exp.Null())


def not_null(node: exp.Expression) -> exp.Expression:
    return exp.Not(this=is_null(node))
