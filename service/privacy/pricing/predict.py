"""How noisy each aggregate will be, from declarations alone."""

from math import log, prod

from service.core.derivations import Linear
from service.core.plan import Aggregate, Plan
from service.privacy.noise.intervals import normal_half_width
from service.privacy.pricing.priced import Prediction
from service.privacy.primitives.chosen import ChosenValue
from service.privacy.primitives.derive import argument_step, part_for
from service.privacy.primitives.from_moments import first_row, linear_noise, typical_noise
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
    """Counts and sums exactly; ratios and variances for the expected rows of a group, nothing without those."""
    part = part_for(parts, aggregate)
    if part is None:
        return Prediction()
    derivation, step = aggregate.function.moments, argument_step(plan, aggregate)
    if isinstance(derivation, Linear):
        row = first_row(part, aggregate)
        return Prediction(*linear_noise(part, row, step**derivation.power, confidence))
    rows = rows_per_group(plan)
    if rows is None:
        return Prediction()
    std = typical_noise(part, derivation, rows) * float(step) ** derivation.power
    return Prediction(std, normal_half_width(confidence) * std)


def log_error(plan: Plan, parts: list[Part], chosen: list[ChosenValue], aggregate: Aggregate) -> float:
    """A figure to compare two prices of one query by: the logarithm of what makes the aggregate wrong."""
    part = part_for(parts, aggregate)
    if part is None:
        return log(next(value for value in chosen if value.serves(aggregate)).rank_error_95)
    derivation = aggregate.function.moments
    if isinstance(derivation, Linear):
        width = predict(plan, parts, aggregate).half_width_95
        return log(max(width or 0.0, 1e-300))
    return log(max(typical_noise(part, derivation, 1.0), 1e-300))
