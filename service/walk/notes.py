"""What an analyst should know about the numbers, from the plan and the declarations alone.

Intervals cover the noise. What bounding does to the numbers is bias, and the plan knows in advance where it
can happen: there it is said, in the answer and in the estimate.
"""

from math import prod

from service.core.plan import Key, Plan, Query
from service.core.schema import Schema
from service.walk.clipped import lost_words, rows_lost


def plan_notes(query: Query, schema: Schema) -> tuple[str, ...]:
    """Notes of every core, in the order of the cores."""
    return tuple(note for plan in query.cores for note in (*_groups(plan), *_rows(plan, schema)))


def _groups(plan: Plan) -> list[str]:
    """Declared groups are there whether anybody is in them or not, and nothing else is there."""
    if not plan.keys or not plan.keys_declared:
        return []
    names = ", ".join(_name(key) for key in plan.keys)
    domains = [key.domain for key in plan.keys if key.domain is not None]
    all_known = len(domains) == len(plan.keys)  # how many groups a public table has is not read here
    count = f"all {prod(len(domain) for domain in domains)}" if all_known else "all"
    return [f"Groups of {names} are declared: {count} are answered, also empty ones."]


def _name(key: Key) -> str:
    return ".".join(key.public) if key.domain is None and key.public is not None else key.label


def _rows(plan: Plan, schema: Schema) -> list[str]:
    """Where a unit may have more rows than count, the answer can be too low: by how much, where a profile tells."""
    bounds, proven, lost = plan.bounds, plan.row_bound, rows_lost(plan, schema)
    if lost == (0, 0) or (proven is not None and not proven.tables and proven.constant <= bounds.rows_per_unit):
        return []
    clipped = [
        each
        for each in plan.aggregates
        if each.function.bounded_in_rows and not (each.function.additive and each.argument in bounds.unit_sum)
    ]
    if not clipped:
        return []
    how = " (the root of the squares over groups)" if bounds.clip == "l2" else ""
    known = "" if lost is None else f" {lost_words(plan, schema.unit, lost)}"
    return [
        f"At most {bounds.rows_per_unit} rows of one {schema.unit} count{how}; the rows of one with more are scaled"
        f" down to that.{known} Intervals do not contain this: bounds.rows_per_unit moves it, against more noise."
    ]
