"""Mechanisms in words, for receipts and estimates."""

from fractions import Fraction
from math import sqrt

from service.core.plan import ONE
from service.privacy.mechanisms.selection import Gaussian, Laplace, Rule, TruncatedLaplace
from service.privacy.pricing.priced import PricedPlan
from service.privacy.primitives.chosen import Pick, Tree
from service.privacy.primitives.noised import EVERY_ROW, EVERY_UNIT, WITH_ROWS, Part

AMOUNT = {"laplace": "epsilon", "gaussian": "rho"}
WHAT = {
    "count": "weighted count of rows",
    "sum": "sum",
    "capped": "sum with a cap per unit",
    "mean": "two complementary sums (count, sum and mean from joint noise)",
    "variance": "three complementary sums (count, sum, mean and variance from joint noise)",
    "centred-mean": "count and centred sum",
    "centred-variance": "count, centred sum and centred squares",
    "units": "distinct units",
    "distinct": "distinct values",
}


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
    shape = part.shape.removesuffix(WITH_ROWS)
    if measure is None or shape.startswith(("count", "centred")):
        return Fraction(1)
    return measure.step**2 if shape == "variance" else measure.step


def part_words(plan: PricedPlan, part: Part) -> str:
    unit = float(step_of(plan, part)) / part.one
    if part.law == "laplace":
        noise = f"discrete Laplace noise, scale {float(part.scales[0]) * unit:.4g}"
    else:
        noise = f"discrete Gaussian noise, standard deviation {sqrt(float(part.scales[0])) * unit:.4g}"
    beside = " with the count of all rows" if part.shape.endswith(WITH_ROWS) else ""
    what = WHAT[part.shape.removesuffix(WITH_ROWS)]
    return f"{what} over {label_of(plan, part.source)}{beside}: {noise}"


def pick_words(plan: PricedPlan, pick: Pick) -> str:
    what = f"quantile {pick.p}" if pick.function == "quantile" else pick.function
    around = f"; noisy counts around it, {AMOUNT[pick.law]} {float(pick.around):.4g}" if pick.around else ""
    return (
        f"{what} of {label_of(plan, pick.source)}: exponential mechanism over {pick.bins} bins,"
        f" epsilon {float(pick.epsilon):.4g}{around}"
    )


def tree_words(plan: PricedPlan, tree: Tree) -> str:
    ranks = ", ".join(str(pick.p) for pick in tree.picks)
    at = tree.mechanism
    law = "Laplace" if at.law == "laplace" else "Gaussian"
    return (
        f"quantiles {ranks} of {label_of(plan, tree.picks[0].source)}: tree of noisy counts,"
        f" {at.levels} levels of {at.branch}, discrete {law} noise, standard deviation {sqrt(at.variance) / ONE:.4g}"
    )


def keys_words(rule: Rule) -> str:
    law = {TruncatedLaplace: "truncated Laplace", Laplace: "discrete Laplace", Gaussian: "discrete Gaussian"}
    counted = {
        "units": "people",
        "weighted": "people, weighted by their groups",
        "shared": "people, shared between their groups",
        "rows": "people's first rows",
    }
    return f"group keys: {law[type(rule.law)]} noise on {counted[rule.counting]}, threshold {rule.people_needed:.4g}"


def describe(plan: PricedPlan) -> list[str]:
    """One line for each thing that will be drawn."""
    lines = [keys_words(plan.keys_stage[1])] if plan.keys_stage else []
    for draw in plan.bounds_stage:
        what = "bounds" if draw.demand.kind == "bounds" else "the cap of a unit's sum"
        lines.append(f"{what} of {label_of(plan, draw.demand.source)}, found privately")
    lines += [part_words(plan, part) for part in plan.parts.values()]
    lines += [pick_words(plan, pick) for pick in plan.picks.values()]
    return lines + [tree_words(plan, tree) for tree in plan.trees.values()]
