"""From released primitives to aggregates: post-processing, free, and the same years later.

`primitives` maps the name of a Part (service/privacy/primitives/noised.py) to its noisy coordinates, an array of
(coordinates, groups), and the name of a Pick (service/privacy/primitives/chosen.py) to the chosen codes. Any aggregate
that those can express is derived here, so an AVG asked after a SUM and a COUNT is free.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np

from service.core.boundary import Array, KeyTable, ReleasedColumn, ReleasedTable
from service.core.plan import Aggregate, Measure, Plan
from service.core.schema import SqlType
from service.privacy.mechanisms.vectors import Row
from service.privacy.noise.exact_integers import as_float, combine
from service.privacy.noise.intervals import (
    CONFIDENCE,
    Floats,
    discrete_gaussian_half_width,
    discrete_laplace_half_width,
    fieller,
    laplace_half_width,
    normal_half_width,
    replica_count,
    replica_noise,
    replicas_between,
    spread,
)
from service.privacy.primitives.chosen import PICKS, pick_column, read_pick
from service.privacy.primitives.noised import EVERY_ROW, EVERY_UNIT, SHAPES, Part, read_part

COUNTS = ("count", "count_units", "count_distinct")
VARIANCES = ("var_pop", "var_samp", "stddev_pop", "stddev_samp")
BIGINT_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Coordinates:
    """A part with its released values, and the moments they give."""

    part: Part
    values: Array  # (coordinates, groups) integers

    def moment(self, row: Row) -> Floats:
        """Σ coefficient · coordinate / one: exact integers until the one division."""
        if self.values.dtype.kind == "f":  # merged by topup.py: no integers any more
            return np.array([float(c) for c in row]) @ self.values / self.part.one
        bottom = lcm(*(c.denominator for c in row))
        tops = [int(c * bottom) for c in row]
        total = combine(*zip(tops, self.values, strict=True))
        return as_float(total) / float(bottom * self.part.one)

    def noise_rows(self, *rows: Row) -> Floats:
        """(rows, coordinates) coefficients in units of one."""
        return np.array([[float(c) / self.part.one for c in row] for row in rows])

    @property
    def laplace(self) -> bool:
        return self.part.law == "laplace"


def count_row(part: Part, aggregate: Aggregate) -> Row:
    """The count that an aggregate means: of all rows, or of those that the part is about."""
    every = aggregate.function == "count" and aggregate.argument is None
    row = part.moments.rows if every and part.moments.rows is not None else part.moments.n
    assert row is not None
    return row


def sum_row(part: Part) -> Row | None:
    """Σw·x = t1 + origin·n as one combination of coordinates, or None where the part does not know it."""
    moments = part.moments
    if moments.t1 is None:
        return None
    if moments.n is None or moments.origin == 0:
        return moments.t1
    return tuple(t1 + moments.origin * n for t1, n in zip(moments.t1, moments.n, strict=True))


def linear_noise(part: Part, row: Row, step: Fraction, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Standard deviation and half-width of a linear combination, known before any data is seen."""
    sizes = [abs(float(c * step / part.one)) for c in row]
    std = sum(size * size * variance for size, variance in zip(sizes, part.variances, strict=True)) ** 0.5
    if part.one == 1 and len(row) == 1:  # whole numbers with small noise: the discrete law counts
        scale = float(part.scales[0])
        discrete = discrete_laplace_half_width if part.law == "laplace" else discrete_gaussian_half_width
        return std, float(discrete(scale, confidence)) * sizes[0]
    if part.law == "gaussian":
        return std, normal_half_width(confidence) * std
    scales = tuple(size * float(scale) for size, scale in zip(sizes, part.scales, strict=True))
    largest = max(scales)
    if largest == 0:
        return 0.0, 0.0
    return std, largest * laplace_half_width(tuple(scale / largest for scale in scales), confidence)


def rounded(values: Floats, widths: Floats | float) -> Floats:
    """Values without digits that the noise has made meaningless: two more than the width's first."""
    width = np.broadcast_to(np.asarray(widths, dtype=np.float64), values.shape)
    known = np.isfinite(width) & (width > 0)
    digits = np.where(known, 2 - np.floor(np.log10(np.where(known, width, 1.0))), 0.0)
    digits = np.clip(digits, -300, 300)
    power = 10.0 ** np.abs(digits)
    with np.errstate(over="ignore", invalid="ignore"):
        fine, coarse = np.rint(values * power) / power, np.rint(values / power) * power
    result = np.where(digits >= 0, fine, coarse)
    return np.where(known & np.isfinite(result), result, values)


def whole_numbers(values: Floats) -> Array:
    """Nearest int64; what BIGINT can not hold is held at its ends."""
    inside = np.clip(np.rint(values), -(2.0**63), 2.0**63 - 1024)
    result = inside.astype(np.int64)
    result[values >= 2.0**63 - 512] = BIGINT_MAX
    return result


def in_type(values: Floats, type_: SqlType, width: float) -> Array:
    if type_.name == "BIGINT":
        return whole_numbers(values)
    if type_.name == "DECIMAL":
        return np.round(values, type_.scale or 0)
    return rounded(values, width)


def linear_column(at: Coordinates, row: Row, step: Fraction, type_: SqlType) -> ReleasedColumn:
    """COUNT or SUM: the released value, with the same interval around every cell."""
    values = at.moment(row) * float(step)
    std, half = linear_noise(at.part, row, step)
    return ReleasedColumn(in_type(values, type_, half), values - half, values + half, std, half)


def mean_of(n: Floats, t1: Floats, part: Part, step: Fraction) -> Floats:
    """AVG = origin + t1/n, inside the bounds; n below one row divides as one row."""
    code = float(part.moments.origin) + t1 / np.maximum(n, 1.0)
    result: Floats = np.clip(code, part.low, part.high) * float(step)
    return result


def variance_of(n: Floats, t1: Floats, t2: Floats, part: Part, *, samples: bool) -> Floats:
    """VAR in codes², inside [0, (width/2)²]; sample variance times n/(n-1)."""
    count = np.maximum(n, 1.0)
    mean = t1 / count
    plain = np.clip(t2 / count - mean * mean, 0.0, (part.at.width / 2) ** 2)
    result: Floats = plain * (count / np.maximum(1.0, count - 1)) if samples else plain
    return result


def mean_column(at: Coordinates, step: Fraction) -> ReleasedColumn:
    """AVG with Fieller's interval: where n is not clearly above zero it is the whole range."""
    moments = at.part.moments
    assert moments.n is not None and moments.t1 is not None
    n, t1 = at.moment(moments.n), at.moment(moments.t1)
    rows = at.noise_rows(moments.n, moments.t1)
    variances = np.array(at.part.variances)
    covariance = (rows * variances) @ rows.T
    ratio = np.clip(t1 / np.maximum(n, 1.0), -at.part.at.width, at.part.at.width)
    std, half = spread(rows[1][:, None] - ratio * rows[0][:, None], variances, laplace=at.laplace)
    factor = half / np.where(std > 0, std, 1.0)
    low, high = fieller(n=n, t1=t1, covariance=covariance, factor=factor)
    origin = float(moments.origin)
    value = mean_of(n, t1, at.part, step)
    low = np.clip(origin + low, at.part.low, at.part.high) * float(step)
    high = np.clip(origin + high, at.part.low, at.part.high) * float(step)
    inside = np.clip(rounded(value, (high - low) / 2), at.part.low * float(step), at.part.high * float(step))
    return ReleasedColumn(inside, low, high)


def variance_column(at: Coordinates, step: Fraction, function: str) -> ReleasedColumn:
    """VAR and STDDEV, with the interval of VAR by the delta method and STDDEV's as its square root."""
    moments = at.part.moments
    assert moments.n is not None and moments.t1 is not None and moments.t2 is not None
    n, t1, t2 = at.moment(moments.n), at.moment(moments.t1), at.moment(moments.t2)
    samples = function.endswith("samp")
    value = variance_of(n, t1, t2, at.part, samples=samples)
    count = np.maximum(n, 1.0)
    mean, square = t1 / count, t2 / count
    rows = at.noise_rows(moments.n, moments.t1, moments.t2)
    slopes = np.stack([(2 * mean * mean - square) / count, -2 * mean / count, 1 / count])
    _, half = spread(np.einsum("rc,rg->cg", rows, slopes), np.array(at.part.variances), laplace=at.laplace)
    n_half = linear_noise(at.part, moments.n, Fraction(1))[1]
    half = np.where(n > n_half, half, np.inf)  # too few rows to divide by: anything is possible
    scale = count / np.maximum(1.0, count - 1) if samples else np.ones_like(count)
    ceiling = (at.part.at.width / 2) ** 2 * scale
    low, high = np.clip(value - half * scale, 0.0, ceiling), np.clip(value + half * scale, 0.0, ceiling)
    unit = float(step) ** 2
    if function.startswith("stddev"):
        unit = float(step)
        value, low, high = np.sqrt(value), np.sqrt(low), np.sqrt(high)
    value, low, high = value * unit, low * unit, high * unit
    return ReleasedColumn(rounded(value, (high - low) / 2), low, high)


def serves(part: Part, aggregate: Aggregate) -> bool:
    """Can this part express the aggregate?"""
    function, moments = aggregate.function, part.moments
    if function == "count_units":
        return part.source == EVERY_UNIT
    if function == "count_distinct":
        return part.shape == "distinct" and part.source == aggregate.argument
    if function == "count" and aggregate.argument is None and moments.rows is not None:
        return True
    if part.source != (aggregate.argument or EVERY_ROW) or part.shape in ("units", "distinct"):
        return False
    if function == "count":
        return moments.n is not None
    if function == "sum":
        return sum_row(part) is not None
    if function == "avg":
        return moments.n is not None and moments.t1 is not None
    return function in VARIANCES and moments.t2 is not None


def serving(parts: Iterable[Part], aggregate: Aggregate) -> Part | None:
    """The part to derive an aggregate from: a capped sum where one was paid for, else the least noise."""
    able = [part for part in parts if serves(part, aggregate)]
    if len(able) == 1:
        return able[0]

    def preference(part: Part) -> tuple[bool, float]:
        row = sum_row(part) if aggregate.function == "sum" else count_row(part, aggregate)
        assert row is not None
        return part.shape != "capped", linear_noise(part, row, Fraction(1))[0]

    return min(able, key=preference, default=None)


def measure_of(plan: Plan, aggregate: Aggregate) -> Measure | None:
    return next((m for m in plan.measures if m.name == aggregate.argument), None)


def part_column(at: Coordinates, aggregate: Aggregate, step: Fraction) -> ReleasedColumn:
    function = aggregate.function
    if function in COUNTS:
        return linear_column(at, count_row(at.part, aggregate), Fraction(1), aggregate.type)
    if function == "sum":
        row = sum_row(at.part)
        assert row is not None
        return linear_column(at, row, step, aggregate.type)
    if function == "avg":
        return mean_column(at, step)
    return variance_column(at, step, function)


def replica_values(at: Coordinates, noise: Floats, aggregate: Aggregate, step: Fraction) -> Floats:
    """The aggregate over (replicas, groups), each replica with fresh noise on the same released values."""
    moments, function = at.part.moments, aggregate.function

    def jittered(row: Row) -> Floats:
        jitter = np.tensordot(at.noise_rows(row)[0], noise, axes=1)
        result: Floats = at.moment(row)[None, :] + jitter
        return result

    if function in COUNTS:
        return jittered(count_row(at.part, aggregate))
    if function == "sum":
        row = sum_row(at.part)
        assert row is not None
        return jittered(row) * float(step)
    assert moments.n is not None and moments.t1 is not None
    n, t1 = jittered(moments.n), jittered(moments.t1)
    if function == "avg":
        return mean_of(n, t1, at.part, step)
    assert moments.t2 is not None
    codes = variance_of(n, t1, jittered(moments.t2), at.part, samples=function.endswith("samp"))
    return np.sqrt(codes) * float(step) if function.startswith("stddev") else codes * float(step) ** 2


def derive(
    plan: Plan, keys: KeyTable, primitives: Mapping[str, Array], *, replicas: frozenset[str] = frozenset()
) -> ReleasedTable:
    """Every aggregate of the plan from released primitives; replicas for the aggregates named.

    Replicas of one part share their noise over all aggregates, so that arithmetic over them is right.
    An aggregate that the primitives can not express is a bug of the caller: `derivable` tells.
    """
    parts = {read_part(name): values for name, values in primitives.items() if name.split(" ")[0] in SHAPES}
    picks = {read_pick(name): values for name, values in primitives.items() if name.split(" ")[0] in PICKS}
    columns: dict[str, ReleasedColumn] = {}
    copies: dict[str, Floats] = {}
    jitter: dict[Part, Floats] = {}
    notes: list[str] = []
    for aggregate in plan.aggregates:
        measure = measure_of(plan, aggregate)
        step = measure.step if measure else Fraction(1)
        part = serving(parts, aggregate)
        if part is None:
            column, note = pick_column(plan, aggregate, picks)
            columns[aggregate.name] = column
            notes.append(note)
            if aggregate.name in replicas and has_numbers(column):
                ends = (column.values.astype(np.float64), column.low, column.high)
                copies[aggregate.name] = replicas_between(*ends, replica_count(keys.size))
            continue
        at = Coordinates(part, parts[part])
        columns[aggregate.name] = part_column(at, aggregate, step)
        if aggregate.name in replicas:
            shape = (replica_count(keys.size), keys.size)
            if part not in jitter:
                jitter[part] = replica_noise(part.variances, shape, laplace=at.laplace)
            copies[aggregate.name] = replica_values(at, jitter[part], aggregate, step)
    return ReleasedTable(keys, columns, copies, primitives, tuple(dict.fromkeys(filter(None, notes))))


def has_numbers(column: ReleasedColumn) -> bool:
    """Is this a column of numbers whose interval is known? Dates and names can not be simulated."""
    plain = all(values.dtype.kind in "if" for values in (column.values, column.low, column.high))
    return plain and bool(np.isfinite(column.low).all())


def derivable(plan: Plan, names: Iterable[str]) -> bool:
    """Do these primitives express every aggregate of the plan?"""
    listed = list(names)
    parts = [read_part(name) for name in listed if name.split(" ")[0] in SHAPES]
    picks = [read_pick(name) for name in listed if name.split(" ")[0] in PICKS]
    return all(
        serving(parts, aggregate) is not None or any(pick.serves(aggregate) for pick in picks)
        for aggregate in plan.aggregates
    )
