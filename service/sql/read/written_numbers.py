"""Numbers as the analyst wrote them: their exact value and the type that DuckDB gives to such a literal."""

import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from sqlglot import exp

from service.core.schema import BIGINT, DOUBLE, SqlType
from service.sql.refusals import refused

PLAIN = re.compile(r"\d{1,38}(\.\d{0,38})?|\.\d{1,38}", re.ASCII)


def written_number(node: exp.Literal) -> tuple[int | Fraction, SqlType]:
    """(value, type). Decimals keep their scale; scientific notation is DOUBLE."""
    digits = str(node.this).replace("_", "")
    try:
        value = Decimal(digits)
        if not digits.isascii():
            raise InvalidOperation
    except InvalidOperation:
        remedy = "write plain decimal digits"
        raise refused("this number can not be read", node, construct="number", remedy=remedy) from None
    if not value.is_finite() or abs(value.adjusted()) > 60 or len(digits) > 80:
        raise refused("this number is too large or too fine", node, construct="number", remedy="use at most 38 digits")
    exact = Fraction(value)
    if not PLAIN.fullmatch(digits):
        return _double(exact)
    if exact.denominator == 1 and "." not in digits:
        return (int(exact), BIGINT) if abs(exact) < 1 << 63 else _double(exact)
    scale = len(digits.partition(".")[2])
    whole = max(1, len(str(int(exact))))
    if whole + scale > 38:
        return _double(exact)
    return exact, SqlType("DECIMAL", whole + scale, scale)


def _double(exact: Fraction) -> tuple[Fraction, SqlType]:
    return Fraction(float(exact)), DOUBLE
