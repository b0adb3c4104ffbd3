"""Which primitives a core needs, and how the budget divides over them. Pure; no amounts, no data.

The shapes are fixed by what is wanted of a measure, because for each want one shape has the smallest
predicted error whatever the amount (docs/mechanisms.md, "Counts, sums, means, variances"):
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
from math import log
from typing import Literal

from service.core.aggregates import AggregateSpec, ReleasedAs
from service.core.derivations import CodeRange
from service.core.errors import LossOutOfRange
from service.core.plan import Aggregate, Loss, Measure, Plan, Query
from service.privacy.mechanisms.tree import CountTree
from service.privacy.noise.laws import Law
from service.privacy.primitives.chosen import MEAN_OF_NORMAL, grid
from service.privacy.primitives.noised import EVERY_ROW, EVERY_UNIT

BOUNDS_SHARE = Fraction(1, 4)  # of a measure's budget, on top, to find its bounds
TOTALS_SHARE = Fraction(1, 4)  # of a sum's budget to find its cap


@dataclass(frozen=True, slots=True)
class Demand:
    """Something to release. `weight` is its share of the budget beside the other demands.

    `family` = (family, member), as on Measure: FILTERs that exclude each other. What is demanded for different members
    of one family is charged once (see `share_out`).
    """

    kind: Literal[
        "moments", "sum", "capped", "units", "distinct", "draw", "bracket", "tree", "bounds", "totals", "keys"
    ]  # fmt: skip
    source: str
    weight: Fraction
    degree: int = 0
    function: AggregateSpec | None = None  # what is chosen
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
    at, rows = CodeRange(measure.low, measure.high), plan.bounds.rows_per_unit
    if alone:
        return cap < rows * at.magnitude
    return 4 * cap * cap < rows * rows * (at.low**2 + at.high**2)


def measure_demands(plan: Plan, measure: Measure, wanted: Mapping[AggregateSpec, Fraction], law: Law) -> list[Demand]:
    """The demands of one measure; `wanted` maps what is to be known of its moments to weights."""
    demands, moments = [], dict(wanted)
    additive = next((spec for spec in moments if spec.additive), None)
    if additive is not None and cap_pays(plan, measure, alone=len(moments) == 1):
        weight = moments.pop(additive)
        found = cap_code(plan, measure) is None
        if found:
            demands.append(Demand("totals", measure.name, weight * TOTALS_SHARE))
        demands.append(Demand("capped", measure.name, weight * (1 - TOTALS_SHARE) if found else weight, degree=1))
    if not moments:
        return demands
    weight, degree = max(moments.values()), max(spec.degree for spec in moments)
    if all(spec.additive for spec in moments):
        return [*demands, Demand("sum", measure.name, weight, degree=degree, family=measure.disjoint)]
    weight *= primitives_in(law, degree)
    return [*demands, Demand("moments", measure.name, weight, degree=degree, family=measure.disjoint)]


def primitives_in(law: Law, degree: int) -> int:
    """What the moments of a measure weigh: complementary sums are one primitive, under epsilon; under rho the count
    and the centred sum have noise of their own, and the squares come free."""
    return 2 if degree and not law.pure else 1


def chosen_demands(plan: Plan, law: Law, wanted: list[tuple[Aggregate, Fraction]]) -> list[Demand]:
    """A draw for each chosen value and noisy counts around it for its interval; one tree of noisy counts for
    all quantiles of a measure where that is better. A mode has no interval: it is a name, not an amount."""
    families = {measure.name: measure.disjoint for measure in plan.measures}
    demands = []
    for measure in plan.measures:
        asked = [(a, weight) for a, weight in wanted if a.argument == measure.name and a.p and a.p < 1]
        ranks = {a.p: weight for a, weight in asked if a.p is not None}
        if ranks and tree_pays(measure, law, asked[0][0].function, ranks):
            weight = sum(ranks.values(), Fraction(0))
            tree = Demand("tree", measure.name, weight, function=asked[0][0].function, ranks=tuple(sorted(ranks)))
            demands.append(replace(tree, family=measure.disjoint))
    on_trees = {(tree.source, p) for tree in demands for p in tree.ranks}
    for aggregate, weight in wanted:
        if (aggregate.argument, aggregate.p) in on_trees:
            continue
        around = weight * aggregate.function.choice.around
        drawn = Demand(
            "draw", aggregate.argument or "", weight - around,
            function=aggregate.function, p=aggregate.p or Fraction(0), family=families.get(aggregate.argument or ""),
        )  # fmt: skip
        demands.append(drawn)
        if around:
            demands.append(replace(drawn, kind="bracket", weight=around))
    return demands


def tree_pays(measure: Measure, law: Law, spec: AggregateSpec, ranks: Mapping[Fraction, Fraction]) -> bool:
    """Are these quantiles of one measure (rank: weight) off by less when read off one tree? Draws share the
    budget, a tree serves any number. Both errors scale alike with the amount, so an amount of 1 decides."""
    if len(ranks) < 2:
        return False
    _, bins = grid(measure.low, measure.high)
    counted = MEAN_OF_NORMAL * CountTree(1, bins, law, Fraction(1)).rank_std
    whole = float(law.draw_epsilon(Fraction(1)))
    drawn = 0.0
    for p, weight in ranks.items():
        amount = float(weight / sum(ranks.values()) * (1 - spec.choice.around))
        drawn += log(spec.choice.error(p) / (whole * amount ** (1 / law.power)))
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
    parts = primitives_in(law, host.degree) if host.kind == "moments" else 1
    if 2 * weight * parts > 3 * host.weight:
        return [Demand("moments", EVERY_ROW, weight), *demands]
    weight = max(host.weight / parts, weight) * primitives_in(law, host.degree)  # a lone sum becomes count and sum
    widened = replace(host, kind="moments", rows=True, weight=weight)
    return [widened if demand is host else demand for demand in demands]


def reuses_count(plan: Plan) -> bool:
    """Does selecting the keys already count the people of each group, so that COUNT(DISTINCT unit) is free?"""
    counted = any(aggregate.function.released_as is ReleasedAs.UNITS for aggregate in plan.aggregates)
    return counted and not plan.keys_declared and plan.bounds.slots == "pairs"


def keys_demand(plan: Plan, law: Law, demands: Iterable[Demand], delta: float) -> Demand:
    """Selecting the keys, with the share that balances seeing groups against reading them.

    With a share x of epsilon a group needs about a/x people to be shown, a = k·ln(k/delta), and a count is then off by
    up to about b/(1 - x), b = 3·B·(primitives): the sum is least at x = sqrt(a)/(sqrt(a) + sqrt(b)). Under rho both
    fall with the square root of the amount, so a and b enter with the power 2/3; a² = 2k·ln(k/delta) and
    b = 2·B·sqrt(primitives). Kept between a fifth and a half; all of it where only units are counted.
    """
    weight = sum((demand.weight for demand in demands), Fraction(0))
    if not weight:
        return Demand("keys", "", Fraction(1))
    k, rows = plan.bounds.groups_per_unit, plan.bounds.rows_per_unit
    power = law.power
    seen = (power * k * log(k / delta)) ** (1 / (power + 1))
    read = (law.wide * rows * float(weight) ** (1 / power)) ** (power / (power + 1))
    part = Fraction(round(100 * min(0.5, max(0.2, seen / (seen + read)))), 100)
    return Demand("keys", "", weight * part / (1 - part))


def value_demands(plan: Plan, law: Law, weights: Mapping[str, Fraction]) -> list[Demand]:
    """Everything that the aggregates of a core are derived from."""
    weighted = [(aggregate, weights.get(aggregate.name, Fraction(1))) for aggregate in plan.aggregates]

    def of(released_as: ReleasedAs, source: str | None) -> dict[AggregateSpec, Fraction]:
        """What is wanted of one source, each with the largest of its weights."""
        wanted: dict[AggregateSpec, Fraction] = {}
        for aggregate, weight in weighted:
            if aggregate.argument == source and aggregate.function.released_as is released_as:
                wanted[aggregate.function] = max(weight, wanted.get(aggregate.function, Fraction(0)))
        return wanted

    demands = []
    units = of(ReleasedAs.UNITS, None)
    if units and not reuses_count(plan):
        demands.append(Demand("units", EVERY_UNIT, max(units.values())))
    for measure in plan.measures:
        demands += measure_demands(plan, measure, of(ReleasedAs.MOMENTS, measure.name), law)
    rows = of(ReleasedAs.MOMENTS, None)
    if rows:
        demands = beside_rows(demands, max(rows.values()), law)
    for attribute in plan.attributes:
        distinct = of(ReleasedAs.DISTINCT, attribute.name)
        if distinct:
            demands.append(Demand("distinct", attribute.name, max(distinct.values())))
    demands += chosen_demands(plan, law, [(a, w) for a, w in weighted if a.function.released_as is ReleasedAs.CHOSEN])
    return demands + bounds_demands(plan, demands)


def bounds_demands(plan: Plan, demands: list[Demand]) -> list[Demand]:
    """Finding the bounds that are not given, for what needs them: a capped sum has no use for them, a count neither."""
    found = []
    for name in sorted(measure.name for measure in plan.measures if measure.auto):
        using = [
            d
            for d in demands
            if d.source == name and (d.kind in ("sum", "draw", "bracket", "tree") or d.degree) and d.kind != "capped"
        ]
        if using:
            found.append(Demand("bounds", name, sum((d.weight for d in using), Fraction(0)) * BOUNDS_SHARE))
    return found


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of the budget: a demand with its amount, in pico of epsilon or of rho. `core` is the core that asked.

    Slices of one family and different members are paid for once (see `share_out`).
    """

    core: int
    demand: Demand
    amount: int


def share_out(total: int, demands: list[tuple[int, Demand]]) -> list[Slice]:
    """The total, divided by weight to the last pico.

    Demands of one family (FILTERs that exclude each other) have one share between them: each member receives the
    whole of it, because they are paid once. Why that is sound: a unit's rows carry weight at most
    W in all; if a fraction f_j of it falls into member j, with Σ f_j <= 1, then member j's cost is at most
    f_j times its cost at full weight, since every cost here falls at least as fast as the sensitivity
    (under Gaussian noise it is f_j², also with clip l2, where Σ f_j² <= 1). So all members together cost
    at most the costliest one. Capped sums have weights of their own and stay outside.
    """
    shares: dict[tuple[object, ...], dict[str, list[tuple[int, Demand]]]] = {}
    for index, (core, demand) in enumerate(demands):
        if demand.family is None:
            shares[(index,)] = {"": [(core, demand)]}
        else:
            family, member = demand.family
            shares.setdefault((core, family), {}).setdefault(member, []).append((core, demand))
    weights = [max(weight_of(entries) for entries in members.values()) for members in shares.values()]
    slices = []
    for amount, members in zip(apportion(total, weights), shares.values(), strict=True):
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
