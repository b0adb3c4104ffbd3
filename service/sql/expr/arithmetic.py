"""Arithmetic that never raises: in DOUBLE for raw values, in exact integers for codes."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from fractions import Fraction

from sqlglot import exp

from service.core.schema import BIGINT, DATE, DOUBLE, TIMESTAMP, SqlType
from service.sql.expr import ranges
from service.sql.expr.comparisons import as_double
from service.sql.expr.compiler import Compiler, handles
from service.sql.expr.literals import convert, interval, shift
from service.sql.expr.trees import binary, cast_to, number, when, wrapped
from service.sql.expr.values import NULL, Value, constant, derived
from service.sql.refusals import refused


@handles(exp.Neg)
def _negative(node: exp.Expression, c: Compiler) -> Value:
    value = c.numeric(node.this)
    if value.constant is not None and isinstance(value.constant[0], int | Fraction):
        return constant(-value.constant[0], value.type)
    tree = exp.Neg(this=wrapped(as_double(value).tree))
    found = _whole(tree, value)
    return replace(found, code=ranges.negate_code(value.code), range=ranges.negate_range(value.range))


def _whole(tree: exp.Expression, *parents: Value) -> Value:
    """Integer arithmetic runs in DOUBLE, which can't overflow, and comes back by TRY_CAST: beyond 2^63 it is NULL."""
    if all(parent.type.name == "BIGINT" for parent in parents):
        return derived(cast_to(tree, "BIGINT", safe=True), BIGINT, *parents)
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
    known = ranges.add_ranges(a.range, ranges.negate_range(b.range) if minus else b.range)
    return replace(found, code=code, range=known)


def _number(value: Value, node: exp.Expression) -> Value:
    if value.numeric or value.type is NULL:
        return value
    remedy = "use numbers here; for dates write d + INTERVAL '1' DAY, for text use ||"
    raise refused(f"arithmetic on {value.type}", node, construct="arithmetic", remedy=remedy)


OPERATORS: dict[type[exp.Expression], Callable[[Fraction, Fraction], Fraction]] = {
    exp.Add: lambda x, y: x + y,
    exp.Sub: lambda x, y: x - y,
    exp.Mul: lambda x, y: x * y,
}


def _fold(node: exp.Expression, a: Value, b: Value) -> Value | None:
    """Constants are worked out now, exactly."""
    if a.constant is None or b.constant is None:
        return None
    x, y = a.constant[0], b.constant[0]
    if not isinstance(x, int | Fraction) or not isinstance(y, int | Fraction):
        return None
    fraction = OPERATORS[type(node)](Fraction(x), Fraction(y))
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
    return replace(found, code=ranges.multiply_codes(a.code, b.code), range=ranges.multiply_ranges(a.range, b.range))


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
    return replace(found, code=code, range=ranges.divide_ranges(a.range, b.range))


def literal_zero() -> exp.Expression:
    """0 as a DOUBLE."""
    return cast_to(number(0), "DOUBLE")


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
    return derived(exp.Add(this=within_calendar(value), expression=step), TIMESTAMP, value)


def within_calendar(value: Value) -> exp.Expression:
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
    tree = exp.DateDiff(this=within_calendar(a), expression=within_calendar(b), unit=exp.Var(this="DAY"))
    found = derived(tree, BIGINT, a, b)
    return replace(
        found,
        range=ranges.add_ranges(a.range, ranges.negate_range(b.range)),
        code=ranges.add_codes(a.code, b.code, minus=True),
    )
