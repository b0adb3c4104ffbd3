"""A bound expression: what the engine would compute, and everything planning knows about it."""

from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from fractions import Fraction

from sqlglot import exp

from service.core.schema import Scalar, SqlType, byte_count
from service.sql.expr.trees import number, type_named

NULL = SqlType("NULL")

Range = tuple[Fraction, Fraction]
Constant = Scalar | Fraction

UNIT = "#unit"  # the token of a value that is the unit itself


@dataclass(frozen=True, slots=True)
class Code:
    """Integers that stand for the value: value = code * step, low <= code <= high on every row."""

    tree: exp.Expression
    step: Fraction
    low: int
    high: int

    @property
    def magnitude(self) -> int:
        return max(abs(self.low), abs(self.high))


@dataclass(frozen=True, slots=True)
class Value:
    """A bound expression with its type and what is known of it.

    `tree` computes the raw value and never raises. `code`, where known, computes exact clamped integers.

    `tokens` are identities of the unit (UNIT, or "table.column" of a key that determines it): equal
    values of a shared token belong to one unit. `reads_unit` taints whatever was computed from the unit.
    `reads` are the columns behind it, `lacking` those of them without bounds. `max_bytes` of a text: no row has more
    (lengths.py); None: no text, or not known.
    """

    tree: exp.Expression
    type: SqlType
    code: Code | None = None
    range: Range | None = None
    domain: tuple[Scalar, ...] | None = None
    public: tuple[str, str] | None = None
    constant: tuple[Constant] | None = None
    tokens: frozenset[str] = frozenset()
    reads_unit: bool = False
    reads: frozenset[str] = frozenset()
    lacking: frozenset[str] = frozenset()
    auto: bool = False
    source: str | None = None
    max_bytes: int | None = None

    @property
    def numeric(self) -> bool:
        return self.type.is_numeric

    def fresh(self) -> "Value":
        """A copy whose trees may be given to a new parent."""
        code = None if self.code is None else replace(self.code, tree=self.code.tree.copy())
        return replace(self, tree=self.tree.copy(), code=code)


def derived(tree: exp.Expression, kind: SqlType, *parents: Value) -> Value:
    """A Value computed from `parents`: taints and reads add up, knowledge of the value itself doesn't."""
    return Value(
        tree,
        kind,
        reads_unit=any(parent.reads_unit for parent in parents),
        reads=frozenset().union(*(parent.reads for parent in parents)),
        lacking=frozenset().union(*(parent.lacking for parent in parents)),
        auto=any(parent.auto for parent in parents),
    )


def literal_tree(value: Constant, kind: SqlType) -> exp.Expression:
    """A literal built by us from a checked Python value; the analyst's text never passes through."""
    if value is None:
        return exp.Null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, datetime):
        return _typed(value.isoformat(sep=" "), "TIMESTAMP")
    if isinstance(value, date):
        return _typed(value.isoformat(), "DATE")
    if isinstance(value, str):
        return exp.Literal(this=value, is_string=True)
    if isinstance(value, float):
        return double_literal(value)
    fraction = Fraction(value)
    if kind.name == "DOUBLE":
        return double_literal(float(fraction))
    digits = exp.Literal(this=_decimal(abs(fraction), kind.scale or 0), is_string=False)
    return exp.Neg(this=digits) if fraction < 0 else digits


def double_literal(value: float) -> exp.Expression:
    digits = exp.Literal(this=repr(abs(value)), is_string=False)
    tree = exp.Cast(this=digits, to=type_named("DOUBLE"))
    return exp.Neg(this=tree) if value < 0 else tree


def _typed(text: str, kind: str) -> exp.Expression:
    return exp.Cast(this=exp.Literal(this=text, is_string=True), to=type_named(kind))


def _decimal(value: Fraction, scale: int) -> str:
    """Digits of a decimal fraction, exactly, with at least `scale` of them after the point."""
    while (value * 10**scale).denominator != 1:
        scale += 1
    digits = int(value * 10**scale)
    if scale == 0:
        return str(digits)
    padded = str(digits).rjust(scale + 1, "0")
    return f"{padded[:-scale]}.{padded[-scale:]}"


def _ordinal(moment: date) -> int:
    """Days since 1970 of a date, microseconds of a timestamp: what prepared columns hold as codes."""
    if isinstance(moment, datetime):
        return (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    return (moment - date(1970, 1, 1)).days


def constant(value: Constant, kind: SqlType) -> Value:
    """The Value of a literal, with all that is known of it."""
    known: Range | None = None
    code: Code | None = None
    exact = _ordinal(value) if isinstance(value, date) else value
    if isinstance(exact, int | Fraction) and not isinstance(exact, bool):
        fraction = Fraction(exact)
        known = (fraction, fraction)
        step = Fraction(1, fraction.denominator)
        if abs(fraction.numerator) < 1 << 62:
            code = Code(number(fraction.numerator), step, fraction.numerator, fraction.numerator)
    domain: tuple[Scalar, ...] = (float(value) if isinstance(value, Fraction) else value,)
    if isinstance(value, Fraction) and value.denominator == 1:
        domain = (int(value),)
    found = Value(literal_tree(value, kind), kind, code=code, range=known, domain=domain, constant=(value,))
    return replace(found, max_bytes=byte_count(value)) if isinstance(value, str) else found
