"""Mechanisms in words, for receipts and estimates."""

from fractions import Fraction
from math import sqrt

from service.core.derivations import Rank
from service.core.plan import ONE
from service.privacy.mechanisms.selection import Rule
from service.privacy.pricing.priced import PricedPlan
from service.privacy.primitives.chosen import ChosenValue, QuantileTree
from service.privacy.primitives.noised import EVERY_ROW, EVERY_UNIT, Part


def label_of(plan: PricedPlan, source: str) -> str:
    if source == EVERY_ROW:
        return "all rows"
    if source == EVERY_UNIT:
        return "units"
    labels = {measure.name: measure.label for measure in plan.plan.measures}
    labels |= {attribute.name: attribute.label for attribute in plan.plan.attributes}
    return labels[source]


def step_of(plan: PricedPlan, part: Part) -> Fraction:
    """What one code is worth in the first coordinate, whose noise is told: values, their squares, or rows."""
    measure = next((m for m in plan.plan.measures if m.name == part.source), None)
    return Fraction(1) if measure is None else measure.step**part.vector.first


def part_words(plan: PricedPlan, part: Part) -> str:
    unit = float(step_of(plan, part)) / part.one
    noise = part.law.words(part.scales[0], unit)
    beside = " with the count of all rows" if part.vector.with_rows else ""
    return f"{part.vector.words} over {label_of(plan, part.source)}{beside}: {noise}"


def draw_words(plan: PricedPlan, value: ChosenValue) -> str:
    what = f"{value.spec.name} {value.p}" if value.spec.choice.rank is Rank.ASKED else value.spec.name
    around = f"; noisy counts around it, {value.law.paid_in} {float(value.around):.4g}" if value.around else ""
    return (
        f"{what} of {label_of(plan, value.source)}: exponential mechanism over {value.bins} bins,"
        f" epsilon {float(value.epsilon):.4g}{around}"
    )


def tree_words(plan: PricedPlan, tree: QuantileTree) -> str:
    ranks = ", ".join(str(value.p) for value in tree.values)
    at = tree.mechanism
    return (
        f"quantiles {ranks} of {label_of(plan, tree.values[0].source)}: tree of noisy counts,"
        f" {at.levels} levels of {at.branch}, {at.noise.words} noise,"
        f" standard deviation {sqrt(at.noise.variance) / ONE:.4g}"
    )


def keys_words(rule: Rule) -> str:
    counted = {
        "units": "people",
        "weighted": "people, weighted by their groups",
        "shared": "people, shared between their groups",
        "rows": "people's first rows",
    }
    return f"group keys: {rule.noise.words} noise on {counted[rule.counting]}, threshold {rule.people_needed:.4g}"


def describe(plan: PricedPlan) -> list[str]:
    """One line for each thing that will be drawn."""
    lines = [keys_words(plan.keys_stage[1])] if plan.keys_stage else []
    for draw in plan.bounds_stage:
        what = "bounds" if draw.demand.kind == "bounds" else "the cap of a unit's sum"
        lines.append(f"{what} of {label_of(plan, draw.demand.source)}, found privately")
    lines += [part_words(plan, part) for part in plan.parts.values()]
    lines += [draw_words(plan, value) for value in plan.draws.values()]
    return lines + [tree_words(plan, tree) for tree in plan.trees.values()]
