"""Measures that are never non-NULL in the same row: together they are charged once.

in   the condition of a FILTER, and the code of what is aggregated
out  (what, literal) of `what = literal`: the same expression with another literal is disjoint

Why so little: whoever takes two conditions for disjoint that aren't lets a person count twice for one charge.
So only an equality with a literal counts, by the literal's value, never by how it was written.
"""

from sqlglot import exp

from service.sql.expr.trees import conjuncts, text

STAMPS = (exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ)  # casts of texts that literals are written with
REALS = (exp.DType.DOUBLE,)  # casts of digits


def family(condition: exp.Expression | None, code: exp.Expression | None) -> tuple[str, str] | None:
    """(what, literal) of FILTER (WHERE what = literal) or CASE WHEN what = literal: other literals are disjoint."""
    tests = conjuncts(condition)
    if isinstance(code, exp.Case) and code.args.get("default") is None and len(code.args["ifs"]) == 1:
        tests = tests + conjuncts(code.args["ifs"][0].this)
    for test in sorted(tests, key=text):
        if isinstance(test, exp.EQ) and is_literal(test.expression) and not is_literal(test.this):
            return text(test.this), member(test.expression)
    return None


def member(literal: exp.Expression) -> str:
    """One name per value, so that two spellings of one number (1.5, 1.50) are never taken for disjoint.

    Numbers are named by the double nearest to them: that may merge two members, which only charges more.
    """
    inner, sign = literal, 1.0
    while isinstance(inner, exp.Cast | exp.Neg | exp.Paren):
        sign = -sign if isinstance(inner, exp.Neg) else sign
        inner = inner.this
    if isinstance(inner, exp.Literal) and not inner.is_string:
        return repr(sign * float(inner.this) + 0.0)
    return text(literal)


def is_literal(tree: exp.Expression) -> bool:
    """A literal as literal_tree builds them. Not a cast that the engine works out: CAST(1.4 AS BIGINT) is 1."""
    if isinstance(tree, exp.Neg | exp.Paren):
        return is_literal(tree.this)
    if type(tree) is exp.Cast and isinstance(tree.this, exp.Literal):
        return tree.args["to"].this in (STAMPS if tree.this.is_string else REALS)
    return isinstance(tree, exp.Literal | exp.Boolean)
