"""How noisy each aggregate will be, from declarations alone."""

from fractions import Fraction
from math import log, prod, sqrt

from service.core.plan import Aggregate, Plan
from service.privacy.noise.intervals import normal_half_width
from service.privacy.pricing.priced import Prediction
from service.privacy.primitives.chosen import Pick
from service.privacy.primitives.derive import COUNTS, count_row, linear_noise, measure_of, serving, sum_row
from service.privacy.primitives.noised import Part


def rows_per_group(plan: Plan) -> float | None:
    """Rows that a group is expected to have, from what was declared; None when nothing was."""
    if plan.expected_rows is None:
        return None
    groups = plan.expected_groups
    if not plan.keys:
        groups = 1
    elif groups is None and all(key.domain is not None for key in plan.keys):
        groups = prod(len(key.domain or ()) for key in plan.keys)
    return None if groups is None else max(1.0, plan.expected_rows / max(1, groups))


def predict(plan: Plan, parts: list[Part], aggregate: Aggregate, confidence: float = 0.95) -> Prediction:
    """COUNT and SUM exactly; AVG, VAR and STDDEV for the expected rows of a group, None without them."""
    part = serving(parts, aggregate)
    if part is None:
        return Prediction()
    measure = measure_of(plan, aggregate)
    step = measure.step if measure else Fraction(1)
    if aggregate.function in COUNTS:
        return Prediction(*linear_noise(part, count_row(part, aggregate), Fraction(1), confidence))
    if aggregate.function == "sum":
        row = sum_row(part)
        assert row is not None
        return Prediction(*linear_noise(part, row, step, confidence))
    rows = rows_per_group(plan)
    if rows is None:
        return Prediction()
    std = ratio_std(part, aggregate.function, rows) * float(step) ** (2 if aggregate.function.startswith("var") else 1)
    return Prediction(std, normal_half_width(confidence) * std)


def ratio_std(part: Part, function: str, rows: float) -> float:
    """Deviation of AVG with the mean halfway to a bound, or of VAR (STDDEV) for values spread evenly, in codes.

    First order in noise over rows: AVG moves by (t1 - r·n)/rows, VAR by (t2 - v·n)/rows about the centre.
    """
    moments = part.moments
    assert moments.n is not None and moments.t1 is not None
    half = part.at.width / 2
    row, shift = moments.t1, half / 2
    if function != "avg":
        assert moments.t2 is not None
        row, shift = moments.t2, half * half / 3
    slopes = [(float(c) - shift * float(n)) / (part.one * rows) for c, n in zip(row, moments.n, strict=True)]
    std = sqrt(sum(slope * slope * variance for slope, variance in zip(slopes, part.variances, strict=True)))
    return std / (2 * sqrt(max(half * half / 3, 1e-300))) if function.startswith("stddev") else std


def log_error(plan: Plan, parts: list[Part], picks: list[Pick], aggregate: Aggregate) -> float:
    """A figure to compare two prices of one query by: the logarithm of what makes the aggregate wrong."""
    part = serving(parts, aggregate)
    if part is None:
        pick = next(pick for pick in picks if pick.serves(aggregate))
        return log(pick.rank_error_95)
    if aggregate.function in (*COUNTS, "sum"):
        width = predict(plan, parts, aggregate).half_width_95
        return log(max(width or 0.0, 1e-300))
    return log(max(ratio_std(part, aggregate.function, 1.0), 1e-300))
