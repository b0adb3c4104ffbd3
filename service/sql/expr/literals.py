"""Literals: the analyst's text becomes a checked Python value, then a tree of ours."""

import re
from calendar import monthrange
from datetime import date, datetime, timedelta
from fractions import Fraction

from sqlglot import exp

from service.core.schema import BIGINT, BOOLEAN, DATE, DOUBLE, TIMESTAMP, VARCHAR, SqlType
from service.sql.expr.values import NULL, Constant, Value, constant
from service.sql.read.written_numbers import written_number
from service.sql.refusals import refused

STRING_CHARACTERS = 1_000


def literal_value(node: exp.Literal) -> Value:
    """An analyst's number or string as a Value."""
    if node.is_string:
        written = str(node.this)
        if len(written) > STRING_CHARACTERS or "\0" in written:
            raise refused(
                "a string literal is too long", node, construct="string literal", remedy="use a shorter string"
            )
        return constant(written, VARCHAR)
    return constant(*written_number(node))


def parse_date(written: str, node: exp.Expression) -> date:
    """The day that a text names, or a refusal."""
    try:
        if not re.fullmatch(r"\d{4}-\d{1,2}-\d{1,2}", written.strip(), re.ASCII):
            raise ValueError
        year, month, day = (int(part) for part in written.strip().split("-"))
        return date(year, month, day)
    except ValueError:
        raise refused(
            f"{written[:40]!r} is not a date", node, construct="date literal", remedy="write DATE 'YYYY-MM-DD'"
        ) from None


def parse_timestamp(written: str, node: exp.Expression) -> datetime:
    """The moment that a text names, or a refusal."""
    try:
        moment = datetime.fromisoformat(written.strip())
        if moment.tzinfo is not None:
            raise ValueError
        return moment
    except ValueError:
        remedy = "write TIMESTAMP 'YYYY-MM-DD HH:MM:SS', without a time zone"
        raise refused(
            f"{written[:40]!r} is not a timestamp", node, construct="timestamp literal", remedy=remedy
        ) from None


def convert(value: Value, kind: SqlType, node: exp.Expression) -> Value | None:
    """A constant as another type, decided now; None when that is for the engine to do."""
    assert value.constant is not None
    raw = value.constant[0]
    if raw is None or kind == value.type:
        return constant(raw, kind) if raw is not None else value
    if isinstance(raw, str):
        return _from_text(raw, kind, node)
    if kind == TIMESTAMP and isinstance(raw, date) and not isinstance(raw, datetime):
        return constant(datetime(raw.year, raw.month, raw.day), TIMESTAMP)
    if kind == DATE and isinstance(raw, datetime):
        return constant(raw.date(), DATE)
    if isinstance(raw, int | Fraction) and not isinstance(raw, bool):
        if kind == DOUBLE:
            return constant(Fraction(float(raw)), DOUBLE)
        if kind == BIGINT and Fraction(raw).denominator == 1 and abs(Fraction(raw)) < 1 << 63:
            return constant(int(raw), BIGINT)
    return None


def _from_text(raw: str, kind: SqlType, node: exp.Expression) -> Value | None:
    if kind == DATE:
        return constant(parse_date(raw[:10] if len(raw) > 10 else raw, node), DATE)
    if kind == TIMESTAMP:
        return constant(parse_timestamp(raw, node), TIMESTAMP)
    if kind == BOOLEAN and raw.lower() in ("true", "false"):
        return constant(raw.lower() == "true", BOOLEAN)
    if kind.is_numeric and re.fullmatch(r"-?\d{1,18}(\.\d{1,12})?", raw.strip(), re.ASCII):
        exact = Fraction(raw.strip())
        return constant(exact if exact.denominator != 1 else int(exact), kind) if _holds(kind, exact) else None
    return None


def _holds(kind: SqlType, exact: Fraction) -> bool:
    """Whether the type can hold the number as it is. A constant that claims a type of fewer digits than it has would
    be compared in a width that does not hold it, and that raises, but only if the row is there."""
    if kind == DOUBLE:
        return True
    scaled = exact * Fraction(10) ** (kind.scale or 0)
    return scaled.denominator == 1 and abs(scaled) < Fraction(10) ** (kind.precision or 18)


UNITS = {"YEAR": (12, 0), "QUARTER": (3, 0), "MONTH": (1, 0), "WEEK": (0, 7 * 86_400), "DAY": (0, 86_400),
         "HOUR": (0, 3_600), "MINUTE": (0, 60), "SECOND": (0, 1)}  # fmt: skip


def interval(node: exp.Interval) -> tuple[int, str]:
    """(amount, unit) of a literal interval of one unit."""
    remedy = (
        "write INTERVAL '3' MONTH: a whole number and one unit of year, quarter, month, week, day, hour, minute, second"
    )
    amount, unit = node.this, node.args.get("unit")
    while isinstance(amount, exp.Paren):
        amount = amount.this
    sign = 1
    if isinstance(amount, exp.Neg):
        sign, amount = -1, amount.this
    name = str(unit.this).upper().removesuffix("S") if isinstance(unit, exp.Var) else ""
    written = str(amount.this) if isinstance(amount, exp.Literal) else ""
    if name not in UNITS or not re.fullmatch(r"-?\d{1,6}", written, re.ASCII):
        raise refused("this interval is not a plain literal", node, construct="INTERVAL", remedy=remedy)
    total = sign * int(written)
    if abs(total) * (UNITS[name][0] or 0) > 12_000:
        raise refused("this interval is longer than 1,000 years", node, construct="INTERVAL", remedy=remedy)
    return total, name


def shift(moment: date | datetime, amount: int, unit: str, node: exp.Expression) -> Value:
    """A literal date plus an interval, worked out now. A result at midnight stays a DATE."""
    months, seconds = UNITS[unit]
    try:
        if months:
            index = moment.year * 12 + moment.month - 1 + amount * months
            year, month = divmod(index, 12)
            moment = moment.replace(year=year, month=month + 1, day=min(moment.day, monthrange(year, month + 1)[1]))
        elif isinstance(moment, datetime) or seconds % 86_400:
            start = moment if isinstance(moment, datetime) else datetime(moment.year, moment.month, moment.day)
            moment = start + timedelta(seconds=amount * seconds)
        else:
            moment = moment + timedelta(days=amount * (seconds // 86_400))
    except (ValueError, OverflowError):
        raise refused(
            "this date is out of range", node, construct="date arithmetic", remedy="stay between year 1 and 9999"
        ) from None
    return constant(moment, TIMESTAMP if isinstance(moment, datetime) else DATE)


def null() -> Value:
    """The Value of NULL."""
    return Value(exp.Null(), NULL, constant=(None,), domain=(None,), max_bytes=0)


def scalar(value: Constant) -> str | int | bool | float | date | datetime | None:
    """A constant as a member of a key's domain."""
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else float(value)
    return value
