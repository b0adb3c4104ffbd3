"""Do bounds, steps, domains and lengths of a column make sense? Pure; every refusal names what to change."""

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from service.catalog.declare import ColumnDeclaration
from service.core.errors import CatalogRefused
from service.core.schema import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    TEXT_BYTES,
    TIMESTAMP,
    VARCHAR,
    Column,
    Scalar,
    SqlType,
    byte_count,
)

CODE_MAX = 2**31  # codes beyond 32 bits would not fit beside the weight
EPOCH = datetime(1970, 1, 1)
DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)\((\d{1,2}),\s*(\d{1,2})\)", re.ASCII)
TYPE_SPELLINGS = {
    "BOOLEAN": BOOLEAN, "BOOL": BOOLEAN,
    "BIGINT": BIGINT, "INTEGER": BIGINT, "INT": BIGINT, "SMALLINT": BIGINT, "TINYINT": BIGINT,
    "UINTEGER": BIGINT, "USMALLINT": BIGINT, "UTINYINT": BIGINT, "LONG": BIGINT,
    "DOUBLE": DOUBLE, "FLOAT": DOUBLE, "REAL": DOUBLE,
    "VARCHAR": VARCHAR, "TEXT": VARCHAR, "STRING": VARCHAR,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP, "DATETIME": TIMESTAMP,
}  # fmt: skip


def parse_type(text: str) -> SqlType:
    """One of the seven prepared types; narrower spellings are widened."""
    upper = text.strip().upper()
    if upper in TYPE_SPELLINGS:
        return TYPE_SPELLINGS[upper]
    found = DECIMAL.fullmatch(upper)
    if found:
        precision, scale = int(found[1]), int(found[2])
        if 1 <= precision <= 38 and scale <= precision:
            return SqlType("DECIMAL", precision, scale)
    raise CatalogRefused(
        f"the type {text[:40]!r} is not kept in a prepared table",
        {"remedy": "declare BOOLEAN, BIGINT, DOUBLE, DECIMAL(p,s), VARCHAR, DATE or TIMESTAMP"},
    )


def bound_value(value: Decimal | str, kind: SqlType, where: str) -> Fraction:
    """A bound in the column's own unit: numbers as they are, dates in days, timestamps in microseconds."""
    try:
        if isinstance(value, str) and not value.isascii():
            return _refuse_bound(where)
        if kind.name == "DATE" and isinstance(value, str):
            return Fraction((date.fromisoformat(value) - EPOCH.date()).days)
        if kind.name == "TIMESTAMP" and isinstance(value, str):
            return Fraction(_naive(datetime.fromisoformat(value)) // timedelta(microseconds=1))
        return Fraction(Decimal(value)) if -400 < Decimal(value).adjusted() < 400 else _refuse_bound(where)
    except (ValueError, ArithmeticError):
        return _refuse_bound(where)


def _naive(moment: datetime) -> timedelta:
    return (moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment) - EPOCH


def _refuse_bound(where: str) -> Fraction:
    raise CatalogRefused(f"a bound of {where} is no finite value of the column's type", {"column": where})


def default_step(kind: SqlType, low: Fraction, high: Fraction) -> Fraction:
    """The finest grid on which codes keep to 32 bits: 1, 10^-scale, or a power of two for floats."""
    reach = max(abs(low), abs(high))
    if kind.name == "DOUBLE":
        step = Fraction(1, 2**20)
        while reach / step >= CODE_MAX // 2:
            step *= 2
        return step
    step = Fraction(1, 10 ** (kind.scale or 0)) if kind.name == "DECIMAL" else Fraction(1)
    while reach / step >= CODE_MAX:
        step *= 10
    return step


def build_column(name: str, declared: ColumnDeclaration, kind: SqlType, *, table: str, private: bool) -> Column:
    """A core Column from a declaration whose type is known."""
    where = f"{table}.{name}"
    low = high = step = None
    if declared.bounds is not None:
        if kind.name in ("VARCHAR", "BOOLEAN"):
            raise CatalogRefused(
                f"{where} is {kind}, and only numbers, dates and timestamps have bounds", {"column": where}
            )
        low, high = (bound_value(bound, kind, where) for bound in declared.bounds)
        if low > high:
            raise CatalogRefused(f"the bounds of {where} are the wrong way round", {"column": where})
        step = default_step(kind, low, high)
        if declared.step is not None:
            step = bound_value(declared.step, SqlType("DOUBLE"), where)
            if step <= 0:
                raise CatalogRefused(f"the step of {where} must be above zero", {"column": where})
        if max(abs(low), abs(high)) / step >= 2 * CODE_MAX:
            raise CatalogRefused(
                f"{where} would need more than 32 bits on this step",
                {"column": where, "remedy": "narrow the bounds or declare a larger step"},
            )
    elif declared.step is not None:
        raise CatalogRefused(f"{where} has a step but no bounds", {"column": where, "remedy": "declare bounds"})
    domain = None
    if declared.domain is not None:
        domain = tuple(domain_value(value, kind, where) for value in declared.domain)
        if not domain or len(set(domain)) != len(domain):
            raise CatalogRefused(f"the domain of {where} must list each value once", {"column": where})
    return Column(
        name, kind, low=low, high=high, step=step, domain=domain, unique=declared.unique,
        source_name=declared.source_name, max_bytes=text_limit(declared, kind, domain, where=where, private=private),
    )  # fmt: skip


def text_limit(
    declared: ColumnDeclaration, kind: SqlType, domain: tuple[Scalar, ...] | None, *, where: str, private: bool
) -> int | None:
    """How many bytes a text may have. Private texts always have a limit, and each value of a domain fits."""
    if kind != VARCHAR:
        if declared.max_bytes is not None:
            raise CatalogRefused(
                f"{where} is {kind}, and only texts have max_bytes", {"column": where, "remedy": "leave max_bytes out"}
            )
        return None
    texts = [value for value in domain or () if isinstance(value, str)]
    longest = max(texts, key=byte_count, default="")
    if declared.max_bytes is None:
        return max(TEXT_BYTES, byte_count(longest)) if private else None
    if byte_count(longest) > declared.max_bytes:
        raise CatalogRefused(
            f"the domain of {where} holds {longest[:60]!r}, which has {byte_count(longest)} bytes: more than max_bytes",
            {"column": where, "remedy": f"declare max_bytes of at least {byte_count(longest)}"},
        )
    return declared.max_bytes


def domain_value(value: object, kind: SqlType, where: str) -> Scalar:
    """A member of a declared domain as the type that the prepared column holds."""
    if value is None:
        return None
    refusal = CatalogRefused(f"the domain of {where} holds a value that is no {kind}", {"column": where})
    try:
        match kind.name:
            case "BOOLEAN" if isinstance(value, bool):
                return value
            case "BIGINT" if isinstance(value, int) and not isinstance(value, bool):
                return value
            case "BIGINT" if isinstance(value, Decimal) and value == value.to_integral_value():
                return int(value)
            case "DOUBLE" if isinstance(value, int | Decimal | float) and not isinstance(value, bool):
                return float(value) + 0.0
            case "VARCHAR" if isinstance(value, str):
                return value
            case "DATE" if isinstance(value, date) and not isinstance(value, datetime):
                return value
            case "DATE" if isinstance(value, str):
                return date.fromisoformat(value)
            case "TIMESTAMP" if isinstance(value, datetime):
                return EPOCH + _naive(value)
            case "TIMESTAMP" if isinstance(value, str):
                return EPOCH + _naive(datetime.fromisoformat(value))
    except ValueError:
        raise refusal from None
    raise refusal
