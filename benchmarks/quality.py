"""How noisy are the answers, next to what the formulas say and next to the textbook way?

Every mechanism releases the same exact integers for many groups; the mean squared error over the groups is
divided by the formula's. The workload: 1,000 rows per group, values 0…100, two rows per unit,
epsilon 1 (rho 1/8). "Textbook" is a noisy sum over a noisy count with a budget each.
"""

import math
import os
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from service.core.aggregates import AGGREGATES, QUANTILE
from service.core.amounts import ATTO, PICO
from service.core.boundary import Array, ExactTable, KeyTable, ReleasedTable
from service.core.plan import (
    ONE,
    Aggregate,
    Attribute,
    Bounds,
    Key,
    Loss,
    Measure,
    Outer,
    Output,
    Plan,
    Query,
)  # fmt: skip
from service.core.schema import BIGINT, DOUBLE, VARCHAR
from service.privacy.accounting.costs import open_terms
from service.privacy.mechanisms.approximate_bounds import ApproximateBounds
from service.privacy.mechanisms.quantile import Histograms, ModeDraw, Quantile, RankDraw
from service.privacy.mechanisms.selection import choose_rule, decide, truncated_rule
from service.privacy.mechanisms.tree import CountTree, _Descent
from service.privacy.noise.laws import GAUSSIAN, LAPLACE, LAWS, Law
from service.privacy.noise.sampling import SecureNoise
from service.privacy.pricing.demands import tree_pays
from service.privacy.pricing.price import price
from service.privacy.pricing.priced import PricedPlan
from service.privacy.release import release_values

GROUPS = 30_000 if os.environ.get("HALFTONE_BENCH_QUICK") == "1" else 60_000
TERMS = open_terms(10 * PICO, ATTO // 10**6, keys_declared=True)
LOW, HIGH, ROWS_PER_UNIT = 0, 100, 2
VALUES = np.concatenate([np.full(300, 20), np.full(500, 45), np.full(200, 90)])
EXACT = {
    "*.n": VALUES.size * ONE, "m0.n": VALUES.size * ONE, "m0.s1": int(VALUES.sum()) * ONE,
    "m0.s2": int((VALUES**2).sum()) * ONE, "m0.us": int(VALUES.sum()) * ONE, "units": 500, "d0.d": 3,
}  # fmt: skip
TRUE = {
    "count": VALUES.size, "sum": VALUES.sum(), "avg": VALUES.mean(), "var_pop": VALUES.var(),
    "stddev_pop": VALUES.std(), "count_units": 500, "count_distinct": 3,
}  # fmt: skip
SOURCE = {"count_units": None, "count_distinct": "d0", "rows": None}


def plan(*functions: str, cap: int | None = None) -> Plan:
    aggregates = tuple(
        Aggregate(f, AGGREGATES["count" if f == "rows" else f], SOURCE.get(f, "m0"), DOUBLE, f) for f in functions
    )
    bounds = Bounds(ROWS_PER_UNIT, 3, unit_sum={} if cap is None else {"m0": Fraction(cap)})
    return Plan(
        rows=exp.select("1"), row_bound=None, keys=(Key("k0", VARCHAR, "k", domain=("a",)),),
        measures=(Measure("m0", BIGINT, Fraction(1), LOW, HIGH, "m0"),),
        attributes=(Attribute("d0", VARCHAR, "d0"),), aggregates=aggregates, bounds=bounds, digest="d",
    )  # fmt: skip


def priced(asked: Plan, law: Law, amount: int) -> PricedPlan:
    outputs = tuple(Output(a.name, "value", a.type, (0, a.name), ((0, a.name),)) for a in asked.aggregates)
    query = Query("bench", (asked,), Outer(exp.select("1"), outputs, row_wise=True))
    return price(query, Loss(law.paid_in, amount), TERMS).plans[0]


def answers(asked: Plan, law: Law, amount: int) -> ReleasedTable:
    at = priced(asked, law, amount)
    keys = KeyTable({"k0": np.arange(GROUPS).astype(object)}, GROUPS)
    exact = ExactTable({name: np.full(GROUPS, value) for name, value in EXACT.items()})
    return release_values(at, keys, [(at.value_needs(), exact)], SecureNoise())


def errors(asked: Plan, law: Law, amount: int) -> dict[str, float]:
    """Root mean squared error of each aggregate."""
    table = answers(asked, law, amount)
    result = {}
    for name, column in table.columns.items():
        truth = TRUE["count" if name == "rows" else name]
        result[name] = float(np.sqrt(np.mean((column.values.astype(float) - truth) ** 2)))
    return result


def formula(function: str, law: Law, shape: str) -> float:
    """The deviation that docs/mechanisms.md states, at epsilon 1 (rho 1/8), worked out by hand."""
    unit, mid, n = ROWS_PER_UNIT, (LOW + HIGH) / 2, VALUES.size
    m, half = HIGH - LOW, (HIGH - LOW) / 2
    mean, var = VALUES.mean() - mid, VALUES.var()
    if law is LAPLACE:
        b = math.sqrt(2) * unit  # deviation of one coordinate in units of its size
        joint = {"count": math.sqrt(2) * b, "sum": b * math.hypot(LOW, HIGH)}
        joint["avg"] = b * m * math.hypot(0.5 - mean / m, 0.5 + mean / m) / n
        triple = {"count": math.sqrt(3) * b, "sum": b * math.sqrt(LOW**2 + mid**2 + HIGH**2)}
        slopes = variance_slopes(mean, var, n)
        rows = [(1, -m / 2, m * m / 4), (1, 0, -m * m / 4), (1, m / 2, m * m / 4)]
        triple["var_pop"] = b * math.sqrt(
            sum(sum(s * r for s, r in zip(slopes, row, strict=True)) ** 2 for row in rows)
        )
        alone = {"rows": b, "sum": b * HIGH, "count_units": math.sqrt(2) * 3, "count_distinct": b}
        return {"alone": alone, "joint": joint, "triple": triple}[shape][function]
    g = 2 * unit  # 1/sqrt(2·rho) at rho 1/8
    both = math.sqrt(2) * g
    slopes = variance_slopes(mean, var, n)
    pieces = (slopes[0] + half**2 * slopes[2], half * slopes[1], half**2 * slopes[2])
    joint = {"count": both, "sum": both * math.hypot(mid, half), "avg": both * math.hypot(half, mean) / n}
    joint["var_pop"] = both * math.sqrt(sum(piece * piece for piece in pieces))
    alone = {"rows": g, "sum": g * HIGH, "count_units": 2 * math.sqrt(3), "count_distinct": g}
    return (alone if shape == "alone" else joint)[function]


def variance_slopes(mean: float, var: float, n: int) -> tuple[float, float, float]:
    """d VAR / d (n, Σ(x - mid), Σ(x - mid)²)."""
    square = var + mean * mean
    return (2 * mean * mean - square) / n, -2 * mean / n, 1 / n


def against_formulas() -> list[tuple[str, str]]:
    rows = []
    for law in LAWS:
        amount = PICO if law is LAPLACE else PICO // 8
        for shape, functions in (
            ("alone", ("rows",)), ("alone", ("sum",)), ("alone", ("count_units",)), ("alone", ("count_distinct",)),
            ("joint", ("count", "sum", "avg")), ("triple", ("count", "sum", "var_pop")),
        ):  # fmt: skip
            seen = errors(plan(*functions), law, amount)
            for function in functions:
                ratio = (seen[function] / formula(function, law, shape)) ** 2
                rows.append((f"MSE over formula: {function}, {law}, {'+'.join(functions)}", f"{ratio:.3f}"))
    return rows


def capped() -> list[tuple[str, str]]:
    cap, rows = 150, []
    for law, deviation in ((LAPLACE, math.sqrt(2) * cap), (GAUSSIAN, 2.0 * cap)):
        seen = errors(plan("sum", cap=cap), law, PICO if law is LAPLACE else PICO // 8)["sum"]
        rows.append((f"MSE over formula: sum with a cap per unit, {law}", f"{(seen / deviation) ** 2:.3f}"))
    return rows


def draws() -> list[tuple[str, str]]:
    """Chosen values against the law of the exponential mechanism, worked out over 64 bins and 5 candidates."""
    counts = np.round(40 * np.exp(-(((np.arange(64) - 25) / 9.0) ** 2))).astype(np.int64) + 1
    below = np.cumsum(counts) - counts
    wanted = counts.sum() / 2
    cost = np.maximum(0, np.maximum(below - wanted, wanted - below - counts))
    epsilon = Fraction(1, 5)
    law = np.exp(-float(epsilon) * cost)  # 2·sensitivity = 1 row for p = 1/2
    law /= law.sum()
    truth = int(np.searchsorted(np.cumsum(counts), wanted))
    exact = Histograms(
        GROUPS, 64, np.repeat(np.arange(GROUPS), 64), np.tile(np.arange(64), GROUPS), np.tile(counts * ONE, GROUPS)
    )
    seen = RankDraw(Quantile(Fraction(1, 2)), 1, epsilon).release(exact, SecureNoise())
    ratio = np.mean((seen - truth) ** 2) / np.sum(law * (np.arange(64) - truth) ** 2)
    votes = np.array([10, 14, 12, 3, 15])
    chances = np.exp(float(epsilon) * votes)
    ballots = Histograms(
        GROUPS, 5, np.repeat(np.arange(GROUPS), 5), np.tile(np.arange(5), GROUPS), np.tile(votes * ONE, GROUPS)
    )
    mode = ModeDraw(1, epsilon).release(ballots, SecureNoise())
    right = np.mean(mode == 4) / (chances[4] / chances.sum())
    return [
        ("MSE over its law: median of 64 bins", f"{ratio:.3f}"),
        ("right answers over their law: mode of 5", f"{right:.3f}"),
    ]


class AtEdge(_Descent):
    """A walk that keeps how far off the edge in the middle of the range was, in deviations by the formula."""

    def _taken(self, excess: npt.NDArray[np.float64]) -> Array:
        if not self.path:
            half = self.branch // 2 - 1
            said = self.tree.noise.variance * self._spread()[:, half]
            self.squares = float(np.mean(excess[: self.exact.groups, half] ** 2 / said[: self.exact.groups]))
        return super()._taken(excess)


def trees() -> list[tuple[str, str]]:
    """The noise of (rows up to the middle) - half of all rows, in a tree over 4,096 bins without rows."""
    rows, nothing = [], np.zeros(0, dtype=np.int64)
    for law, amount in ((LAPLACE, Fraction(1)), (GAUSSIAN, Fraction(1, 8))):
        tree = CountTree(1, 4096, law, amount)
        walk = AtEdge(tree, Histograms(GROUPS, 4096, nothing, nothing, nothing), [Fraction(1, 2)], SecureNoise())
        walk.run()
        rows.append((f"MSE over formula: rank in a tree of noisy counts, {law}", f"{walk.squares:.3f}"))
    return rows


def found_bounds() -> list[tuple[str, str]]:
    """The worked example of approximate bounds: 0,0,0,0,1,3,7,8,8,8 at epsilon 1 gives [0, 8]."""
    weights = np.array([5, 0, 1, 4, 0, 0, 0, 0], dtype=np.int64) * ONE
    finder = ApproximateBounds(1, 4, LAPLACE, Fraction(1), Fraction(9, 10))
    runs = 2_000
    hits = sum(finder.release(weights, SecureNoise()) == (0, 8) for _ in range(runs))
    threshold = finder.threshold / ONE
    return [("worked example of found bounds: threshold; runs that give [0, 8]", f"{threshold:.2f}; {hits / runs:.0%}")]


def selected() -> list[tuple[str, str]]:
    """A group of as many people as the threshold passes half the time, up to the noise's own discreteness."""
    rule = truncated_rule(Bounds(1, 1), Fraction(1), Fraction(1, 10**6))
    people = round(rule.people_needed)
    passed = decide(np.full(GROUPS, people), None, rule, SecureNoise()).named.mean()
    decay = math.exp(-1)
    law = 0.5 + 0.5 * (1 - decay) / (1 + decay)  # P(Z >= 0); what truncation cuts off is below 1e-6
    return [(f"groups of {people} people shown, over the law", f"{passed / law:.3f}")]


def textbook(function: str, budgets: int) -> npt.NDArray[np.float64]:
    """A count, a sum (and a sum of squares) with an equal part of epsilon 1 each, then the ratio."""
    noise, share = SecureNoise(), Fraction(1, budgets)

    def noisy(value: int, size: int) -> npt.NDArray[np.float64]:
        drawn: Array = noise.discrete_laplace(ONE * ROWS_PER_UNIT * size / share, GROUPS)
        result: npt.NDArray[np.float64] = (value + drawn).astype(np.float64) / ONE
        return result

    n, s1 = np.maximum(noisy(EXACT["m0.n"], 1), 1), noisy(EXACT["m0.s1"], HIGH)
    if function == "count":
        return n
    if function == "sum":
        return s1
    mean = np.clip(s1 / n, LOW, HIGH)
    if function == "avg":
        return mean
    square = noisy(EXACT["m0.s2"], HIGH**2) / n
    return np.clip(square - mean * mean, 0, (HIGH - LOW) ** 2 / 4)


def against_textbook() -> list[tuple[str, str]]:
    rows = []
    for functions, budgets in ((("count", "sum", "avg"), 2), (("count", "sum", "var_pop"), 3)):
        ours = errors(plan(*functions), LAPLACE, PICO)
        for function in functions:
            theirs = float(np.sqrt(np.mean((textbook(function, budgets) - TRUE[function]) ** 2)))
            unit = {"count": ROWS_PER_UNIT, "sum": ROWS_PER_UNIT * HIGH}.get(function)
            shown = (
                f"{theirs / unit:.2f} → {ours[function] / unit:.2f}" if unit else f"{theirs:.3g} → {ours[function]:.3g}"
            )
            rows.append((f"deviation, textbook → joint: {function} of {'+'.join(functions)}", shown))
    return rows


def medians() -> list[tuple[str, str]]:
    """Rank errors of draws and of a tree of noisy counts, for some numbers of quantiles of one column. The
    planner's own choice is marked."""
    groups, data = 300, np.sort(np.random.default_rng(7).gamma(3.0, 300.0, 5_000).astype(int).clip(0, 4095))
    bins, counts = np.unique(data, return_counts=True)
    exact = Histograms(
        groups, 4096, np.repeat(np.arange(groups), bins.size), np.tile(bins, groups), np.tile(counts * ONE, groups)
    )
    rows = []
    measure = Measure("m0", BIGINT, Fraction(1), 0, 4095, "m0")
    for law, amount in ((LAPLACE, Fraction(1)), (GAUSSIAN, Fraction(1, 8))):
        for asked in (1, 3, 4, 9, 19, 39):
            ranks = [Fraction(i, asked + 1) for i in range(1, asked + 1)]
            each = (1 - QUANTILE.choice.around) * amount / asked
            epsilon = law.draw_epsilon(each)
            drawn = [
                rank_error(data, RankDraw(Quantile(p), 1, epsilon).release(exact, SecureNoise()), p) for p in ranks
            ]
            found = CountTree(1, 4096, law, amount).release(exact, ranks, SecureNoise())
            counted = [rank_error(data, found[i, 0], p) for i, p in enumerate(ranks)]
            taken = "tree" if tree_pays(measure, law, QUANTILE, dict.fromkeys(ranks, Fraction(1))) else "draws"
            figure = f"{np.mean(drawn):.1f} : {np.mean(counted):.1f} rows ({taken})"
            rows.append(
                (
                    f"mean rank error at {law.paid_in} {amount}, {asked} quantile(s), draws : tree (planner takes)",
                    figure,
                )
            )
    return rows


def rank_error(data: Array, codes: Array, p: Fraction) -> float:
    """Rows between the wanted rank and the nearest rank that the chosen value has."""
    wanted = float(p) * data.size
    below, upto = np.searchsorted(data, codes, "left"), np.searchsorted(data, codes, "right")
    return float(np.mean(np.maximum(0, np.maximum(below - wanted, wanted - upto))))


def thresholds() -> list[tuple[str, str]]:
    rows = []
    for law, amount in ((LAPLACE, Fraction(1)), (GAUSSIAN, Fraction(1, 8))):
        for k in (1, 8, 64):
            rule = choose_rule(Bounds(20, k), law, amount, Fraction(1, 10**9))
            what = f"people a private group needs, {law.paid_in} {amount}, {k} group(s) per person"
            rows.append((what, f"{rule.people_needed:.0f} ({rule.counting})"))
    return rows


def rows() -> list[tuple[str, str]]:
    measured = [*against_formulas(), *capped(), *draws(), *trees(), *selected(), *found_bounds()]
    return [*measured, *against_textbook(), *medians(), *thresholds()]
