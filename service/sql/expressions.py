"""A row expression of the analyst, compiled to an engine-safe tree with a type, a range and codes.

in   WHERE l_shipdate < DATE '1994-01-01' + INTERVAL '1' YEAR, SUM(price * (1 - discount)), CASE, casts …
out  a Value: a total tree over prepared columns, built by us node by node

Why not pass the tree on: a cast, an integer addition or a division may raise on one person's row, and that
error would be a noise-free answer. Invariant S2: what is emitted never raises because of a row. Whatever
has no entry in a table here is refused.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from fractions import Fraction
from typing import Never, Protocol

from sqlglot import exp

from service.core.errors import ConstructRefused
from service.core.schema import BIGINT, BOOLEAN, DATE, DOUBLE, TIMESTAMP, VARCHAR, Scalar, SqlType
from service.sql import ranges
from service.sql.canon import binary, cast, is_null, not_null, number, operands, text, when, wrapped
from service.sql.compare import as_double, comparable, unified
from service.sql.literals import convert, interval, literal, null, scalar, shift
from service.sql.refusals import refused
from service.sql.values import NULL, Value, constant, derived

DOMAIN_LIMIT = 1_000


class Scope(Protocol):
    def column(self, node: exp.Column) -> Value: ...

    def semi_join(self, node: exp.Expression) -> Value: ...

    def special(self, node: exp.Expression) -> Value | None:
        """A node that the scope knows as a whole: an aggregate, a group key. None: compile it."""


Handler = Callable[[exp.Expression, "Compiler"], Value]
TABLE: dict[type[exp.Expression], Handler] = {}


class Compiler:
    """Compiles one node at a time through TABLE; holds nothing but the scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def value(self, node: exp.Expression) -> Value:
        known = self.scope.special(node)
        if known is not None:
            return known
        handler = TABLE.get(type(node))
        if handler is None:
            raise refuse_unknown(node)
        return handler(node, self)

    def typed(self, node: exp.Expression, *kinds: str) -> Value:
        """A value of one of the kinds; NULL fits everywhere. A text literal becomes a date where one is wanted."""
        value = self.value(node)
        if value.type.name in kinds or value.type is NULL:
            return value
        if value.constant is not None and value.type == VARCHAR and "DATE" in kinds:
            found = convert(value, TIMESTAMP if len(str(value.constant[0])) > 10 else DATE, node)
            if found is not None:
                return found
        wanted = " or ".join(kinds)
        raise refused(
            f"{wanted} is expected here, not {value.type}",
            node,
            construct=type(node).key.upper(),
            remedy=f"CAST it to {kinds[0]}, or use another column",
        )

    def boolean(self, node: exp.Expression) -> Value:
        return self.typed(node, "BOOLEAN")

    def numeric(self, node: exp.Expression) -> Value:
        return self.typed(node, "BIGINT", "DOUBLE", "DECIMAL")


def refuse_unknown(node: exp.Expression) -> ConstructRefused:
    name = str(node.this) if isinstance(node, exp.Anonymous) else type(node).__name__
    return refused(
        f"{name[:60]} is not on the list of supported SQL here",
        node,
        construct=name[:60],
        remedy="see docs/supported-sql.md for the functions and constructs that are answered",
    )


def handles(*kinds: type[exp.Expression]) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        for kind in kinds:
            TABLE[kind] = handler
        return handler

    return register


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
    return literal(node)


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
    parts = [c.boolean(part) for part in operands(node, kind)]
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
    a, b = comparable(left, right, node)
    return _truth(binary(kind, a.tree, b.tree), left, right)


@handles(exp.Between)
def _between(node: exp.Expression, c: Compiler) -> Value:
    value = c.value(node.this)
    low, high = c.value(node.args["low"]), c.value(node.args["high"])
    a, bottom = comparable(value, low, node)
    b, top = comparable(value.fresh(), high, node)
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
    pairs = [comparable(value, item, node) for item in items if item.type is not NULL]
    if not pairs:
        return _truth(exp.Null(), value)
    double = any(left.type != value.type for left, _ in pairs)
    left = as_double(value) if double and value.numeric else pairs[0][0]
    listed = [as_double(right) if double and right.numeric else right for _, right in pairs]
    unique = {text(item.tree): item.tree for item in listed}
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


@handles(exp.Neg)
def _negative(node: exp.Expression, c: Compiler) -> Value:
    value = c.numeric(node.this)
    if value.constant is not None and isinstance(value.constant[0], int | Fraction):
        return constant(-value.constant[0], value.type)
    tree = exp.Neg(this=wrapped(as_double(value).tree))
    found = _whole(tree, value)
    return replace(found, code=ranges.negate_code(value.code), range=ranges.negate(value.range))


def _whole(tree: exp.Expression, *parents: Value) -> Value:
    """Integer arithmetic runs in DOUBLE, which can't overflow, and comes back by TRY_CAST: beyond 2^63 it is NULL."""
    if all(parent.type.name == "BIGINT" for parent in parents):
        return derived(cast(tree, "BIGINT", safe=True), BIGINT, *parents)
    return derived(tree, DOUBLE, *parents)


@handles(exp.Add, exp.Sub)
def _add(node: exp.Expression, c: Compiler) -> Value:
    minus = isinstance(node, exp.Sub)
    if isinstance(node.expression, exp.Interval):
        return _shift(node, c, node.this, node.expression)
    if isinstance(node.this, exp.Interval) and not minus:
        return _shift(node, c, node.expression, node.this)
    a, b = c.value(node.this), c.value(node.expression)
    if minus and a.type == DATE and b.type == DATE:
        return _days_between(a, b)
    a, b = _number(a, node.this), _number(b, node.expression)
    folded = _fold(node, a, b)
    if folded is not None:
        return folded
    found = _whole(binary(type(node), as_double(a).tree, as_double(b).tree), a, b)
    code = ranges.add_codes(a.code, b.code, minus=minus)
    known = ranges.add(a.range, ranges.negate(b.range) if minus else b.range)
    return replace(found, code=code, range=known)


def _number(value: Value, node: exp.Expression) -> Value:
    if value.numeric or value.type is NULL:
        return value
    remedy = "use numbers here; for dates write d + INTERVAL '1' DAY, for text use ||"
    raise refused(f"arithmetic on {value.type}", node, construct="arithmetic", remedy=remedy)


def _fold(node: exp.Expression, a: Value, b: Value) -> Value | None:
    """Constants are worked out now, exactly."""
    if a.constant is None or b.constant is None:
        return None
    x, y = a.constant[0], b.constant[0]
    if not isinstance(x, int | Fraction) or not isinstance(y, int | Fraction):
        return None
    exact = {exp.Add: lambda: x + y, exp.Sub: lambda: x - y, exp.Mul: lambda: x * y}[type(node)]()
    fraction = Fraction(exact)
    if a.type == b.type == BIGINT:
        return constant(int(fraction), BIGINT) if abs(fraction) < 1 << 63 else None
    scale = 0
    while scale < 19 and (fraction * 10**scale).denominator != 1:
        scale += 1
    if scale == 19 or abs(fraction.numerator) >= 1 << 62:
        return None
    return constant(fraction, SqlType("DECIMAL", 38 if scale > 12 else 18 + scale, scale))


@handles(exp.Mul)
def _multiply(node: exp.Expression, c: Compiler) -> Value:
    a, b = c.numeric(node.this), c.numeric(node.expression)
    folded = _fold(node, a, b)
    if folded is not None:
        return folded
    found = _whole(binary(exp.Mul, as_double(a).tree, as_double(b).tree), a, b)
    return replace(found, code=ranges.multiply_codes(a.code, b.code), range=ranges.multiply(a.range, b.range))


@handles(exp.Div)
def _divide(node: exp.Expression, c: Compiler) -> Value:
    """Division is in DOUBLE; by zero it is NULL. By a literal it keeps exact codes."""
    a, b = c.numeric(node.this), c.numeric(node.expression)
    divisor: exp.Expression = as_double(b).tree
    by = b.constant[0] if b.constant is not None else None
    exact = Fraction(by) if isinstance(by, int | Fraction) and not isinstance(by, bool) else None
    if not exact:
        divisor = exp.Nullif(this=divisor, expression=literal_zero())
    found = derived(binary(exp.Div, as_double(a).tree, divisor), DOUBLE, a, b)
    code = ranges.divide_code(a.code, exact) if exact else None
    return replace(found, code=code, range=ranges.divide(a.range, b.range))


def literal_zero() -> exp.Expression:
    return cast(number(0), "DOUBLE")


@handles(exp.IntDiv, exp.Mod)
def _whole_division(node: exp.Expression, c: Compiler) -> Value:
    a, b = c.typed(node.this, "BIGINT"), c.value(node.expression)
    by = b.constant[0] if b.constant is not None else None
    if not isinstance(by, int) or isinstance(by, bool) or by <= 0:
        sign = "//" if isinstance(node, exp.IntDiv) else "%"
        raise refused(
            f"{sign} takes a positive whole literal",
            node,
            construct=sign,
            remedy="write FLOOR(a / b) or a literal divisor",
        )
    found = derived(binary(type(node), a.tree, number(by)), BIGINT, a)
    if isinstance(node, exp.Mod):
        low = -(by - 1) if a.range is None or a.range[0] < 0 else 0
        return replace(found, range=(Fraction(low), Fraction(by - 1)))
    known = None if a.range is None else (Fraction(int(a.range[0] / by)), Fraction(int(a.range[1] / by)))
    return replace(found, range=known)


def _shift(node: exp.Expression, c: Compiler, moment: exp.Expression, by: exp.Expression) -> Value:
    """A date plus a literal interval; on a column the operand is NULL outside years 1 to 9999, where it can't raise."""
    assert isinstance(by, exp.Interval)
    value = c.typed(moment, "DATE", "TIMESTAMP")
    amount, unit = interval(by)
    if isinstance(node, exp.Sub):
        amount = -amount
    if value.constant is not None and value.constant[0] is not None:
        return shift(value.constant[0], amount, unit, node)  # type: ignore[arg-type]
    step = exp.Interval(this=exp.Literal(this=str(amount), is_string=True), unit=exp.Var(this=unit))
    return derived(exp.Add(this=sober(value), expression=step), TIMESTAMP, value)


def sober(value: Value) -> exp.Expression:
    """A date or timestamp that is NULL outside years 1000 to 8999: total for every function that follows."""
    low, high = (constant(date(year, 1, 1), DATE) for year in (1000, 8999))
    if value.type == TIMESTAMP:
        low, high = (convert(edge, TIMESTAMP, value.tree) or edge for edge in (low, high))
    inside = exp.And(
        this=binary(exp.GTE, value.tree.copy(), low.tree), expression=binary(exp.LT, value.tree.copy(), high.tree)
    )
    return when((inside, value.tree))


def _days_between(a: Value, b: Value) -> Value:
    """DATE - DATE is a number of days."""
    tree = exp.DateDiff(this=sober(a), expression=sober(b), unit=exp.Var(this="DAY"))
    found = derived(tree, BIGINT, a, b)
    return replace(
        found, range=ranges.add(a.range, ranges.negate(b.range)), code=ranges.add_codes(a.code, b.code, minus=True)
    )


@handles(exp.Case)
def _case(node: exp.Expression, c: Compiler) -> Value:
    subject = node.this
    tests = [_test(c, subject, branch.this) for branch in node.args["ifs"]]
    branches = [c.value(branch.args["true"]) for branch in node.args["ifs"]]
    if node.args.get("default") is not None:
        branches.append(c.value(node.args["default"]))
    return choose(tests, branches, node)


def _test(c: Compiler, subject: exp.Expression | None, test: exp.Expression) -> Value:
    if subject is None:
        return c.boolean(test)
    left, right = c.value(subject), c.value(test)
    a, b = comparable(left, right, test)
    return _truth(binary(exp.EQ, a.tree, b.tree), left, right)


@handles(exp.If)
def _if(node: exp.Expression, c: Compiler) -> Value:
    branches = [c.value(node.args["true"])]
    if node.args.get("false") is not None:
        branches.append(c.value(node.args["false"]))
    return choose([c.boolean(node.this)], branches, node)


def choose(tests: list[Value], branches: list[Value], node: exp.Expression) -> Value:
    """CASE WHEN: branches in one type, ranges joined, codes on one grid, a finite domain when all are literals."""
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
        auto=any(branch.auto for branch in branches),
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
    tests = [replace(derived(not_null(value.tree.copy()), BOOLEAN, value)) for value in values[:-1]]
    return choose(tests, values, node)


@handles(exp.Nullif)
def _nullif(node: exp.Expression, c: Compiler) -> Value:
    left, right = c.value(node.this), c.value(node.expression)
    a, b = comparable(left.fresh(), right, node)
    return choose([_truth(binary(exp.EQ, a.tree, b.tree), left, right)], [null(), left], node)
