"""Do 95% intervals cover what is true without noise in 92% to 98% of the cells? Stated for unclamped data."""

from fractions import Fraction

import numpy as np
import pytest

from service.core.amounts import PICO
from service.core.boundary import ReleasedColumn, ReleasedTable
from service.core.plan import ONE, POSITION, Bounds
from service.core.schema import DOUBLE
from tests.unit.privacy.questions import aggregate, attribute, by_key, measure, plan, priced, released

GROUPS = 4_000  # the share of covered cells is known to 0.35%
FUNCTIONS = ("count", "sum", "avg", "var_pop", "var_samp", "stddev_pop", "stddev_samp")
VALUES = np.concatenate([np.full(300, 20), np.full(500, 45), np.full(200, 90)])


def table(law: str, amount: int, *functions: str, replicas: frozenset[str] = frozenset()) -> ReleasedTable:
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
}  # fmt: skip


def covered(column: ReleasedColumn, value: float) -> float:
    return float(np.mean((column.low <= value) & (value <= column.high)))


@pytest.mark.parametrize("amount", [PICO // 20, PICO, 20 * PICO])
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("functions", [("count",), ("sum",), ("count", "sum", "avg"), FUNCTIONS])
def test_intervals_cover_what_is_true(functions: tuple[str, ...], law: str, amount: int) -> None:
    answers = table(law, amount if law == "laplace" else amount // 8, *functions)
    for function in functions:
        share = covered(answers.columns[f"{function}_m0"], TRUE[function])
        wide = function.startswith(("var", "stddev")) and amount < PICO  # where n is unclear, all of the range
        assert 0.92 <= share <= (1.0 if wide else 0.98), (function, share)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_intervals_of_units_and_distinct_values_are_whole_and_cover(law: str) -> None:
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


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_replicas_give_intervals_of_arithmetic(law: str) -> None:
    """SUM/COUNT² from 200 copies of the released values."""
    both = frozenset({"sum_m0", "count_m0"})
    answers = table(law, PICO if law == "laplace" else PICO // 8, "count", "sum", replicas=both)
    copies = answers.replicas["sum_m0"] / answers.replicas["count_m0"] ** 2
    low, high = np.quantile(copies, [0.025, 0.975], axis=0)
    truth = TRUE["sum"] / TRUE["count"] ** 2
    assert 0.92 <= np.mean((low <= truth) & (truth <= high)) <= 0.98


@pytest.mark.parametrize("p", [Fraction(1, 2), Fraction(9, 10)])
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_intervals_of_quantiles_cover_at_least_as_often_as_they_say(law: str, p: Fraction) -> None:
    """The edges double in distance, so these intervals are wider than they must be, never narrower."""
    groups, rows = 400, np.sort(np.random.default_rng(5).gamma(3.0, 120.0, 20_000).astype(int).clip(0, 4000))
    bins, counts = np.unique(rows, return_counts=True)
    core = plan(aggregate("quantile", "m0", p=p), measures=(measure(high=4000),), keys=by_key(groups))
    exact = {
        POSITION: np.repeat(np.arange(groups), bins.size),
        "bin": np.tile(bins, groups), "weight": np.tile(counts * ONE, groups),
    }  # fmt: skip
    amount = PICO // 20 if law == "laplace" else PICO // 20**2 // 8
    column = released(priced(core, law, amount), exact, groups).columns[f"quantile_m0{p}"]
    truth = float(rows[int(np.ceil(p * rows.size)) - 1])
    assert covered(column, truth) >= 0.92
    half = np.median(column.high - column.low) / 2
    spread = np.quantile(np.abs(column.values - truth), 0.95)
    assert half < 12 * spread + 4, "an interval that covers by saying nothing"


def test_the_check_catches_intervals_for_half_the_noise() -> None:
    column = table("laplace", PICO, "count").columns["count_m0"]
    middle = (column.low + column.high) / 2
    half = ReleasedColumn(column.values, (column.low + middle) / 2, (column.high + middle) / 2)
    assert covered(half, TRUE["count"]) < 0.92
