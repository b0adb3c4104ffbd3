"""Entries for columns, literals, comparisons, AND, OR, IN and CASE: what nearly every query needs."""

from dataclasses import replace

from sqlglot import exp

from service.core.schema import BOOLEAN, Scalar
from service.sql.expr import ranges
from service.sql.expr.canonical import canonical_text, operands
from service.sql.expr.comparisons import as_double, in_one_type, unified
from service.sql.expr.compiler import CHAIN, Compiler, handles
from service.sql.expr.lengths import longest
from service.sql.expr.literals import literal_value, null, scalar
from service.sql.expr.trees import binary, is_null, when, wrapped
from service.sql.expr.values import NULL, Value, constant, derived
from service.sql.refusals import refused

DOMAIN_LIMIT = 1_000


@handles(exp.Column)
def _column(node: exp.Expression, c: Compiler) -> Value:
    assert isinstance(node, exp.Column)
    return c.scope.column(node)


@handles(exp.Paren)
def _paren(node: exp.Expression, c: Compiler) -> Value:
    return c.value(node.this)


@handles(exp.Literal)
def _literal(node: exp.Expression, c: Compiler) -> Value:
    assert isinstance(node, exp.Literal)
    return literal_value(node)


@handles(exp.Null)
def _null(node: exp.Expression, c: Compiler) -> Value:
    return null()


@handles(exp.Boolean)
def _boolean(node: exp.Expression, c: Compiler) -> Value:
    return constant(bool(node.this), BOOLEAN)


def _truth(tree: exp.Expression, *parents: Value) -> Value:
    return replace(derived(tree, BOOLEAN, *parents), domain=(False, True))


@handles(exp.And, exp.Or)
def _connector(node: exp.Expression, c: Compiler) -> Value:
    kind = type(node)
    members = operands(node, kind)
    if len(members) > CHAIN:
        remedy = "use IN (…), or put the values into a public table"
        raise refused(f"more than {CHAIN} conditions in a row", node, construct=type(node).key.upper(), remedy=remedy)
    parts = [c.boolean(part) for part in members]
    tree = wrapped(parts[0].tree)
    for part in parts[1:]:
        tree = kind(this=tree, expression=wrapped(part.tree))
    return _truth(tree, *parts)


@handles(exp.Not)
def _not(node: exp.Expression, c: Compiler) -> Value:
    inner = c.boolean(node.this)
    return _truth(exp.Not(this=wrapped(inner.tree)), inner)


MIRRORED: dict[type[exp.Expression], type[exp.Expression]] = {
    exp.LT: exp.GT,
    exp.GT: exp.LT,
    exp.LTE: exp.GTE,
    exp.GTE: exp.LTE,
}


@handles(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
def _compare(node: exp.Expression, c: Compiler) -> Value:
    left, right = c.value(node.this), c.value(node.expression)
    kind = type(node)
    if left.constant is not None and right.constant is None:
        left, right, kind = right, left, MIRRORED.get(kind, kind)
    a, b = in_one_type(left, right, node)
    return _truth(binary(kind, a.tree, b.tree), left, right)


@handles(exp.Between)
def _between(node: exp.Expression, c: Compiler) -> Value:
    value = c.value(node.this)
    low, high = c.value(node.args["low"]), c.value(node.args["high"])
    a, bottom = in_one_type(value, low, node)
    b, top = in_one_type(value.fresh(), high, node)
    tree = exp.And(this=binary(exp.GTE, a.tree, bottom.tree), expression=binary(exp.LTE, b.tree, top.tree))
    return _truth(tree, value, low, high)


@handles(exp.Is)
def _is(node: exp.Expression, c: Compiler) -> Value:
    value = c.value(node.this)
    if isinstance(node.expression, exp.Null):
        return _truth(is_null(value.tree), value)
    if isinstance(node.expression, exp.Boolean) and value.type == BOOLEAN:
        return _truth(
            exp.NullSafeEQ(this=wrapped(value.tree), expression=exp.Boolean(this=bool(node.expression.this))), value
        )
    raise refused("IS takes NULL, TRUE or FALSE", node, construct="IS", remedy="write IS NULL or IS NOT NULL")


@handles(exp.In)
def _in(node: exp.Expression, c: Compiler) -> Value:
    if node.args.get("query") is not None:
        return c.scope.semi_join(node)
    value = c.value(node.this)
    items = [c.value(item) for item in node.expressions]
    if not items or any(item.constant is None for item in items):
        raise refused("IN takes a list of literals", node, construct="IN", remedy="list literals, or use OR and =")
    pairs = [in_one_type(value, item, node) for item in items if item.type is not NULL]
    if not pairs:
        return _truth(exp.Null(), value)
    double = any(left.type != value.type for left, _ in pairs)
    turned = next((left for left, _ in pairs if left.type != value.type), pairs[0][0])
    left = as_double(value) if double and value.numeric else turned
    listed = [as_double(right) if double and right.numeric else right for _, right in pairs]
    unique = {canonical_text(item.tree): item.tree for item in listed}
    return _truth(exp.In(this=wrapped(left.tree), expressions=[unique[key] for key in sorted(unique)]), value)


@handles(exp.Exists)
def _exists(node: exp.Expression, c: Compiler) -> Value:
    return c.scope.semi_join(node)


@handles(exp.Subquery)
def _scalar_subquery(node: exp.Expression, c: Compiler) -> Value:
    raise refused(
        "a subquery in place of a value would make every row depend on other people",
        node,
        construct="subquery",
        remedy="ask for the inner value in its own query and write it as a literal",
    )


@handles(exp.Case)
def _case(node: exp.Expression, c: Compiler) -> Value:
    subject = c.value(node.this) if node.this is not None else None
    tests = [_test(c, subject, branch.this) for branch in node.args["ifs"]]
    branches = [c.value(branch.args["true"]) for branch in node.args["ifs"]]
    if node.args.get("default") is not None:
        branches.append(c.value(node.args["default"]))
    return case_value(tests, branches, node)


def _test(c: Compiler, subject: Value | None, test: exp.Expression) -> Value:
    if subject is None:
        return c.boolean(test)
    right = c.value(test)
    a, b = in_one_type(subject.fresh(), right, test)
    return _truth(binary(exp.EQ, a.tree, b.tree), subject, right)


@handles(exp.If)
def _if(node: exp.Expression, c: Compiler) -> Value:
    branches = [c.value(node.args["true"])]
    if node.args.get("false") is not None:
        branches.append(c.value(node.args["false"]))
    return case_value([c.boolean(node.this)], branches, node)


def case_value(tests: list[Value], branches: list[Value], node: exp.Expression) -> Value:
    """The value of a CASE: branches in one type, ranges joined, codes on one grid, a domain when all are literals."""
    same, kind = unified(branches, node)
    trees = [branch.tree for branch in same]
    otherwise = trees[len(tests)] if len(trees) > len(tests) else None
    tree = when(*zip([test.tree for test in tests], trees[: len(tests)], strict=True), otherwise=otherwise)
    found = derived(tree, kind, *tests, *branches)
    values = [branch for branch in branches if branch.type is not NULL]
    domain = joined_domain(same if otherwise is not None else [*same, null()])
    code = ranges.case_codes([test.tree.copy() for test in tests], branches)
    lacking = frozenset().union(*(branch.lacking for branch in branches))
    return replace(
        found, code=code, range=ranges.hull([value.range for value in values]), domain=domain, lacking=lacking,
        auto=any(branch.auto for branch in branches), max_bytes=longest(same, kind),
    )  # fmt: skip


def joined_domain(values: list[Value]) -> tuple[Scalar, ...] | None:
    """The finite set of values that any of them may take, in order of mention."""
    found: dict[Scalar, None] = {}
    for value in values:
        if value.domain is None:
            return None
        known = [scalar(value.constant[0])] if value.constant is not None else list(value.domain)
        found.update(dict.fromkeys(known))
    return tuple(found) if len(found) <= DOMAIN_LIMIT else None


@handles(exp.Coalesce)
def _coalesce(node: exp.Expression, c: Compiler) -> Value:
    values = [c.value(part) for part in (node.this, *node.expressions)]
    if len(values) == 1:
        return values[0]
    same, kind = unified(values, node)
    trees = [value.tree for value in same]
    found = derived(exp.Coalesce(this=trees[0], expressions=trees[1:]), kind, *values)
    known = [value for value in values if value.type is not NULL]
    coded = [value.code for value in known if value.code is not None]
    codes = ranges.align(coded) if len(coded) == len(known) else None
    code = None
    if codes is not None:
        tree = exp.Coalesce(this=codes[0].tree, expressions=[part.tree for part in codes[1:]])
        code = replace(codes[0], tree=tree, low=min(part.low for part in codes), high=max(part.high for part in codes))
    return replace(
        found, code=code, range=ranges.hull([value.range for value in known]), domain=joined_domain(same),
        max_bytes=longest(same, kind),
    )  # fmt: skip


@handles(exp.Nullif)
def _nullif(node: exp.Expression, c: Compiler) -> Value:
    left, right = c.value(node.this), c.value(node.expression)
    a, b = in_one_type(left.fresh(), right, node)
    return case_value([_truth(binary(exp.EQ, a.tree, b.tree), left, right)], [null(), left], node)
