"""The emitter: a plan and what is needed of it, as engine statements.

The statements come from fixed templates around the binder's own tree (Plan.rows); nothing an analyst
wrote passes through as text. Contribution bounds are in clipping.py and kept_pairs.py, the engine's spelling in
spelling.py; one file per family of needs beside this one.
"""

from service.core.plan import (
    BoundsNeed,
    CandidatesNeed,
    DistinctNeed,
    HistogramNeed,
    KeysNeed,
    MomentsNeed,
    Need,
    Plan,
    UnitsNeed,
    UnitSumWeight,
    UnitTotalsNeed,
)
from service.engine.emit.distinct import distinct_statement, units_statement
from service.engine.emit.histograms import candidates_statement, histogram_statement
from service.engine.emit.keys import keys_statement
from service.engine.emit.moments import moments_statement
from service.engine.emit.spelling import Statement
from service.engine.emit.unit_totals import bounds_statement, unit_totals_statement

Emitted = tuple[tuple[Statement, tuple[Need, ...]], ...]


def emit(plan: Plan, needs: tuple[Need, ...], *, salt: int) -> Emitted:
    """Statements that together compute `needs`, each with the needs that it answers.

    `salt` is fresh and secret: it keys every choice of what a unit keeps. Sums of one weight share a
    statement, everything else has its own.
    """
    _check_domains(plan)
    statements: list[tuple[Statement, tuple[Need, ...]]] = []
    for group in by_statement(needs):
        statements.append((_statement(plan, group, salt), group))
    return tuple(statements)


def _statement(plan: Plan, group: tuple[Need, ...], salt: int) -> Statement:
    moments = tuple(need for need in group if isinstance(need, MomentsNeed))
    if moments:
        return moments_statement(plan, moments)
    (need,) = group
    match need:
        case HistogramNeed():
            return histogram_statement(plan, need)
        case CandidatesNeed():
            return candidates_statement(plan, need)
        case DistinctNeed():
            return distinct_statement(plan, need, salt)
        case UnitsNeed():
            return units_statement(plan, need, salt)
        case KeysNeed():
            return keys_statement(plan, need, salt)
        case BoundsNeed():
            return bounds_statement(plan, need)
        case UnitTotalsNeed():
            return unit_totals_statement(plan, need)
    raise AssertionError(f"no statement for {need}")


def by_statement(needs: tuple[Need, ...]) -> list[tuple[Need, ...]]:
    """Moments that agree on the weight, and on the clamp of every measure they share; others alone."""
    shared: list[list[MomentsNeed]] = []
    alone: list[tuple[Need, ...]] = []
    for need in dict.fromkeys(needs):
        if not isinstance(need, MomentsNeed):
            alone.append((need,))
            continue
        fitting = next((group for group in shared if _fits(need, group)), None)
        if fitting is None:
            shared.append([need])
        else:
            fitting.append(need)
    return [tuple(group) for group in shared] + alone


def _fits(need: MomentsNeed, group: list[MomentsNeed]) -> bool:
    if isinstance(need.weight, UnitSumWeight) or need.weight != group[0].weight:
        return False
    return all(
        _clamp(other) == _clamp(need) for other in group if other.measure == need.measure if _clamps(other, need)
    )


def _clamps(one: MomentsNeed, other: MomentsNeed) -> bool:
    return one.degree > 0 and other.degree > 0


def _clamp(need: MomentsNeed) -> tuple[int, int]:
    return need.low, need.high


def _check_domains(plan: Plan) -> None:
    """A value listed twice would count the same rows twice: sensitivity is claimed for distinct keys."""
    for domain in (*(key.domain for key in plan.keys), *(attribute.domain for attribute in plan.attributes)):
        assert domain is None or len(set(domain)) == len(domain), "a domain lists a value twice"
