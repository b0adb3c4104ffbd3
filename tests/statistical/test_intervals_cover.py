"""Do 95% intervals cover what is true without noise in 92% to 98% of the cells? Stated for unclamped data."""

import math
from fractions import Fraction

import numpy as np
import pytest

from service.core.aggregates import MAX, QUANTILE
from service.core.amounts import PICO
from service.core.boundary import Array, ReleasedColumn, ReleasedTable
from service.core.plan import ONE, Bounds, Loss
from service.core.prepared import POSITION
from service.core.schema import DOUBLE
from service.privacy.mechanisms.bracket import Bracket
from service.privacy.mechanisms.quantile import FromBottom, FromTop, Histograms, Quantile, RankDraw, extreme_rank
from service.privacy.mechanisms.tree import CountTree
from service.privacy.noise.laws import LAPLACE, LAWS, Law
from service.privacy.noise.sampling import SecureNoise
from service.privacy.noise.scaled import Noise
from service.privacy.pricing.price import price
from tests.unit.privacy.questions import (
    TERMS,
    aggregate,
    attribute,
    by_key,
    measure,
    plan,
    priced,
    question,
    released,
)

GROUPS = 4_000  # the share of covered cells is known to 0.35%
FUNCTIONS = ("count", "sum", "avg", "rms", "var_pop", "var_samp", "stddev_pop", "stddev_samp")
VALUES = np.concatenate([np.full(300, 20), np.full(500, 45), np.full(200, 90)])


def table(law: Law, amount: int, *functions: str, replicas: frozenset[str] = frozenset()) -> ReleasedTable:
    core = plan(
        *(aggregate(f, "m0", DOUBLE if f != "count" else None) for f in functions),
        measures=(measure(),), keys=by_key(GROUPS), bounds=Bounds(2, 1),
    )  # fmt: skip
    moments = {"n": VALUES.size, "s1": VALUES.sum(), "s2": (VALUES**2).sum()}
    exact = {f"m0.{name}": np.full(GROUPS, ONE * int(value)) for name, value in moments.items()}
    return released(priced(core, law, amount), exact, GROUPS, replicas=replicas)


TRUE = {
    "count": VALUES.size, "sum": VALUES.sum(), "avg": VALUES.mean(), "var_pop": VALUES.var(),
    "var_samp": VALUES.var(ddof=1), "stddev_pop": VALUES.std(), "stddev_samp": VALUES.std(ddof=1),
    "rms": np.sqrt(np.mean(VALUES**2)),
}  # fmt: skip


def covered(column: ReleasedColumn, value: float) -> float:
    return float(np.mean((column.low <= value) & (value <= column.high)))


@pytest.mark.parametrize("amount", [PICO // 20, PICO, 20 * PICO])
@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("functions", [("count",), ("sum",), ("count", "sum", "avg"), FUNCTIONS])
def test_intervals_cover_what_is_true(functions: tuple[str, ...], law: Law, amount: int) -> None:
    answers = table(law, amount if law is LAPLACE else amount // 8, *functions)
    for function in functions:
        share = covered(answers.columns[f"{function}_m0"], TRUE[function])
        wide = function.startswith(("var", "stddev")) and amount < PICO  # where n is unclear, all of the range
        assert 0.92 <= share <= (1.0 if wide else 0.98), (function, share)


@pytest.mark.parametrize("rows", [1, 10, 60])
@pytest.mark.parametrize("function", ["avg", "rms"])
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_intervals_of_ratios_cover_however_few_rows_there_are(law: Law, function: str, rows: int) -> None:
    """At 92% or more where the count itself is lost in the noise, and no more than 98% where it is not."""
    few = np.resize(np.array([70, 3, 35]), rows)
    core = plan(aggregate(function, "m0"), measures=(measure(low=-40),), keys=by_key(GROUPS), bounds=Bounds(2, 1))
    sums = {"m0.n": rows, "m0.s1": few.sum(), "m0.s2": (few**2).sum()}
    exact = {name: np.full(GROUPS, ONE * int(value)) for name, value in sums.items()}
    column = released(priced(core, law, PICO if law.pure else PICO // 8), exact, GROUPS).columns[f"{function}_m0"]
    truth = few.mean() if function == "avg" else np.sqrt(np.mean(few**2))
    assert 0.92 <= covered(column, truth) <= (0.98 if rows == 60 else 1.0)


@pytest.mark.parametrize("bounds", [(0, 100), (-30, 100), (-100, -20)])
@pytest.mark.parametrize("function", ["rms", "var_pop", "stddev_pop"])
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_predictions_are_the_deviations_of_values_that_are_spread_evenly(
    law: Law, function: str, bounds: tuple[int, int]
) -> None:
    even = np.linspace(*bounds, 3_001).astype(np.int64)
    core = plan(
        aggregate(function, "m0"), measures=(measure("m0", *bounds),), keys=by_key(GROUPS), bounds=Bounds(2, 1),
        expected_rows=even.size * GROUPS, expected_groups=GROUPS,
    )  # fmt: skip
    at = price(question(core), Loss(law.paid_in, PICO), TERMS).plans[0]
    sums = {"m0.n": even.size, "m0.s1": even.sum(), "m0.s2": (even**2).sum()}
    exact = {name: np.full(GROUPS, ONE * int(value)) for name, value in sums.items()}
    seen = np.std(released(at, exact, GROUPS).columns[f"{function}_m0"].values)
    assert at.predictions[f"{function}_m0"].noise_std == pytest.approx(seen, rel=0.1)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_intervals_of_units_and_distinct_values_are_whole_and_cover(law: Law) -> None:
    core = plan(
        aggregate("count_units", None), aggregate("count_distinct", "d0"),
        attributes=(attribute("d0", "a"),), keys=by_key(GROUPS), bounds=Bounds(3, 5),
    )  # fmt: skip
    exact = {"units": np.full(GROUPS, 30), "d0.d": np.full(GROUPS, 12)}
    answers = released(priced(core, law, PICO // 3), exact, GROUPS)
    for name, value in (("count_units_all", 30), ("count_distinct_d0", 12)):
        column = answers.columns[name]
        assert column.half_width == int(column.half_width or 0)
        assert 0.92 <= covered(column, value) <= 0.98


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_replicas_give_intervals_of_arithmetic(law: Law) -> None:
    """SUM/COUNT² from 200 copies of the released values."""
    both = frozenset({"sum_m0", "count_m0"})
    answers = table(law, PICO if law is LAPLACE else PICO // 8, "count", "sum", replicas=both)
    copies = answers.replicas["sum_m0"] / answers.replicas["count_m0"] ** 2
    low, high = np.quantile(copies, [0.025, 0.975], axis=0)
    truth = TRUE["sum"] / TRUE["count"] ** 2
    assert 0.92 <= np.mean((low <= truth) & (truth <= high)) <= 0.98


# --- Values chosen from a grid: 400 rows on 4,096 bins at epsilon 1 (rho 1/8), so that the noise is many rows and
# a row is many bins. Where a bin holds more rows than the noise, answers are exact and every interval covers.

ROWS, BINS, COPIES = 400, 4096, 8_000  # the share of covered cells is known to 0.2%
DECILES = tuple(Fraction(i, 10) for i in range(1, 10))


def shapes() -> dict[str, Array]:
    draw = np.random.default_rng(5)
    modes = np.where(np.arange(ROWS) < 200, draw.normal(600, 100, ROWS), draw.normal(3300, 100, ROWS))
    uneven = np.where(np.arange(ROWS) < 193, draw.normal(600, 100, ROWS), draw.normal(3300, 100, ROWS))
    spread = {
        "even": draw.uniform(0, BINS, ROWS), "skewed": draw.gamma(3.0, 150.0, ROWS), "two modes": modes,
        "two uneven modes": uneven, "steps": draw.integers(0, 40, ROWS) * 100,
    }  # fmt: skip
    return {name: np.sort(rows.astype(np.int64).clip(0, BINS - 1)) for name, rows in spread.items()}


SHAPES = shapes()


def many(rows: Array, copies: int = COPIES) -> Histograms:
    """The same rows in many groups."""
    bins, counts = np.unique(rows, return_counts=True)
    group = np.repeat(np.arange(copies), bins.size)
    return Histograms(copies, BINS, group, np.tile(bins, copies), np.tile(counts * ONE, copies))


def quantile_of(rows: Array, p: Fraction) -> int:
    return int(rows[int(np.ceil(p * rows.size)) - 1])


def within(low: Array, value: int, high: Array) -> float:
    return float(np.mean((low <= value) & (value <= high)))


def split(law: Law, share: Fraction) -> tuple[Fraction, Fraction]:
    """The epsilon of a draw and the amount around it, as pricing divides epsilon 1 or rho 1/8."""
    return (1 - share, share) if law is LAPLACE else (Fraction(math.sqrt(1 - share)), share / 8)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_intervals_of_drawn_quantiles_cover(law: Law, shape: str) -> None:
    rows, exact = SHAPES[shape], many(SHAPES[shape])
    epsilon, around = split(law, QUANTILE.choice.around)
    for rank in (Quantile(Fraction(1, 2)), Quantile(Fraction(9, 10))):
        chosen = RankDraw(rank, 1, epsilon).release(exact, SecureNoise())
        low, high = Bracket(1, BINS, law, around).release(exact, chosen, rank, SecureNoise())
        # an interval that touches the gap beside a mode reaches across it, and covers a little more
        most = 0.98 if shape != "two uneven modes" else 0.99
        assert 0.92 <= within(low, quantile_of(rows, rank.p), high) <= most, rank
        assert ((low <= chosen) & (chosen <= high)).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_intervals_of_quantiles_read_off_a_tree_cover(law: Law, shape: str) -> None:
    rows = SHAPES[shape]
    tree = CountTree(1, BINS, law, Fraction(1) if law is LAPLACE else Fraction(1, 8))
    found = tree.release(many(rows), DECILES, SecureNoise())
    shares = [within(low, quantile_of(rows, p), high) for p, (_, low, high) in zip(DECILES, found, strict=True)]
    assert min(shares) >= 0.92
    assert np.mean(shares) <= (0.98 if shape != "steps" else 1.0), "steps hold about as many rows as the noise"


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_intervals_of_quantiles_over_next_to_no_rows_cover(law: Law, rows: int) -> None:
    """The noise is far larger than the group: its total may well be negative."""
    few = np.sort(np.random.default_rng(rows).integers(0, 60, rows))
    exact, (epsilon, around) = many(few), split(law, QUANTILE.choice.around)
    for rank in (Quantile(Fraction(1, 2)), Quantile(Fraction(9, 10))):
        chosen = RankDraw(rank, 1, epsilon).release(exact, SecureNoise())
        low, high = Bracket(1, BINS, law, around).release(exact, chosen, rank, SecureNoise())
        assert within(low, quantile_of(few, rank.p), high) >= 0.915, rank  # 93.3% are stated


def extremes(law: Law, rows: int) -> list[float]:
    """How often the intervals of MAX and MIN hold the true one, where it is as far from the end as can be."""
    crowd = np.sort(np.random.default_rng(6).integers(0, 60, rows))
    epsilon, around = split(law, MAX.choice.around)
    far, shares = extreme_rank(1, epsilon, BINS), []
    for rank, spread in ((FromTop(far), crowd), (FromBottom(far), np.sort(BINS - 1 - crowd))):
        exact, truth = many(spread, 4_000), spread[-1] if isinstance(rank, FromTop) else spread[0]
        chosen = RankDraw(rank, 1, epsilon).release(exact, SecureNoise())
        low, high = Bracket(1, BINS, law, around).release(exact, chosen, rank, SecureNoise())
        shares.append(within(low, int(truth), high))
    return shares


@pytest.mark.parametrize("rows", [2, 20, 3_000])
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_intervals_of_extremes_hold_the_true_one(law: Law, rows: int) -> None:
    """One-sided: a maximum may be anywhere up to its bound. Where there are next to no rows the draw lands anywhere,
    and only the counts around it can tell."""
    assert min(extremes(law, rows)) >= (0.95 if rows > 1_000 else 0.92)


def test_the_check_catches_extremes_that_understate_their_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Noise, "variance", property(lambda self: 0.5 * float(self.scale) ** 2))
    assert max(extremes(LAPLACE, 2)) < 0.92


def test_the_check_catches_brackets_and_trees_that_understate_their_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twins that believe in half the deviation that they have."""
    rows, exact, rank = SHAPES["two modes"], many(SHAPES["two modes"]), Quantile(Fraction(1, 2))
    epsilon, around = split(LAPLACE, QUANTILE.choice.around)
    chosen = RankDraw(rank, 1, epsilon).release(exact, SecureNoise())
    monkeypatch.setattr(Noise, "variance", property(lambda self: 0.5 * float(self.scale) ** 2))
    low, high = Bracket(1, BINS, LAPLACE, around).release(exact, chosen, rank, SecureNoise())
    assert within(low, quantile_of(rows, rank.p), high) < 0.92
    ((_, low, high),) = CountTree(1, BINS, LAPLACE, Fraction(1)).release(exact, [rank.p], SecureNoise())
    assert within(low, quantile_of(rows, rank.p), high) < 0.92


def test_replicas_give_intervals_of_arithmetic_over_quantiles() -> None:
    """Twice the median, and the range between quartiles."""
    rows, groups = SHAPES["even"], 2_000
    exact = many(rows, groups)
    core = plan(
        *(aggregate("quantile", "m0", p=Fraction(i, 4)) for i in (1, 2, 3)),
        measures=(measure(high=BINS - 1),), keys=by_key(groups),
    )  # fmt: skip
    first, middle, last = names = [f"quantile_m0{p}" for p in ("1/4", "1/2", "3/4")]
    columns = {POSITION: exact.group, "bin": exact.bin, "weight": exact.weight}
    answers = released(priced(core, LAPLACE, 3 * PICO), columns, groups, replicas=frozenset(names))
    copies = answers.replicas
    apart = quantile_of(rows, Fraction(3, 4)) - quantile_of(rows, Fraction(1, 4))
    truths = ((2 * copies[middle], 2 * quantile_of(rows, Fraction(1, 2))), (copies[last] - copies[first], apart))
    for simulated, truth in truths:
        low, high = np.quantile(simulated, [0.025, 0.975], axis=0)
        assert within(low, truth, high) >= 0.92  # more for a difference, whose parts err independently
        middle = (low + high) / 2
        assert within((low + middle) / 2, truth, (high + middle) / 2) < 0.92, "half as wide would be seen"


def test_the_check_catches_intervals_for_half_the_noise() -> None:
    column = table(LAPLACE, PICO, "count").columns["count_m0"]
    middle = (column.low + column.high) / 2
    half = ReleasedColumn(column.values, (column.low + middle) / 2, (column.high + middle) / 2)
    assert covered(half, TRUE["count"]) < 0.92
