"""Builders of SQL trees: the small pieces that every emitted expression is made of.

Names are quoted, operators get their parentheses, literals are ours: nothing of the analyst's text passes through.
"""

from sqlglot import exp

from service.core.request import OWN_DIALECT

COMPOUND = (exp.Binary, exp.Unary, exp.Predicate, exp.Connector)


def wrapped(node: exp.Expression) -> exp.Expression:
    """The tree in parentheses, where an operator next to it could tear it apart: the generator adds none."""
    if isinstance(node, COMPOUND) and not isinstance(node, exp.Paren):
        return exp.Paren(this=node)
    return node


def binary(kind: type[exp.Expression], left: exp.Expression, right: exp.Expression) -> exp.Expression:
    """left OPERATOR right, both kept together."""
    return kind(this=wrapped(left), expression=wrapped(right))


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
    """A whole number."""
    literal = exp.Literal(this=str(abs(value)), is_string=False)
    return exp.Neg(this=literal) if value < 0 else literal


def type_named(name: str) -> exp.DataType:
    """The type that the declarations, and core/schema.py, call by this name."""
    return exp.DataType.build(name, dialect=OWN_DIALECT)


def cast_to(node: exp.Expression, to: str, *, safe: bool = False) -> exp.Expression:
    """CAST(node AS to); TRY_CAST where `safe`."""
    kind = exp.TryCast if safe else exp.Cast
    return kind(this=node, to=type_named(to))


def when(*branches: tuple[exp.Expression, exp.Expression], otherwise: exp.Expression | None = None) -> exp.Case:
    """CASE WHEN test THEN value … ELSE otherwise END."""
    return exp.Case(ifs=[exp.If(this=test, true=then) for test, then in branches], default=otherwise)


def is_null(node: exp.Expression) -> exp.Expression:
    return exp.Is(this=wrapped(node), expression=exp.Null())


def not_null(node: exp.Expression) -> exp.Expression:
    return exp.Not(this=is_null(node))
