"""Value ranges and exact integer codes through arithmetic.

in   operands with a range [low, high] and, where they come from coded columns or literals, integer codes
out  the same for the result

Why codes: `price * (1 - discount)` over cents and percent points is an exact integer in units of 0.0001.
Sums of it don't depend on order and don't round, so the sensitivity on paper is the one in the machine.
Invariant R1: every intermediate code stays below 2^62, by interval arithmetic over declared bounds; where
it would not, the code is given up and the value is computed in DOUBLE, clamped and put on a binary grid.
"""

import re
from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from service.sql.expr.trees import binary, cast_to, number, when
from service.sql.expr.values import NULL, Code, Range, Value, double_literal

WIDEST = 1 << 62
LARGEST = Fraction(2) ** 200  # beyond this a range is as good as none

ANY: Range = (-LARGEST, LARGEST)
NARROW = Fraction(2) ** 120

SUM_BITS = 32
SQUARE_BITS = 20
ORDER_BITS = 60  # values that are only compared (quantiles, minimum, maximum): bins reach a little beyond them


def finite(low: Fraction, high: Fraction) -> Range | None:
    """The range, or None where it is so wide that it says nothing."""
    return (low, high) if max(abs(low), abs(high)) <= LARGEST else None


def clampable(known: Range) -> bool:
    """Whether a measure can be clamped to the range."""
    return max(abs(known[0]), abs(known[1])) <= NARROW


def add_ranges(a: Range | None, b: Range | None) -> Range | None:
    return None if a is None or b is None else finite(a[0] + b[0], a[1] + b[1])


def negate_range(a: Range | None) -> Range | None:
    return None if a is None else (-a[1], -a[0])


def multiply_ranges(a: Range | None, b: Range | None) -> Range | None:
    if a is None or b is None:
        return None
    corners = [x * y for x in a for y in b]
    return finite(min(corners), max(corners))


def divide_ranges(a: Range | None, b: Range | None) -> Range | None:
    """The range of a quotient; nothing is known when the divisor may come near zero."""
    if a is None or b is None or b[0] <= 0 <= b[1]:
        return None
    return multiply_ranges(a, (1 / b[1], 1 / b[0]))


def hull(ranges: list[Range | None]) -> Range | None:
    """The smallest range that holds all of them; None where one is not known."""
    known = [part for part in ranges if part is not None]
    if len(known) != len(ranges) or not known:
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def common_step(a: Fraction, b: Fraction) -> Fraction:
    """The coarsest grid that holds both: gcd of two fractions."""
    top = Fraction(a.numerator * b.denominator, 1), Fraction(b.numerator * a.denominator, 1)
    x, y = int(top[0]), int(top[1])
    while y:
        x, y = y, x % y
    return Fraction(x, a.denominator * b.denominator)


def _wide(tree: exp.Expression) -> exp.Expression:
    """Prepared codes may be narrow integers, and so are literals (a CASE over them is 32 bits wide): arithmetic on
    them must not wrap or raise. A number alone is widened by what it stands beside."""
    return tree if _is_number(tree) else cast_to(tree, "BIGINT")


def _is_number(tree: exp.Expression) -> bool:
    return isinstance(tree.this if isinstance(tree, exp.Neg) else tree, exp.Literal)


def _beside(kind: type[exp.Expression], a: exp.Expression, b: exp.Expression) -> exp.Expression:
    """Two codes under one operator, in 64 bits also where both are plain numbers."""
    return binary(kind, cast_to(a, "BIGINT") if _is_number(a) and _is_number(b) else _wide(a), _wide(b))


def rescale(code: Code, step: Fraction) -> Code | None:
    """A code of the same values on a finer grid."""
    factor = code.step / step
    assert factor.denominator == 1, "a finer grid divides the coarser one"
    times = int(factor)
    if times == 1:
        return code
    if code.magnitude * times >= WIDEST:
        return None
    if code.low == code.high and isinstance(code.tree, exp.Literal | exp.Neg):
        return Code(number(code.low * times), step, code.low * times, code.high * times)
    tree = _beside(exp.Mul, code.tree, number(times))
    return Code(tree, step, code.low * times, code.high * times)


def align(codes: list[Code]) -> list[Code] | None:
    """All codes on one grid, or None where that would not fit."""
    step = codes[0].step
    for code in codes[1:]:
        step = common_step(step, code.step)
    scaled = [rescale(code, step) for code in codes]
    return None if any(code is None for code in scaled) else [code for code in scaled if code is not None]


def add_codes(a: Code | None, b: Code | None, *, minus: bool = False) -> Code | None:
    both = None if a is None or b is None else align([a, b])
    if both is None:
        return None
    a, b = both
    low, high = (a.low - b.high, a.high - b.low) if minus else (a.low + b.low, a.high + b.high)
    if max(abs(low), abs(high)) >= WIDEST:
        return None
    return Code(_beside(exp.Sub if minus else exp.Add, a.tree, b.tree), a.step, low, high)


def multiply_codes(a: Code | None, b: Code | None) -> Code | None:
    if a is None or b is None:
        return None
    corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    if a.magnitude * b.magnitude >= WIDEST:
        return None
    return Code(_beside(exp.Mul, a.tree, b.tree), a.step * b.step, min(corners), max(corners))


def negate_code(a: Code | None) -> Code | None:
    return None if a is None else Code(exp.Neg(this=_parened(_wide(a.tree))), a.step, -a.high, -a.low)


def _parened(tree: exp.Expression) -> exp.Expression:
    return exp.Paren(this=tree) if isinstance(tree, exp.Binary | exp.Neg) else tree


def divide_code(a: Code | None, divisor: Fraction) -> Code | None:
    """A code divided by a literal: that moves the step, not the integers."""
    if a is None or divisor == 0:
        return None
    if divisor < 0:
        a = negate_code(a)
        assert a is not None
    return replace(a, step=a.step / abs(divisor))


def case_codes(tests: list[exp.Expression], branches: list[Value]) -> Code | None:
    """The code of a CASE over coded branches, one more than tests when there is an ELSE; a NULL branch stays NULL."""
    coded = [branch.code for branch in branches if branch.type is not NULL]
    known = [code for code in coded if code is not None]
    both = align(known) if known and len(known) == len(coded) else None
    if both is None:
        return None
    ready = iter(both)
    trees = [exp.Null() if branch.type is NULL else next(ready).tree for branch in branches]
    otherwise = trees[len(tests)] if len(trees) > len(tests) else None
    tree = when(*zip(tests, trees[: len(tests)], strict=True), otherwise=otherwise)
    return Code(tree, both[0].step, min(code.low for code in both), max(code.high for code in both))


def clamp_code(code: Code, low: int, high: int) -> Code:
    """A code clamped to [low, high]. By CASE, not LEAST: a NULL stays NULL, and it is faster."""
    low, high = min(low, high), max(low, high)
    if code.low >= low and code.high <= high:
        return code
    tests: list[tuple[exp.Expression, exp.Expression]] = []
    if code.low < low:
        tests.append((exp.LT(this=_parened(code.tree.copy()), expression=number(low)), number(low)))
    if code.high > high:
        tests.append((exp.GT(this=_parened(code.tree.copy()), expression=number(high)), number(high)))
    bottom = min(max(code.low, low), high)
    top = max(min(code.high, high), low)
    return Code(when(*tests, otherwise=code.tree), code.step, bottom, top)


def coarsen(code: Code, bits: int) -> Code:
    """A code on a grid 2^k times as wide, so that weights and squares stay below 2^62.

    Rounding is monotone and the power of two divides exactly, so the rounded bounds bound the rounded codes.
    """
    shift = max(0, (code.magnitude - 1).bit_length() - bits)
    if shift == 0:
        return code
    scaled = binary(exp.Div, cast_to(code.tree, "DOUBLE"), double_literal(float(1 << shift)))
    tree = cast_to(exp.Round(this=scaled), "BIGINT")
    low, high = (half_away(Fraction(float(edge)) / (1 << shift)) for edge in (code.low, code.high))
    return Code(tree, code.step * (1 << shift), low, high)


def half_away(value: Fraction) -> int:
    """A whole number, halves rounded away from zero, as the engines' ROUND does."""
    rounded = int(abs(value) + Fraction(1, 2))
    return -rounded if value < 0 else rounded


def grid_code(value: Value, bits: int) -> Code | None:
    """A code for a value that is only known to lie in a range: clamp, divide by a step, round."""
    if value.range is None or not clampable(value.range):
        return None
    low, high = value.range
    whole = value.type.name == "BIGINT"
    if whole and max(abs(low), abs(high)) < 1 << min(bits, 52):
        return _whole_code(value, half_away(low), half_away(high))
    step = _binary_step(max(abs(low), abs(high)), bits)
    low_code, high_code = half_away(low / step), half_away(high / step)
    tree = cast_to(value.tree, "DOUBLE") if value.type.name != "DOUBLE" else value.tree
    bottom, top = float(low_code * step), float(high_code * step)
    clamped = when(
        (exp.IsNan(this=tree.copy()), exp.Null()),
        (exp.LT(this=_parened(tree.copy()), expression=double_literal(bottom)), double_literal(bottom)),
        (exp.GT(this=_parened(tree.copy()), expression=double_literal(top)), double_literal(top)),
        otherwise=tree,
    )
    scaled = binary(exp.Div, clamped, double_literal(float(step)))
    return Code(cast_to(exp.Round(this=scaled), "BIGINT"), step, low_code, high_code)


def _whole_code(value: Value, low: int, high: int) -> Code:
    tests = (
        (exp.LT(this=_parened(value.tree.copy()), expression=number(low)), number(low)),
        (exp.GT(this=_parened(value.tree.copy()), expression=number(high)), number(high)),
    )
    return Code(when(*tests, otherwise=value.tree), Fraction(1), low, high)


def _binary_step(magnitude: Fraction, bits: int) -> Fraction:
    """The finest power of two on which `magnitude` fits into `bits` (and into a double's 53)."""
    cells = Fraction(1 << min(bits, 52))
    step = Fraction(1)
    while magnitude / step > cells:
        step *= 2
    while magnitude > 0 and magnitude / (step / 2) <= cells and step > Fraction(1, 1 << 60):
        step /= 2
    return step


def measure_code(value: Value, bits: int) -> Code | None:
    """The integer column of a measure with at most `bits` bits, clamped as its last step; None: no range."""
    if value.code is not None:
        return held_in_range(coarsen(value.code, bits))
    if value.type.is_numeric:
        return grid_code(value, bits)
    return None


MADE = re.compile(r"[a-z]\d+#?")  # names that derived tables give to their columns


def held_in_range(code: Code) -> Code:
    """A code held inside its proved range by a clamp as well, unless it is a prepared column, which is clamped already.

    Why twice: noise is scaled to this range. A slip in the proof of an expression would otherwise let one
    row count for more than was paid; with the clamp it can only make an answer wrong.
    """
    if isinstance(code.tree, exp.Column) and not MADE.fullmatch(code.tree.name):
        return code
    tests: list[tuple[exp.Expression, exp.Expression]] = [
        (exp.LT(this=_parened(code.tree.copy()), expression=number(code.low)), number(code.low)),
        (exp.GT(this=_parened(code.tree.copy()), expression=number(code.high)), number(code.high)),
    ]
    return replace(code, tree=when(*tests, otherwise=code.tree))
