"""Values and intervals of what follows from noised moments: counts, sums, means, variances.

service/core/derivations.py says how a value follows from n, t1 and t2; here the noise of those is known, and so how far
off the value may be. Post-processing: nothing here sees private data.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import lcm, sqrt
from typing import TypeVar

import numpy as np

from service.core.boundary import Array, Floats, ReleasedColumn
from service.core.derivations import ONCE, Coefficients, Linear, Ratio, Variance
from service.core.plan import Aggregate
from service.core.schema import SqlType
from service.privacy.mechanisms.vectors import Row
from service.privacy.noise.exact_integers import as_float, combine
from service.privacy.noise.intervals import CONFIDENCE, fieller
from service.privacy.primitives.noised import Part

BIGINT_MAX = 2**63 - 1

Coefficient = TypeVar("Coefficient", Fraction, float)


@dataclass(frozen=True, slots=True)
class Coordinates:
    """A part with its released values, and the moments they give."""

    part: Part
    values: Array  # (coordinates, groups) integers

    def moment(self, row: Row) -> Floats:
        """Σ coefficient · coordinate / one: exact integers until the one division."""
        if self.values.dtype.kind == "f":  # merged by refine.py: no integers any more
            return np.array([float(c) for c in row]) @ self.values / self.part.one
        bottom = lcm(*(c.denominator for c in row))
        tops = [int(c * bottom) for c in row]
        total = combine(*zip(tops, self.values, strict=True))
        return as_float(total) / float(bottom * self.part.one)

    def noise_rows(self, rows: tuple[Row, ...]) -> Floats:
        """(rows, coordinates) coefficients in units of one."""
        return np.array([[float(c) / self.part.one for c in row] for row in rows])


def terms_of(
    part: Part, combination: tuple[Coefficient, Coefficient, Coefficient]
) -> list[tuple[Coefficient, Row]] | None:
    """The moments that a combination of n, t1 and t2 adds up, or None where the part does not know one of them."""
    moments = part.moments
    terms = [(c, row) for c, row in zip(combination, (moments.n, moments.t1, moments.t2), strict=True) if c]
    known = [(c, row) for c, row in terms if row is not None]
    return known if len(known) == len(terms) else None


def row_of(part: Part, combination: Coefficients) -> Row | None:
    """A combination of moments as one of coordinates, or None where the part does not know it."""
    terms = terms_of(part, combination)
    if terms is None:
        return None
    (first, row), *rest = terms
    found = row if first == 1 else tuple(first * part for part in row)
    for c, more in rest:
        found = tuple(total + c * part for total, part in zip(found, more, strict=True))
    return found


def rows_read(part: Part, aggregate: Aggregate) -> list[Row | None]:
    """What an aggregate reads of a part. The count of all rows may stand beside the moments of some measure."""
    if aggregate.argument is None and part.moments.rows is not None:
        return [part.moments.rows]
    return [row_of(part, read) for read in aggregate.function.moments.reads(part.moments.origin)]


def knows_all(part: Part, aggregate: Aggregate) -> bool:
    """Does the part know every moment that the aggregate reads?"""
    reads = aggregate.function.moments.reads(part.moments.origin)
    return all(terms_of(part, read) is not None for read in reads)


def known_rows(part: Part, derivation: Ratio | Variance) -> tuple[Row, ...]:
    rows = [row_of(part, combination) for combination in derivation.combinations(part.moments.origin)]
    known = tuple(row for row in rows if row is not None)
    assert len(known) == len(rows), "this part does not know all moments"
    return known


def first_row(part: Part, aggregate: Aggregate) -> Row:
    """The combination that a count or sum is, or the count that others divide by."""
    moments = part.moments
    every = moments.rows if aggregate.argument is None else None
    row = every or row_of(part, aggregate.function.moments.reads(moments.origin)[0])
    assert row is not None, "this part does not know that moment"
    return row


def linear_noise(part: Part, row: Row, step: Fraction, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Standard deviation and half-width of a linear combination, known before any data is seen."""
    sizes = tuple(abs(float(c * step / part.one)) for c in row)
    std = part.law.deviation(sizes, part.scales)
    if part.one == 1 and len(row) == 1:  # whole numbers with small noise: the discrete law counts
        return std, float(part.law.whole_half_width(part.scales[0], confidence)) * sizes[0]
    return std, part.law.half_width(sizes, part.scales, confidence)


def typical_noise(part: Part, derivation: Ratio | Variance, rows: float) -> float:
    """Deviation of a ratio or a variance in a typical group of so many rows, in codes; to first order in the noise."""
    typical = derivation.typical(part.moments.origin, part.at)
    terms = terms_of(part, typical.slopes)
    assert terms is not None, "this part does not know all moments"
    coordinates = range(part.shape.coordinates)
    moved = [sum(slope * float(row[i]) for slope, row in terms) / (part.one * rows) for i in coordinates]
    std = sqrt(sum(slope * slope * variance for slope, variance in zip(moved, part.variances, strict=True)))
    return std / (2 * sqrt(max(typical.value, 1e-300))) if derivation.root else std


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


def moments_column(at: Coordinates, aggregate: Aggregate, step: Fraction) -> ReleasedColumn:
    """An aggregate of released moments, with its interval."""
    derivation = aggregate.function.moments
    match derivation:
        case Linear():
            return linear_column(at, first_row(at.part, aggregate), step**derivation.power, aggregate.type)
        case Ratio():
            return ratio_column(at, derivation, float(step) ** derivation.power)
        case Variance():
            return variance_column(at, derivation, float(step) ** derivation.power)


def linear_column(at: Coordinates, row: Row, step: Fraction, type_: SqlType) -> ReleasedColumn:
    """The released value, with the same interval around every cell."""
    values = at.moment(row) * float(step)
    std, half = linear_noise(at.part, row, step)
    return ReleasedColumn(in_type(values, type_, half), values - half, values + half, std, half)


def ratio_column(at: Coordinates, derivation: Ratio, unit: float) -> ReleasedColumn:
    """A ratio with Fieller's interval: where n is not clearly above zero it is the whole range."""
    part, origin = at.part, at.part.moments.origin
    n_row, top_row = known_rows(part, derivation)
    n, top = at.moment(n_row), at.moment(top_row)
    rows, variances = at.noise_rows((n_row, top_row)), np.array(part.variances)
    covariance = (rows * variances) @ rows.T
    reach = float(derivation.reach(part.at))
    ratio = np.clip(top / np.maximum(n, 1.0), -reach, reach)
    std, half = part.law.spread(rows[1][:, None] - ratio * rows[0][:, None], variances)
    factor = half / np.where(std > 0, std, 1.0)
    ends = fieller(n=n, t1=top, covariance=covariance, factor=factor)
    offset = float(derivation.offset(origin))
    low, high = (derivation.finished(offset + end, part.at) * unit for end in ends)
    value = derivation.value((n, top), origin, part.at) * unit
    least, most = (float(end) * unit for end in derivation.within(part.at))
    return ReleasedColumn(np.clip(rounded(value, (high - low) / 2), least, most), low, high)


def variance_column(at: Coordinates, derivation: Variance, unit: float) -> ReleasedColumn:
    """VAR and STDDEV, with the interval of VAR by the delta method and STDDEV's as its square root."""
    part = at.part
    rows = known_rows(part, derivation)
    moments = tuple(at.moment(row) for row in rows)
    value, n = derivation.squared(moments, part.at), moments[0]
    slopes = np.einsum("rc,rg->cg", at.noise_rows(rows), derivation.slopes(moments))
    _, half = part.law.spread(slopes, np.array(part.variances))
    half = np.where(n > linear_noise(part, rows[0], ONCE)[1], half, np.inf)  # too few rows: anything is possible
    factor = derivation.factor(n)
    ceiling = (part.at.width / 2) ** 2 * factor
    low, high = np.clip(value - half * factor, 0.0, ceiling), np.clip(value + half * factor, 0.0, ceiling)
    if derivation.root:
        value, low, high = np.sqrt(value), np.sqrt(low), np.sqrt(high)
    value, low, high = value * unit, low * unit, high * unit
    return ReleasedColumn(rounded(value, (high - low) / 2), low, high)


def replica_values(at: Coordinates, noise: Floats, aggregate: Aggregate, step: Fraction) -> Floats:
    """The aggregate over (replicas, groups), each replica with fresh noise on the same released values."""
    derivation, part = aggregate.function.moments, at.part
    unit = float(step) ** derivation.power

    def jittered(row: Row) -> Floats:
        jitter = np.tensordot(at.noise_rows((row,))[0], noise, axes=1)
        result: Floats = at.moment(row)[None, :] + jitter
        return result

    if isinstance(derivation, Linear):
        return jittered(first_row(part, aggregate)) * unit
    moments = tuple(jittered(row) for row in known_rows(part, derivation))
    return derivation.value(moments, part.moments.origin, part.at) * unit
