"""CAST, always emitted as TRY_CAST: a value that does not fit becomes NULL, never an error."""

from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from service.core.schema import BIGINT, BOOLEAN, DATE, DOUBLE, TIMESTAMP, VARCHAR, SqlType
from service.sql.expr.comparisons import as_double
from service.sql.expr.compiler import Compiler, handles
from service.sql.expr.lengths import WRITTEN_BYTES
from service.sql.expr.literals import convert
from service.sql.expr.ranges import half_away
from service.sql.expr.trees import cast_to, number, when, wrapped
from service.sql.expr.values import NULL, Code, Value, derived
from service.sql.refusals import refused

D = exp.DType
KINDS: dict[exp.DType, SqlType] = {
    **dict.fromkeys((D.TINYINT, D.SMALLINT, D.INT, D.BIGINT, D.UTINYINT, D.USMALLINT, D.UINT), BIGINT),
    **dict.fromkeys((D.FLOAT, D.DOUBLE), DOUBLE),
    **dict.fromkeys((D.VARCHAR, D.TEXT, D.CHAR, D.NVARCHAR), VARCHAR),
    D.BOOLEAN: BOOLEAN,
    D.DATE: DATE,
    **dict.fromkeys((D.TIMESTAMP, D.TIMESTAMPNTZ, D.DATETIME), TIMESTAMP),
}


def cast_type(node: exp.Expression, to: exp.DataType) -> SqlType:
    """The type that a CAST names, or a refusal."""
    if to.this == D.DECIMAL:
        numbers = [str(part.this.this) for part in to.expressions if isinstance(part.this, exp.Literal)]
        sizes = [int(part) for part in numbers if part.isascii() and part.isdigit() and len(part) < 3] or [18, 3]
        precision, scale = sizes[0], (sizes[1] if len(sizes) > 1 else 0)
        if 1 <= precision <= 38 and 0 <= scale <= precision:
            return SqlType("DECIMAL", precision, scale)
    elif to.this in KINDS:
        return KINDS[to.this]
    raise refused(
        f"casts to {str(to.this).rpartition('.')[2]} are not supported",
        node,
        construct="CAST",
        remedy="cast to BIGINT, DOUBLE, DECIMAL(p, s), VARCHAR, BOOLEAN, DATE or TIMESTAMP",
    )


@handles(exp.Cast, exp.TryCast)
def _cast(node: exp.Expression, c: Compiler) -> Value:
    kind = cast_type(node, node.args["to"])
    value = c.value(node.this)
    if value.type is NULL:
        return replace(value, tree=cast_to(value.tree, str(kind)), type=kind)
    if value.constant is not None:
        done = convert(value, kind, node)
        if done is not None:
            return done
    if kind == value.type:
        return value
    if kind == VARCHAR and value.type == DOUBLE:
        remedy = "group by ROUND(x) or by CAST(x AS BIGINT): the text of a DOUBLE differs between engines"
        raise refused("a DOUBLE can not be cast to text", node, construct="CAST", remedy=remedy)
    if not _sensible(value.type, kind):
        raise refused(
            f"{value.type} can not be cast to {kind}", node, construct="CAST", remedy="cast to a type that fits"
        )
    found = derived(cast_to(value.tree, str(kind), safe=True), kind, value)
    if kind == VARCHAR:
        return replace(found, max_bytes=WRITTEN_BYTES[value.type.name])
    if value.type == BOOLEAN:
        return _flag(found, value, kind)
    if not (value.numeric and kind.is_numeric):
        return found
    return _number(found, value, kind)


def _sensible(a: SqlType, b: SqlType) -> bool:
    if VARCHAR in (a, b) or (a.is_numeric and b.is_numeric):
        return True
    if BOOLEAN in (a, b):
        return a.is_numeric or b.is_numeric
    return {a, b} <= {DATE, TIMESTAMP}


def _flag(found: Value, value: Value, kind: SqlType) -> Value:
    """TRUE is 1, FALSE is 0; a DECIMAL without digits before its point holds no 1, so that is NULL there."""
    truth = wrapped(value.tree.copy())
    tree = when((truth, number(1)), (exp.Not(this=truth.copy()), number(0)))
    edges = (Fraction(0), Fraction(1))
    return replace(
        found,
        tree=cast_to(tree, str(kind), safe=True),
        code=Code(tree.copy(), Fraction(1), 0, 1),
        range=edges,
        domain=(0, 1),
    )


def _number(found: Value, value: Value, kind: SqlType) -> Value:
    """DOUBLE keeps codes; a grid that is coarser than the value's loses them and keeps the range."""
    if value.range is None:
        return found
    low, high = value.range
    grid = {"BIGINT": Fraction(1), "DECIMAL": Fraction(1, 10 ** (kind.scale or 0))}.get(kind.name)
    if grid is None:
        return replace(found, tree=as_double(value).tree, code=value.code, range=value.range)
    code = value.code if value.code is not None and (value.code.step / grid).denominator == 1 else None
    return replace(found, code=code, range=(half_away(low / grid) * grid, half_away(high / grid) * grid))
