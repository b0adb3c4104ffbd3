"""Families: measures of which at most one is non-NULL in any row, so that together they are charged once.

in   the condition of a FILTER, and the code of what is aggregated
out  (what, literal) of `what = literal`: the same expression with another literal is disjoint

Why so little: whoever takes two conditions for disjoint that aren't lets a person count twice for one charge.
So only an equality with a literal counts, by the literal's value, never by how it was written.
"""

from sqlglot import exp

from service.sql.expr.canonical import canonical_text, conjuncts

STAMPS = (exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ)  # casts of texts that literals are written with
REALS = (exp.DType.DOUBLE,)  # casts of digits


def family(condition: exp.Expression | None, code: exp.Expression | None) -> tuple[str, str] | None:
    """The family and member of a measure: (what, literal) of its FILTER (WHERE what = literal) or CASE WHEN.

    Members with other literals are disjoint from it. None: it has no family.
    """
    tests = conjuncts(condition)
    if isinstance(code, exp.Case) and code.args.get("default") is None and len(code.args["ifs"]) == 1:
        tests = tests + conjuncts(code.args["ifs"][0].this)
    for test in sorted(tests, key=canonical_text):
        if isinstance(test, exp.EQ) and is_literal(test.expression) and not is_literal(test.this):
            return canonical_text(test.this), member_name(test.expression)
    return None


def member_name(literal: exp.Expression) -> str:
    """The name of a member of a family: one per value, so that 1.5 and 1.50 are never taken for disjoint.

    Numbers are named by the double nearest to them: that may merge two members, which only charges more.
    """
    inner, sign = literal, 1.0
    while isinstance(inner, exp.Cast | exp.Neg | exp.Paren):
        sign = -sign if isinstance(inner, exp.Neg) else sign
        inner = inner.this
    if isinstance(inner, exp.Literal) and not inner.is_string:
        return repr(sign * float(inner.this) + 0.0)
    return canonical_text(literal)


def is_literal(tree: exp.Expression) -> bool:
    """Whether a tree is a literal as literal_tree builds them. CAST(1.4 AS BIGINT) is none: the engine works it out."""
    if isinstance(tree, exp.Neg | exp.Paren):
        return is_literal(tree.this)
    if type(tree) is exp.Cast and isinstance(tree.this, exp.Literal):
        return tree.args["to"].this in (STAMPS if tree.this.is_string else REALS)
    return isinstance(tree, exp.Literal | exp.Boolean)
