"""Which primitives a core needs, and how the budget divides over them. Pure; no amounts, no data.

The shapes are fixed by what is wanted of a measure, because for each want one shape has the smallest
predicted error whatever the amount (MECHANISMS section 3):
- only COUNT: the count. Only SUM: the plain sum; joint noise would add low² to max(|low|, |high|)².
- COUNT, AVG or both beside SUM: joint sums under Laplace, (n, centred sum) under Gaussian noise. Both beat
  two primitives at half the budget: low² + high² <= 2·max² < 4·max².
- VAR or STDDEV as well: the three joint sums; under Gaussian noise the squares come free.
- COUNT(*) as well: one more coordinate of such a shape, at no cost.
- `unit_sum` on a measure whose SUM is wanted: the capped sum, where its cap is below what rows and range
  imply; beside other aggregates only where half the budget still makes it better.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import log, sqrt
from typing import Literal

from service.core.errors import LossOutOfRange
from service.core.plan import Aggregate, Loss, Measure, Plan, Query
from service.privacy.mechanisms.tree import CountTree
from service.privacy.mechanisms.vectors import Range
from service.privacy.primitives.chosen import MEAN_OF_NORMAL, draw_error, grid
from service.privacy.primitives.noised import EVERY_ROW, EVERY_UNIT, Law

MOMENTS = ("count", "sum", "avg", "var_pop", "var_samp", "stddev_pop", "stddev_samp")
CHOSEN = ("quantile", "min", "max", "mode")

BOUNDS_SHARE = Fraction(1, 4)  # of a measure's budget, on top, to find its bounds
AROUND = {"quantile": Fraction(1, 3), "min": Fraction(1, 5), "max": Fraction(1, 5)}  # of its budget, for the interval
TOTALS_SHARE = Fraction(1, 4)  # of a sum's budget to find its cap


@dataclass(frozen=True, slots=True)
class Demand:
    """Something to release. `weight` is its share of the budget beside the other demands.

    `family` as on Measure: demands of one family in different members are charged once (see `divide`).
    """

    kind: Literal[
        "moments", "sum", "capped", "units", "distinct", "pick", "bracket", "tree", "bounds", "totals", "keys"
    ]  # fmt: skip
    source: str
    weight: Fraction
    degree: int = 0
    function: str = ""
    p: Fraction = Fraction(0)
    ranks: tuple[Fraction, ...] = ()  # the quantiles of a tree
    rows: bool = False  # COUNT(*) rides along
    family: tuple[str, str] | None = None


def output_weights(query: Query, loss: Loss, core: int) -> dict[str, Fraction]:
    """Per aggregate of a core: the largest weight of an output that reads it; 1 where nothing was said."""
    for name in loss.weights:
        if all(output.name != name for output in query.outer.outputs):
            raise LossOutOfRange(f"weights names {name!r}, which is not an output of the query", {"field": "weights"})
    weights: dict[str, Fraction] = {}
    for output in query.outer.outputs:
        weight = loss.weights.get(output.name, Fraction(1))
        if weight <= 0:
            raise LossOutOfRange(f"the weight of {output.name!r} must be above zero", {"field": "weights"})
        for at, aggregate in output.uses:
            if at == core:
                weights[aggregate] = max(weight, weights.get(aggregate, Fraction(0)))
    return weights


def cap_code(plan: Plan, measure: Measure) -> int | None:
    """The declared cap of a unit's sum in codes, at least 1; None when it must be found."""
    cap = plan.bounds.unit_sum[measure.name]
    return None if cap is None else max(1, int(cap / measure.step))


def cap_pays(plan: Plan, measure: Measure, *, alone: bool) -> bool:
    """Is a capped sum less noisy than the sum that rows and range imply?"""
    if measure.name not in plan.bounds.unit_sum:
        return False
    cap = cap_code(plan, measure)
    if cap is None:
        return True
    at, rows = Range(measure.low, measure.high), plan.bounds.rows_per_unit
    if alone:
        return cap < rows * at.magnitude
    return 4 * cap * cap < rows * rows * (at.low**2 + at.high**2)


def measure_demands(plan: Plan, measure: Measure, wanted: Mapping[str, Fraction], law: Law) -> list[Demand]:
    """The demands of one measure; `wanted` maps functions to weights."""
    demands = []
    moments = {function: weight for function, weight in wanted.items() if function in MOMENTS}
    if "sum" in moments and cap_pays(plan, measure, alone=len(moments) == 1):
        weight = moments.pop("sum")
        found = cap_code(plan, measure) is None
        if found:
            demands.append(Demand("totals", measure.name, weight * TOTALS_SHARE))
        demands.append(Demand("capped", measure.name, weight * (1 - TOTALS_SHARE) if found else weight, degree=1))
    if set(moments) == {"sum"}:
        demands.append(Demand("sum", measure.name, moments["sum"], degree=1, family=measure.disjoint))
    elif moments:
        degree = 2 if any(name.startswith(("var", "std")) for name in moments) else int(set(moments) != {"count"})
        parts = 2 if law == "gaussian" and degree else 1  # n and the sum have noise of their own there
        weight = max(moments.values()) * parts
        demands.append(Demand("moments", measure.name, weight, degree=degree, family=measure.disjoint))
    return demands


def pick_demands(plan: Plan, law: Law, wanted: list[tuple[Aggregate, Fraction]]) -> list[Demand]:
    """A draw for each chosen value and noisy counts around it for its interval; one tree of noisy counts for
    all quantiles of a measure where that is better. A mode has no interval: it is a name, not an amount."""
    families = {measure.name: measure.disjoint for measure in plan.measures}
    demands = []
    for measure in plan.measures:
        ranks = {a.p: weight for a, weight in wanted if a.argument == measure.name and a.p and a.p < 1}
        if tree_pays(measure, law, ranks):
            weight = sum(ranks.values(), Fraction(0))
            tree = Demand("tree", measure.name, weight, function="quantile", ranks=tuple(sorted(ranks)))
            demands.append(replace(tree, family=measure.disjoint))
    on_trees = {(tree.source, p) for tree in demands for p in tree.ranks}
    for aggregate, weight in wanted:
        if (aggregate.argument, aggregate.p) in on_trees:
            continue
        around = weight * AROUND.get(aggregate.function, Fraction(0))
        drawn = Demand(
            "pick", aggregate.argument or "", weight - around,
            function=aggregate.function, p=aggregate.p or Fraction(0), family=families.get(aggregate.argument or ""),
        )  # fmt: skip
        demands.append(drawn)
        if around:
            demands.append(replace(drawn, kind="bracket", weight=around))
    return demands


def tree_pays(measure: Measure, law: Law, ranks: Mapping[Fraction, Fraction]) -> bool:
    """Are these quantiles of one measure (rank: weight) off by less when read off one tree? Draws share the
    budget, a tree serves any number. Both errors scale alike with the amount, so an amount of 1 decides."""
    if len(ranks) < 2:
        return False
    _, bins = grid(measure.low, measure.high)
    counted = MEAN_OF_NORMAL * CountTree(1, bins, law, Fraction(1)).rank_std
    drawn = 0.0
    for p, weight in ranks.items():
        amount = float(weight / sum(ranks.values()) * (1 - AROUND["quantile"]))
        epsilon = amount if law == "laplace" else sqrt(8 * amount)
        drawn += log(draw_error("quantile", p) / epsilon)
    return drawn / len(ranks) > log(counted)


def beside_rows(demands: list[Demand], weight: Fraction, law: Law) -> list[Demand]:
    """COUNT(*) beside the sums of a measure: the rows where it is NULL are one more coordinate, which costs
    nothing (counts.BesideRows). A primitive of its own where no measure is summed or counted for all rows, and
    where it weighs so much more that its own share is better than sharing (sqrt(2)/share < sqrt(6)).

    Not beside a FILTER of a family: the rows that a member leaves out belong to the other members.
    """
    hosts = [d for d in demands if d.kind in ("moments", "sum") and d.family is None]
    host = max(hosts, key=lambda demand: demand.weight, default=None)
    if host is None:
        return [Demand("moments", EVERY_ROW, weight), *demands]
    parts = 2 if law == "gaussian" and host.degree and host.kind == "moments" else 1
    if 2 * weight * parts > 3 * host.weight:
        return [Demand("moments", EVERY_ROW, weight), *demands]
    primitives = 2 if law == "gaussian" and host.degree else 1  # a lone sum becomes count and sum
    weight = max(host.weight / parts, weight) * primitives
    widened = replace(host, kind="moments", rows=True, weight=weight)
    return [widened if demand is host else demand for demand in demands]


def reuses_count(plan: Plan) -> bool:
    """Does selecting the keys already count the people of each group, so that COUNT(DISTINCT unit) is free?"""
    counted = any(aggregate.function == "count_units" for aggregate in plan.aggregates)
    return counted and not plan.keys_declared and plan.bounds.slots == "pairs"


def keys_demand(plan: Plan, law: Law, demands: Iterable[Demand], delta: float) -> Demand:
    """Selecting the keys, with the share that balances seeing groups against reading them.

    A group needs about a = k·ln(k/delta)/x people to be shown, and a count is then off by up to about
    b = 3·B·(primitives)/(1 - x): their sum is least at x = sqrt(a)/(sqrt(a) + sqrt(b)). Under rho the same with
    square roots of the amounts. Kept between a fifth and a half; all of it where only units are counted.
    """
    weight = sum((demand.weight for demand in demands), Fraction(0))
    if not weight:
        return Demand("keys", "", Fraction(1))
    k, rows = plan.bounds.groups_per_unit, plan.bounds.rows_per_unit
    reach = log(k / delta)
    if law == "laplace":
        seen, read = sqrt(k * reach), sqrt(3 * rows * float(weight))
    else:
        seen, read = (k * 2 * reach) ** (1 / 3), (2 * rows * float(weight) ** 0.5) ** (2 / 3)
    part = Fraction(round(100 * min(0.5, max(0.2, seen / (seen + read)))), 100)
    return Demand("keys", "", weight * part / (1 - part))


def value_demands(plan: Plan, law: Law, weights: Mapping[str, Fraction]) -> list[Demand]:
    """Everything that the aggregates of a core are derived from."""
    weighted = [(aggregate, weights.get(aggregate.name, Fraction(1))) for aggregate in plan.aggregates]
    demands = []
    units = [weight for aggregate, weight in weighted if aggregate.function == "count_units"]
    if units and not reuses_count(plan):
        demands.append(Demand("units", EVERY_UNIT, max(units)))
    for measure in plan.measures:
        wanted: dict[str, Fraction] = {}
        for aggregate, weight in weighted:
            if aggregate.argument == measure.name and aggregate.function in MOMENTS:
                wanted[aggregate.function] = max(weight, wanted.get(aggregate.function, Fraction(0)))
        demands += measure_demands(plan, measure, wanted, law)
    rows = [weight for aggregate, weight in weighted if aggregate.function == "count" and aggregate.argument is None]
    if rows:
        demands = beside_rows(demands, max(rows), law)
    for attribute in plan.attributes:
        distinct = [w for a, w in weighted if a.function == "count_distinct" and a.argument == attribute.name]
        if distinct:
            demands.append(Demand("distinct", attribute.name, max(distinct)))
    demands += pick_demands(plan, law, [(a, w) for a, w in weighted if a.function in CHOSEN])
    auto = {measure.name for measure in plan.measures if measure.auto}
    for name in sorted(auto):  # a capped sum has no use for bounds, and a count neither
        using = [
            d
            for d in demands
            if d.source == name and (d.kind in ("sum", "pick", "bracket", "tree") or d.degree) and d.kind != "capped"
        ]
        if using:
            demands.append(Demand("bounds", name, sum((d.weight for d in using), Fraction(0)) * BOUNDS_SHARE))
    return demands


@dataclass(frozen=True, slots=True)
class Slice:
    """A demand with its amount: pico of epsilon or of rho. `core` is the core that asked.

    Slices of one family and different members are paid for once (see `divide`).
    """

    core: int
    demand: Demand
    amount: int


def divide(total: int, demands: list[tuple[int, Demand]]) -> list[Slice]:
    """Share out the total by weight, to the last pico.

    Demands of one family (FILTERs that exclude each other) share one lane: each member receives the
    lane's whole amount, because they are paid once. Why that is sound: a unit's rows carry weight at most
    W in all; if a fraction f_j of it falls into member j, with Σ f_j <= 1, then member j's cost is at most
    f_j times its cost at full weight, since every cost here falls at least as fast as the sensitivity
    (under Gaussian noise it is f_j², also with clip l2, where Σ f_j² <= 1). So all members together cost
    at most the costliest one. Capped sums have weights of their own and stay outside.
    """
    lanes: dict[tuple[object, ...], dict[str, list[tuple[int, Demand]]]] = {}
    for index, (core, demand) in enumerate(demands):
        if demand.family is None:
            lanes[(index,)] = {"": [(core, demand)]}
        else:
            family, member = demand.family
            lanes.setdefault((core, family), {}).setdefault(member, []).append((core, demand))
    weights = [max(weight_of(entries) for entries in members.values()) for members in lanes.values()]
    slices = []
    for amount, members in zip(apportion(total, weights), lanes.values(), strict=True):
        for entries in members.values():
            amounts = apportion(amount, [demand.weight for _, demand in entries])
            slices += [Slice(core, demand, part) for (core, demand), part in zip(entries, amounts, strict=True)]
    return slices


def weight_of(entries: list[tuple[int, Demand]]) -> Fraction:
    return sum((demand.weight for _, demand in entries), Fraction(0))


def apportion(total: int, weights: list[Fraction]) -> list[int]:
    """Whole amounts in proportion to the weights that add up to the total exactly."""
    whole = sum(weights, Fraction(0))
    amounts = [int(total * weight / whole) for weight in weights]
    for index in range(total - sum(amounts)):
        amounts[index % len(amounts)] += 1
    if min(amounts) <= 0:
        raise LossOutOfRange(
            "the amount is too small to be divided over all parts of this query",
            {"remedy": "spend more, or ask for fewer outputs"},
        )
    return amounts
