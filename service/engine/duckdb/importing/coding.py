"""Row values as integers on a declared grid: the SQL that computes a column's code when it is prepared.

Keeps N4 (service/core/prepared.py). Decimals, dates and integers are computed in integers; doubles by one
division, exact for steps that are powers of two.
"""

from fractions import Fraction

from service.core.errors import CatalogRefused
from service.core.prepared import code_name
from service.core.schema import Column
from service.engine.quoting import quoted

LARGEST_CODE = 2**61  # differences of two codes, and bins around them, stay below 2^62
LARGEST_DOUBLE_CODE = 2**53  # up to here a double compares exactly with its code
LARGEST_RATIO = 2**125  # literals and their doubles stay within 128 bits
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
    if column.type.name != "DOUBLE" and max(_ratio(column)) >= LARGEST_RATIO:
        raise CatalogRefused(f"{column.name} has a step that is far from what its type can hold", name)


def code_expression(column: Column) -> str:
    """SQL over the raw column that yields its code as BIGINT."""
    if column.type.name == "DOUBLE":
        return _from_double(column)
    up, down = _ratio(column)
    low, high = column.low_code, column.high_code
    lowest, highest = (low * down) // up, -((-high * down) // up)
    integer = _integer(column)
    inner = integer if (up, down) == (1, 1) else _rounded(integer, up, down)
    branches = [f"WHEN {quoted(column.name)} IS NULL THEN NULL", *_edges(column, lowest, highest)]
    return f"CAST(CASE {' '.join(branches)} ELSE TRY(CAST({inner} AS BIGINT)) END AS BIGINT)"


def _ratio(column: Column) -> tuple[int, int]:
    """Codes per integer of the type's own grid, as a fraction."""
    assert column.step is not None
    per_integer = Fraction(1, _denominator(column)) / column.step
    return per_integer.numerator, per_integer.denominator


def _rounded(integer: str, up: int, down: int) -> str:
    """floor(integer * up / down + 1/2), in 128 bits. DuckDB's // truncates, so negatives go the other way round."""
    if down % 2:
        up, down = 2 * up, 2 * down
    dividend = f"({up}::HUGEINT * {integer} + {down // 2}::HUGEINT)"
    divisor = f"{down}::HUGEINT"
    return (
        f"CASE WHEN {dividend} >= 0 THEN {dividend} // {divisor}"
        f" ELSE -((-{dividend} + ({down - 1})::HUGEINT) // {divisor}) END"
    )


def outside_bounds(column: Column) -> str:
    """A condition: the value lies outside the declared bounds (for the admin's warning)."""
    code, name = quoted(code_name(column.name)), quoted(column.name)
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
    """Branches for values at or beyond the bounds, in the column's own type: no arithmetic on extremes.

    A bound may lie beyond everything that the type can hold: then no value reaches it, or all do.
    """
    first, last = _span(column)
    name, held = quoted(column.name), []
    if lowest >= first:
        beyond = f"{name} <= {_literal(column, lowest)}" if lowest < last else "true"
        held.append(f"WHEN {beyond} THEN {column.low_code}")
    if highest <= last:
        beyond = f"{name} >= {_literal(column, highest)}" if highest > first else "true"
        held.append(f"WHEN {beyond} THEN {column.high_code}")
    return held


def _span(column: Column) -> tuple[int, int]:
    """The smallest and largest integer that the type's own grid holds; for days and times, well beyond the
    calendar that preparation lets in."""
    kind = column.type
    if kind.name == "DECIMAL":
        assert kind.precision is not None
        return 1 - 10**kind.precision, 10**kind.precision - 1
    edges = {"BOOLEAN": (0, 1), "DATE": (-2_000_000_000, 2_000_000_000), "TIMESTAMP": (-(9 * 10**18), 9 * 10**18)}
    return edges.get(kind.name, (-(2**63), 2**63 - 1))


def _literal(column: Column, integer: int) -> str:
    """An integer of the type's own grid as a literal of the type."""
    kind = column.type
    if kind.name == "DECIMAL":
        assert kind.scale is not None
        sign, digits = "-" if integer < 0 else "", str(abs(integer)).rjust(kind.scale + 1, "0")
        point = len(digits) - kind.scale
        return f"CAST('{sign}{digits[:point]}.{digits[point:] or '0'}' AS {kind})"
    if kind.name == "DATE":
        return f"(DATE '1970-01-01' + ({integer})::INTEGER)"  # infinite days lie beyond every other: the clamp has them
    if kind.name == "TIMESTAMP":
        return f"make_timestamp(({integer})::BIGINT)"
    if kind.name == "BOOLEAN":
        return str(integer > 0).lower()
    return f"({integer})::BIGINT"


def _double(value: Fraction) -> str:
    return f"({float(value)!r})::DOUBLE"
