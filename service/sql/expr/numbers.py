"""Functions of numbers that are total: each with what it takes and what is known of its result."""

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from service.core.schema import BIGINT, BOOLEAN, DOUBLE
from service.sql.expr import ranges
from service.sql.expr.arguments import supported, whole_literal
from service.sql.expr.arithmetic import literal_zero
from service.sql.expr.comparisons import as_double, unified
from service.sql.expr.compiler import Compiler, handles
from service.sql.expr.lengths import longest
from service.sql.expr.trees import binary, cast_to, number, when
from service.sql.expr.values import Code, Range, Value, derived
from service.sql.refusals import refused

supported(
    "numbers",
    "ABS(x)",
    "SIGN(x)",
    "FLOOR(x)",
    "CEIL(x)",
    "TRUNC(x)",
    "ROUND(x)",
    "ROUND(x, literal)",
    "SQRT(x)",
    "LN(x)",
    "LOG10(x)",
    "LOG2(x)",
    "EXP(x)",
    "POW(x, literal)",
    "GREATEST(a, b, …)",
    "LEAST(a, b, …)",
    "ISNAN(x)",
)


def _monotone(known: Range | None, f: Callable[[float], float]) -> Range | None:
    """A rising function at both ends, a hair wider than the engine's rounding."""
    if known is None:
        return None
    try:
        low, high = (Fraction(f(float(edge))) for edge in known)
    except (ValueError, OverflowError):
        return None
    slack = max(abs(low), abs(high)) / (1 << 40)
    return ranges.finite(low - slack, high + slack)


@handles(exp.Abs)
def _abs(node: exp.Expression, c: Compiler) -> Value:
    value = c.numeric(node.this)
    tree: exp.Expression = exp.Abs(this=as_double(value).tree)
    if value.type == BIGINT:
        found = derived(cast_to(tree, "BIGINT", safe=True), BIGINT, value)
    else:
        found = derived(tree, DOUBLE, value)
    if value.range is None:
        return found
    low, high = value.range
    bottom = Fraction(0) if low <= 0 <= high else min(abs(low), abs(high))
    known = bottom, max(abs(low), abs(high))
    code = value.code
    if code is not None:
        least = 0 if code.low <= 0 <= code.high else min(abs(code.low), abs(code.high))
        code = Code(exp.Abs(this=cast_to(code.tree, "BIGINT")), code.step, least, code.magnitude)
    return replace(found, range=known, code=code)


@handles(exp.Sign)
def _sign(node: exp.Expression, c: Compiler) -> Value:
    value = c.numeric(node.this)
    found = derived(cast_to(exp.Sign(this=as_double(value).tree), "BIGINT"), BIGINT, value)
    return replace(found, range=(Fraction(-1), Fraction(1)), domain=(-1, 0, 1))


@handles(exp.Floor, exp.Ceil, exp.Trunc)
def _integral(node: exp.Expression, c: Compiler) -> Value:
    value = c.numeric(node.this)
    if value.type == BIGINT:
        return value
    found = derived(type(node)(this=as_double(value).tree), DOUBLE, value)
    known = None if value.range is None else (value.range[0] - 1, value.range[1] + 1)
    if known is not None:
        known = (Fraction(math.floor(value.range[0])), Fraction(math.ceil(value.range[1])))  # type: ignore[index]
    return replace(found, range=known)


@handles(exp.Round)
def _round(node: exp.Expression, c: Compiler) -> Value:
    value = c.numeric(node.this)
    places = whole_literal(node.args["decimals"], c, low=-12, high=12) if node.args.get("decimals") is not None else 0
    if value.type == BIGINT and places >= 0:
        return value
    arguments = {"decimals": number(places)} if places else {}
    found = derived(exp.Round(this=as_double(value).tree, **arguments), DOUBLE, value)
    grid = Fraction(10) ** -places
    known = None if value.range is None else ranges.finite(value.range[0] - grid, value.range[1] + grid)
    return replace(found, range=known)


def _guarded(node: exp.Expression, c: Compiler, test: type[exp.Expression]) -> tuple[Value, exp.Expression]:
    """The operand, NULL outside the function's domain."""
    value = c.numeric(node)
    tree = as_double(value).tree
    return value, when((binary(test, tree.copy(), literal_zero()), tree))


@handles(exp.Sqrt)
def _sqrt(node: exp.Expression, c: Compiler) -> Value:
    value, tree = _guarded(node.this, c, exp.GTE)
    known = None if value.range is None else (max(value.range[0], Fraction(0)), max(value.range[1], Fraction(0)))
    return replace(derived(exp.Sqrt(this=tree), DOUBLE, value), range=_monotone(known, math.sqrt))


@handles(exp.Ln, exp.Log)
def _logarithm(node: exp.Expression, c: Compiler) -> Value:
    """Only positive numbers have one; the range needs a positive lower bound."""
    if isinstance(node, exp.Ln):
        value, tree = _guarded(node.this, c, exp.GT)
        return replace(derived(exp.Ln(this=tree), DOUBLE, value), range=_positive(value, math.log))
    base = 10
    argument = node.this
    if node.args.get("expression") is not None:
        base, argument = whole_literal(node.this, c, low=2, high=10), node.expression
    if base not in (2, 10):
        raise refused("logarithms are LN, LOG2 and LOG10", node, construct="LOG", remedy="write LN(x) / LN(base)")
    value, tree = _guarded(argument, c, exp.GT)
    f = math.log10 if base == 10 else math.log2
    found = derived(exp.Log(this=number(base), expression=tree), DOUBLE, value)
    return replace(found, range=_positive(value, f))


def _positive(value: Value, f: Callable[[float], float]) -> Range | None:
    return _monotone(value.range, f) if value.range is not None and value.range[0] > 0 else None


@handles(exp.Exp)
def _exp(node: exp.Expression, c: Compiler) -> Value:
    value = c.numeric(node.this)
    known = value.range if value.range is not None and value.range[1] <= 130 else None
    return replace(derived(exp.Exp(this=as_double(value).tree), DOUBLE, value), range=_monotone(known, math.exp))


@handles(exp.Pow)
def _pow(node: exp.Expression, c: Compiler) -> Value:
    value = c.numeric(node.this)
    power = c.value(node.expression)
    by = power.constant[0] if power.constant is not None else None
    if not isinstance(by, int | Fraction) or isinstance(by, bool) or abs(Fraction(by)) > 16:
        raise refused("POW takes a literal exponent up to 16", node, construct="POW", remedy="write POW(x, 2)")
    tree = exp.Pow(this=as_double(value).tree, expression=as_double(power).tree)
    found = derived(tree, DOUBLE, value)
    if by == 2:
        square = ranges.multiply_codes(value.code, value.fresh().code)
        if square is not None and square.low < 0:
            square = replace(square, low=0)
        known = ranges.multiply_ranges(value.range, value.range)
        known = None if known is None else (max(known[0], Fraction(0)), known[1])
        return replace(found, code=square, range=known)
    if Fraction(by) > 0 and value.range is not None and value.range[0] >= 0:
        return replace(found, range=_monotone(value.range, lambda x: x ** float(by)))
    return found


@handles(exp.Greatest, exp.Least)
def _extreme(node: exp.Expression, c: Compiler) -> Value:
    """A NULL operand is skipped, as DuckDB does. Codes are compared themselves, so their range is proved."""
    kind = type(node)
    parts = [c.value(part) for part in (node.this, *node.expressions)]
    if len(parts) == 1:
        return parts[0]
    same, to = unified(parts, node)
    trees = [value.tree for value in same]
    found = derived(kind(this=trees[0], expressions=trees[1:], ignore_nulls=True), to, *parts)
    found = replace(found, max_bytes=longest(same, to))
    fixed = [part.constant is not None for part in parts]
    known = _extreme_ranges([part.range for part in parts], fixed, greatest=kind is exp.Greatest)
    bounded = known is not None and ranges.clampable(known)
    lacking = frozenset[str]() if bounded else found.lacking
    return replace(found, range=known, code=_extreme_code(kind, parts, fixed) if bounded else None, lacking=lacking)


def _extreme_code(kind: type[exp.Expression], parts: list[Value], fixed: list[bool]) -> Code | None:
    """Its range follows from the ranges of the codes: what is known of the values may be on another grid."""
    codes = [part.code for part in parts if part.code is not None]
    both = ranges.align(codes) if len(codes) == len(parts) else None
    if both is None:
        return None
    tree = kind(this=both[0].tree, expressions=[code.tree for code in both[1:]], ignore_nulls=True)
    edges: list[Range | None] = [(Fraction(code.low), Fraction(code.high)) for code in both]
    known = _extreme_ranges(edges, fixed, greatest=kind is exp.Greatest)
    return None if known is None else Code(tree, both[0].step, int(known[0]), int(known[1]))


def _extreme_ranges(parts: list[Range | None], fixed: list[bool], *, greatest: bool) -> Range | None:
    known, only = parts[0], fixed[0]
    for part, constant in zip(parts[1:], fixed[1:], strict=True):
        known = _extreme_range(known, part, greatest=greatest, fixed=(only, constant))
        only = False
    return known


def _extreme_range(a: Range | None, b: Range | None, *, greatest: bool, fixed: tuple[bool, bool]) -> Range | None:
    """A constant bounds one side for good: it is there when the other operand is NULL, and wins when it is beyond.
    Two columns may each be NULL, so only their hull is known."""
    if not any(fixed):
        return ranges.hull([a, b])
    edge = (a if fixed[0] else b) or ranges.ANY
    other = (b if fixed[0] else a) or ranges.ANY
    if greatest:
        return edge[0], max(edge[1], other[1])
    return min(edge[0], other[0]), edge[1]


@handles(exp.IsNan)
def _isnan(node: exp.Expression, c: Compiler) -> Value:
    value = c.numeric(node.this)
    return replace(derived(exp.IsNan(this=as_double(value).tree), BOOLEAN, value), domain=(False, True))
