"""Text functions that are total: lengths are literals, patterns are literals, nothing grows beyond a known length."""

from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from service.core.schema import BIGINT, BOOLEAN, VARCHAR
from service.sql.expr.arguments import supported, text_literal, whole_literal
from service.sql.expr.compiler import Compiler, handles
from service.sql.expr.lengths import beginning, joined, made, other_case, replaced
from service.sql.expr.trees import number, wrapped
from service.sql.expr.values import Value, derived
from service.sql.refusals import refused

LONGEST = 1 << 20  # characters; a longer text counts as this long where its length is summed
JOINED = 10_000  # characters that joined and split texts keep

supported(
    "text", "LOWER(t)", "UPPER(t)", "TRIM(t)", "LTRIM(t)", "RTRIM(t)", "LENGTH(t)", "SUBSTRING(t, literal, literal)",
    "LEFT(t, literal)", "RIGHT(t, literal)", "REPLACE(t, literal, literal)", "CONCAT(a, b, …), a || b",
    "STARTS_WITH(t, literal)", "ENDS_WITH(t, literal)", "CONTAINS(t, literal)", "STRPOS(t, literal)",
    "SPLIT_PART(t, literal, literal)", "t LIKE literal", "t ILIKE literal",
)  # fmt: skip


@handles(exp.Lower, exp.Upper)
def _letter_case(node: exp.Expression, c: Compiler) -> Value:
    value = c.typed(node.this, "VARCHAR")
    found = made(derived(type(node)(this=value.tree), VARCHAR, value), other_case(value), node)
    domain = value.domain
    if domain is not None and all(part is None or (isinstance(part, str) and part.isascii()) for part in domain):
        turn = str.lower if isinstance(node, exp.Lower) else str.upper
        domain = tuple(dict.fromkeys(turn(part) if isinstance(part, str) else part for part in domain))
        return replace(found, domain=domain)
    return found


@handles(exp.Trim)
def _trim(node: exp.Expression, c: Compiler) -> Value:
    value = c.typed(node.this, "VARCHAR")
    position = node.args.get("position")
    arguments = {"position": str(position)} if position in ("LEADING", "TRAILING") else {}
    return replace(derived(exp.Trim(this=value.tree, **arguments), VARCHAR, value), max_bytes=value.max_bytes)


@handles(exp.Length)
def _length(node: exp.Expression, c: Compiler) -> Value:
    value = c.typed(node.this, "VARCHAR")
    found = derived(exp.Length(this=value.tree), BIGINT, value)
    return replace(found, range=(Fraction(0), Fraction(LONGEST)))


@handles(exp.Substring)
def _substring(node: exp.Expression, c: Compiler) -> Value:
    value = c.typed(node.this, "VARCHAR")
    start = whole_literal(node.args.get("start"), c, low=1, high=10_000)
    length = (
        whole_literal(node.args["length"], c, low=0, high=10_000) if node.args.get("length") is not None else 10_000
    )
    tree = exp.Substring(this=value.tree, start=number(start), length=number(length))
    return replace(derived(tree, VARCHAR, value), max_bytes=beginning(value, length))


@handles(exp.Left, exp.Right)
def _side(node: exp.Expression, c: Compiler) -> Value:
    value = c.typed(node.this, "VARCHAR")
    length = whole_literal(node.expression, c, low=0, high=10_000)
    tree = type(node)(this=value.tree, expression=number(length))
    return replace(derived(tree, VARCHAR, value), max_bytes=beginning(value, length))


@handles(exp.Replace)
def _replace(node: exp.Expression, c: Compiler) -> Value:
    value = c.typed(node.this, "VARCHAR")
    old, new = text_literal(node.expression, c), text_literal(node.args.get("replacement"), c)
    if not old or len(new) > len(old):
        raise refused(
            "REPLACE must not lengthen the text",
            node,
            construct="REPLACE",
            remedy="replace by at most as many characters",
        )
    strings = (exp.Literal(this=part, is_string=True) for part in (old, new))
    tree = exp.Replace(this=value.tree, expression=next(strings), replacement=next(strings))
    return made(derived(tree, VARCHAR, value), replaced(value, old, new), node)


def _cut(tree: exp.Expression) -> exp.Expression:
    """The beginning of a text, for texts without a known length: one person's very long one must not need more memory
    than there is. It stands in every such tree, since a tree is what the stored answer of a question is found by."""
    return exp.Substring(this=tree, start=number(1), length=number(JOINED))


@handles(exp.DPipe, exp.Concat)
def _concat(node: exp.Expression, c: Compiler) -> Value:
    """Both are emitted as ||. CONCAT skips NULL in DuckDB, so its parts become '' first.

    Texts that grow in every subquery would exhaust the memory, but only if the row is there: where lengths are known
    that is refused, where they are not, parts and result are cut.
    """
    parts = [node.this, node.expression] if isinstance(node, exp.DPipe) else node.expressions
    values = [c.typed(part, "VARCHAR") for part in parts]
    if len(values) > 8:
        raise refused("at most 8 texts can be joined", node, construct="CONCAT", remedy="join fewer texts")
    trees = [_cut(value.tree) for value in values]
    if isinstance(node, exp.Concat):
        trees = [exp.Coalesce(this=tree, expressions=[exp.Literal(this="", is_string=True)]) for tree in trees]
    tree = trees[0]
    for part in trees[1:]:
        tree = exp.DPipe(this=tree, expression=wrapped(part))
    return made(derived(_cut(tree), VARCHAR, *values), joined(values), node)


@handles(exp.StartsWith, exp.EndsWith, exp.Contains)
def _affix(node: exp.Expression, c: Compiler) -> Value:
    value, part = c.typed(node.this, "VARCHAR"), text_literal(node.expression, c)
    tree = type(node)(this=value.tree, expression=exp.Literal(this=part, is_string=True))
    return replace(derived(tree, BOOLEAN, value), domain=(False, True))


@handles(exp.StrPosition)
def _position(node: exp.Expression, c: Compiler) -> Value:
    value, part = c.typed(node.this, "VARCHAR"), text_literal(node.args.get("substr"), c)
    found = derived(exp.StrPosition(this=value.tree, substr=exp.Literal(this=part, is_string=True)), BIGINT, value)
    return replace(found, range=(Fraction(0), Fraction(LONGEST)))


@handles(exp.SplitPart)
def _split(node: exp.Expression, c: Compiler) -> Value:
    """The engine makes a list of all parts first, so the text is cut before it."""
    value, part = c.typed(node.this, "VARCHAR"), text_literal(node.args.get("delimiter"), c)
    index = whole_literal(node.args.get("part_index"), c, low=1, high=1_000)
    tree = exp.SplitPart(
        this=_cut(value.tree), delimiter=exp.Literal(this=part, is_string=True), part_index=number(index)
    )
    return replace(derived(tree, VARCHAR, value), max_bytes=beginning(value, JOINED))


@handles(exp.Like, exp.ILike)
def _like(node: exp.Expression, c: Compiler) -> Value:
    value, pattern = c.typed(node.this, "VARCHAR"), text_literal(node.expression, c)
    tree: exp.Expression = type(node)(this=wrapped(value.tree), expression=exp.Literal(this=pattern, is_string=True))
    if node.args.get("negate"):
        tree = exp.Not(this=wrapped(tree))
    return replace(derived(tree, BOOLEAN, value), domain=(False, True))
