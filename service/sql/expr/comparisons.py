"""Comparisons that never raise: both sides brought to a type the engine compares without a row-dependent cast."""

from dataclasses import replace
from datetime import datetime

from sqlglot import exp

from service.core.schema import DATE, DOUBLE, TIMESTAMP, VARCHAR, SqlType
from service.sql.expr.literals import convert
from service.sql.expr.trees import cast_to
from service.sql.expr.values import NULL, Value
from service.sql.refusals import refused


def in_one_type(a: Value, b: Value, node: exp.Expression) -> tuple[Value, Value]:
    """Both operands in a type in which the engine compares them.

    A cast from text or between decimals of great width could raise on a row: literals are converted here and now,
    wide decimals compare as DOUBLE.
    """
    if a.type is NULL or b.type is NULL or (a.type == b.type and a.type.name != "DECIMAL"):
        return a, b
    if a.constant is not None and a.type == VARCHAR and b.type in (DATE, TIMESTAMP):
        return convert(a, b.type, node) or a, b
    if b.constant is not None and b.type == VARCHAR and a.type in (DATE, TIMESTAMP):
        return a, convert(b, a.type, node) or b
    if a.numeric and b.numeric:
        return _numbers(a, b)
    if {a.type, b.type} == {DATE, TIMESTAMP}:
        return _moment(a, b), _moment(b, a)
    raise refused(
        f"{a.type} and {b.type} can not be compared",
        node,
        construct="comparison",
        remedy="compare values of one type; CAST one side, or drop the quotes around a number",
    )


def _numbers(a: Value, b: Value) -> tuple[Value, Value]:
    if a.type == b.type or (_digits(a.type, b.type) <= 36 and "DOUBLE" not in (a.type.name, b.type.name)):
        return a, b
    return as_double(a), as_double(b)


def _digits(a: SqlType, b: SqlType) -> int:
    """Digits that hold both without loss."""
    whole = max((t.precision or 38) - (t.scale or 0) if t.name == "DECIMAL" else 19 for t in (a, b))
    return whole + max((t.scale or 0) if t.name == "DECIMAL" else 0 for t in (a, b))


def as_double(value: Value) -> Value:
    """The value as a DOUBLE: casts from BIGINT and DECIMAL never raise."""
    if value.type == DOUBLE or value.type is NULL:
        return value
    if value.constant is not None:
        return convert(value, DOUBLE, value.tree) or value
    return replace(value, tree=cast_to(value.tree, "DOUBLE"), type=DOUBLE)


def _moment(value: Value, other: Value) -> Value:
    """DATE beside TIMESTAMP: a constant at midnight becomes a DATE, so that the column stays bare."""
    if value.constant is not None and value.type == TIMESTAMP:
        moment = value.constant[0]
        if isinstance(moment, datetime) and moment == datetime(moment.year, moment.month, moment.day):
            return convert(value, DATE, value.tree) or value
        return value
    if other.constant is not None and other.type == TIMESTAMP:
        moment = other.constant[0]
        if isinstance(moment, datetime) and moment == datetime(moment.year, moment.month, moment.day):
            return value
    if value.type == DATE:
        if value.constant is not None:
            return convert(value, TIMESTAMP, value.tree) or value
        return replace(value, tree=cast_to(value.tree, "TIMESTAMP", safe=True), type=TIMESTAMP)
    return value


def unified(values: list[Value], node: exp.Expression) -> tuple[list[Value], SqlType]:
    """All branches of a CASE or COALESCE in one type."""
    kinds = [value.type for value in values if value.type is not NULL]
    if not kinds:
        raise refused("every branch is NULL", node, construct="CASE", remedy="give at least one branch a value")
    first = kinds[0]
    if all(kind == first for kind in kinds):
        return values, first
    if all(kind.is_numeric for kind in kinds):
        return [as_double(value) for value in values], DOUBLE
    if set(kinds) <= {DATE, TIMESTAMP, VARCHAR}:
        target = TIMESTAMP if TIMESTAMP in kinds else DATE if DATE in kinds else VARCHAR
        turned = []
        for value in values:
            if value.type in (target, NULL):
                turned.append(value)
                continue
            done = convert(value, target, node) if value.constant is not None else None
            if done is None:
                break
            turned.append(done)
        else:
            return turned, target
    raise refused(
        "the branches have different types: " + ", ".join(sorted({str(kind) for kind in kinds})),
        node,
        construct="CASE",
        remedy="CAST the branches to one type",
    )
