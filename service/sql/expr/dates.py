"""Functions of dates. Parts of a date are total; truncation and differences are NULL outside years 1000 to 8999."""

import math
import re
from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from service.core.schema import BIGINT, DATE, DOUBLE, VARCHAR, SqlType
from service.sql.expr import ranges
from service.sql.expr.arguments import supported, text_literal
from service.sql.expr.arithmetic import within_calendar
from service.sql.expr.compiler import Compiler, handles, refuse_unknown
from service.sql.expr.trees import cast_to
from service.sql.expr.values import NULL, Range, Value, derived
from service.sql.refusals import refused

PARTS: dict[str, tuple[int, int] | None] = {
    "YEAR": None, "QUARTER": (1, 4), "MONTH": (1, 12), "DAY": (1, 31), "DOW": (0, 6), "HOUR": (0, 23),
    "MINUTE": (0, 59), "SECOND": (0, 59), "EPOCH": None,
}  # fmt: skip
ALIASES = {"DAYOFWEEK": "DOW", "WEEKDAY": "DOW", "DAYOFMONTH": "DAY", "YEARS": "YEAR", "MONTHS": "MONTH", "DAYS": "DAY"}
CALENDAR = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE")

supported(
    "dates",
    "EXTRACT(year | quarter | month | day | dow | hour | minute | second | epoch FROM d)",
    "DATE_PART('part', d)",
    "YEAR(d), QUARTER(d), MONTH(d), DAY(d), DAYOFWEEK(d), HOUR(d), MINUTE(d), SECOND(d)",
    "DATE_TRUNC('year' | 'quarter' | 'month' | 'week' | 'day' | 'hour' | 'minute', d)",
    "DATE_DIFF('unit', a, b)",
    "d ± INTERVAL literal",
    "date - date",
    "STRFTIME(d, literal)",
)


def date_part(name: str, moment: exp.Expression, node: exp.Expression, c: Compiler) -> Value:
    """EXTRACT(name FROM moment), with the finite domain that most parts have."""
    name = ALIASES.get(name.upper(), name.upper())
    if name not in PARTS:
        raise refused(
            f"the date part {name[:20]} is not supported",
            node,
            construct="EXTRACT",
            remedy=f"use one of {', '.join(PARTS)}",
        )
    value = c.typed(moment, "DATE", "TIMESTAMP")
    if name in ("HOUR", "MINUTE", "SECOND") and value.type == DATE:
        raise refused("a DATE has no time of day", node, construct="EXTRACT", remedy="use a TIMESTAMP column")
    tree = exp.Extract(this=exp.Var(this=name), expression=value.tree)
    found = derived(tree, DOUBLE if name == "EPOCH" else BIGINT, value)
    limits = PARTS[name]
    if limits is None:
        years = _years(value) if name == "YEAR" else None
        return replace(found, range=years)
    low, high = limits
    domain = tuple(range(low, high + 1)) if name != "SECOND" else None
    return replace(found, range=(Fraction(low), Fraction(high)), domain=domain, lacking=frozenset())


def _years(value: Value) -> Range:
    """Years of the declared range, or any that a calendar holds."""
    if value.code is None:
        return Fraction(0), Fraction(9999)
    per_year = 365 if value.type == DATE else 365 * 86_400_000_000
    edges = (edge * value.code.step / per_year for edge in (value.code.low, value.code.high))
    low, high = edges
    return Fraction(1969 + int(low) - 1), Fraction(1971 + int(high))


@handles(exp.Extract)
def _extract(node: exp.Expression, c: Compiler) -> Value:
    return date_part(
        str(node.this.this if isinstance(node.this, exp.Expression) else node.this), node.expression, node, c
    )


@handles(exp.Year, exp.Quarter, exp.Month, exp.Day, exp.DayOfMonth, exp.DayOfWeek, exp.Hour, exp.Minute, exp.Second)
def _named_part(node: exp.Expression, c: Compiler) -> Value:
    return date_part(type(node).__name__, node.this, node, c)


@handles(exp.TimeToUnix)
def _epoch(node: exp.Expression, c: Compiler) -> Value:
    return date_part("EPOCH", node.this, node, c)


@handles(exp.Anonymous)
def _anonymous(node: exp.Expression, c: Compiler) -> Value:
    """sqlglot has no class for DATE_PART in some dialects; every other unknown name is refused."""
    if str(node.this).lower() in ("date_part", "datepart") and len(node.expressions) == 2:
        return date_part(text_literal(node.expressions[0], c), node.expressions[1], node, c)
    raise refuse_unknown(node)


def _unit(node: exp.Expression | None, where: exp.Expression) -> str:
    name = str(node.this).upper().removesuffix("S") if isinstance(node, exp.Var | exp.Literal) else ""
    if name not in CALENDAR:
        raise refused(
            "this unit of time is not supported",
            where,
            construct="date unit",
            remedy=f"use one of {', '.join(CALENDAR)}",
        )
    return name


@handles(exp.TimestampTrunc, exp.DateTrunc)
def _trunc(node: exp.Expression, c: Compiler) -> Value:
    """The result keeps the operand's type, as in DuckDB."""
    value = c.typed(node.this, "DATE", "TIMESTAMP")
    unit = _unit(node.args.get("unit"), node)
    if value.type == DATE and unit in ("HOUR", "MINUTE"):
        return value
    tree = exp.TimestampTrunc(this=within_calendar(value), unit=exp.Var(this=unit))
    found: exp.Expression = cast_to(tree, str(value.type))
    return derived(found, value.type, value)


@handles(exp.DateDiff)
def _difference(node: exp.Expression, c: Compiler) -> Value:
    later, earlier = c.typed(node.this, "DATE", "TIMESTAMP"), c.typed(node.expression, "DATE", "TIMESTAMP")
    unit = _unit(node.args.get("unit") or exp.Var(this="DAY"), node)
    if NULL not in (later.type, earlier.type) and later.type != earlier.type:
        raise refused("both moments must have one type", node, construct="DATE_DIFF", remedy="CAST both to TIMESTAMP")
    tree = exp.DateDiff(this=within_calendar(later), expression=within_calendar(earlier), unit=exp.Var(this=unit))
    found = derived(tree, BIGINT, later, earlier)
    exact = later.type == DATE and unit == "DAY"
    code = ranges.add_codes(later.code, earlier.code, minus=True) if exact else None
    known = ranges.add_ranges(later.range, ranges.negate_range(earlier.range))
    if known is not None and not exact:
        low, high = (edge / _ticks(later.type, unit) for edge in known)
        known = Fraction(math.floor(low) - 1), Fraction(math.ceil(high) + 1)
    return replace(found, code=code, range=known)


SECONDS = {"YEAR": 365 * 86_400, "QUARTER": 90 * 86_400, "MONTH": 28 * 86_400, "WEEK": 7 * 86_400, "DAY": 86_400,
           "HOUR": 3_600, "MINUTE": 60}  # fmt: skip


def _ticks(kind: SqlType, unit: str) -> Fraction:
    """Code units (days or microseconds) in the shortest such span."""
    return Fraction(SECONDS[unit], 86_400) if kind == DATE else Fraction(SECONDS[unit] * 1_000_000)


@handles(exp.TimeToStr)
def _format(node: exp.Expression, c: Compiler) -> Value:
    value = c.typed(node.this, "DATE", "TIMESTAMP")
    pattern = text_literal(node.args.get("format"), c, longest=30)
    if not re.fullmatch(r"(%[YmdHMSjy]|[-/:._ TZWQ])*", pattern):
        remedy = "use %Y %m %d %H %M %S and separators"
        raise refused("this date format is not supported", node, construct="STRFTIME", remedy=remedy)
    tree = exp.TimeToStr(this=within_calendar(value), format=exp.Literal(this=pattern, is_string=True))
    return replace(derived(tree, VARCHAR, value), max_bytes=2 * len(pattern))  # %Y is the widest: four digits for two
