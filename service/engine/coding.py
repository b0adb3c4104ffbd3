"""Row values as integers on a declared grid: the SQL that computes a column's code when it is prepared.

code = floor(value / step + 1/2), clamped to [low_code, high_code]; NULL for NULL and NaN. Rounding
half up is the same for all types and signs. Invariant N4: a code is a function of the one value, lies
within the declared codes whatever the value, and its computation never raises. Decimals, dates and
integers are computed in integers; doubles by one division, exact for steps that are powers of two.
"""

from fractions import Fraction

from service.core.errors import CatalogRefused
from service.core.schema import Column
from service.engine.names import quoted

LARGEST_CODE = 2**62
LARGEST_DOUBLE_CODE = 2**53  # up to here a double compares exactly with its code
WIDE = 38


def check_grid(column: Column) -> None:
    """Bounds and step that codes can be made of."""
    name: dict[str, str | int] = {"column": column.name}
    if column.low is None and column.high is None:
        return
    if column.low is None or column.high is None or column.step is None:
        raise CatalogRefused(f"{column.name} needs both bounds and a step, or none", name)
    if column.type.name == "VARCHAR":
        raise CatalogRefused(f"{column.name} is text; bounds need a number, date or timestamp", name)
    if column.step <= 0 or column.low > column.high:
        raise CatalogRefused(f"{column.name} needs bounds in order and a step above zero", name)
    largest = LARGEST_DOUBLE_CODE if column.type.name == "DOUBLE" else LARGEST_CODE
    if max(abs(column.low_code), abs(column.high_code)) >= largest:
        raise CatalogRefused(f"{column.name} has too many steps between its bounds; take a larger step", name)


def code_expression(column: Column) -> str:
    """SQL over the raw column that yields its code as BIGINT."""
    if column.type.name == "DOUBLE":
        return _from_double(column)
    assert column.step is not None
    per_integer = Fraction(1, _denominator(column)) / column.step  # codes per integer of the type's own grid
    up, down = per_integer.numerator, per_integer.denominator
    low, high = column.low_code, column.high_code
    lowest, highest = (low * down) // up, -((-high * down) // up)
    integer = _integer(column)
    if (up, down) == (1, 1):
        inner = f"CAST({integer} AS BIGINT)"
    else:
        # Between the bounds the dividend is positive, so truncation is floor.
        offset = down - 2 * down * low
        inner = (
            f"CAST({low} + (({2 * up}::HUGEINT * {integer} + ({offset})::HUGEINT) // {2 * down}::HUGEINT) AS BIGINT)"
        )
    branches = [f"WHEN {quoted(column.name)} IS NULL THEN NULL", *_edges(column, lowest, highest)]
    return f"CAST(CASE {' '.join(branches)} ELSE TRY({inner}) END AS BIGINT)"


def outside_bounds(column: Column) -> str:
    """A condition: the value lies outside the declared bounds (for the admin's warning)."""
    code, name = quoted(column.name + "#"), quoted(column.name)
    if column.type.name == "DOUBLE":
        assert column.low is not None
        assert column.high is not None
        return f"({name} < {_double(column.low)} OR {name} > {_double(column.high)}) AND NOT isnan({name})"
    edges = _edges(column, *_edge_integers(column))
    beyond = " OR ".join(edge.removeprefix("WHEN ").rsplit(" THEN ", 1)[0] for edge in edges)
    return f"{code} IS NOT NULL AND ({beyond or 'false'})"


def _edge_integers(column: Column) -> tuple[int, int]:
    """The first integers of the type's own grid that lie strictly outside the bounds."""
    assert column.low is not None
    assert column.high is not None
    grid = _denominator(column)
    below, above = column.low * grid, column.high * grid
    return -(-below.numerator // below.denominator) - 1, above.numerator // above.denominator + 1


def _from_double(column: Column) -> str:
    assert column.step is not None
    name, low, high = quoted(column.name), column.low_code, column.high_code
    rounded = f"floor({name} / {_double(column.step)} + 0.5::DOUBLE)"
    return (
        f"CASE WHEN {name} IS NULL OR isnan({name}) THEN NULL WHEN {rounded} <= ({low})::DOUBLE THEN {low}::BIGINT"
        f" WHEN {rounded} >= ({high})::DOUBLE THEN {high}::BIGINT ELSE TRY_CAST({rounded} AS BIGINT) END"
    )


def _denominator(column: Column) -> int:
    return 10 ** (column.type.scale or 0) if column.type.name == "DECIMAL" else 1


def _integer(column: Column) -> str:
    """The value on its type's own grid: the number itself, days, microseconds, hundredths …"""
    name, kind = quoted(column.name), column.type
    if kind.name == "DATE":
        return f"datediff('day', DATE '1970-01-01', {name})"
    if kind.name == "TIMESTAMP":
        return f"epoch_us({name})"
    if kind.name != "DECIMAL":
        return f"CAST({name} AS BIGINT)"
    assert kind.precision is not None
    assert kind.scale is not None
    if kind.scale == 0:
        return f"CAST({name} AS HUGEINT)"
    if kind.precision + kind.scale + 1 <= WIDE:
        width = 18 if kind.precision + kind.scale + 1 <= 18 else WIDE
        grid = f"{10**kind.scale}::DECIMAL({kind.scale + 1},0)"
        return f"CAST(CAST({name} AS DECIMAL({width},{kind.scale})) * {grid} AS HUGEINT)"
    return f"CAST(replace(CAST({name} AS VARCHAR), '.', '') AS HUGEINT)"


def _edges(column: Column, lowest: int, highest: int) -> list[str]:
    """Branches for values at or beyond the bounds, in the column's own type: no arithmetic on extremes."""
    held = []
    low, high = _literal(column, lowest), _literal(column, highest)
    if low is not None:
        held.append(f"WHEN {quoted(column.name)} <= {low} THEN {column.low_code}")
    if high is not None:
        held.append(f"WHEN {quoted(column.name)} >= {high} THEN {column.high_code}")
    return held


def _literal(column: Column, integer: int) -> str | None:
    """The integer of the type's own grid as a literal; None where no value of the type reaches it."""
    kind = column.type
    if kind.name == "DECIMAL":
        assert kind.precision is not None
        assert kind.scale is not None
        if abs(integer) >= 10**kind.precision:
            return None
        sign, digits = "-" if integer < 0 else "", str(abs(integer)).rjust(kind.scale + 1, "0")
        point = len(digits) - kind.scale
        return f"CAST('{sign}{digits[:point]}.{digits[point:] or '0'}' AS {kind})"
    if kind.name == "DATE":
        # Infinite dates lie beyond every finite one, so the clamp catches them.
        return f"(DATE '1970-01-01' + ({_within(integer, 2_000_000_000)})::INTEGER)"
    if kind.name == "TIMESTAMP":
        return f"make_timestamp(({_within(integer, 9_000_000_000_000_000_000)})::BIGINT)"
    if kind.name == "BOOLEAN":
        return f"CAST({integer > 0} AS BOOLEAN)" if integer in (0, 1) else None
    return f"({integer})::BIGINT" if -(2**63) <= integer < 2**63 else None


def _within(integer: int, edge: int) -> int:
    return max(-edge, min(edge, integer))


def _double(value: Fraction) -> str:
    return f"({float(value)!r})::DOUBLE"
