"""Derived aggregates, with and without noise."""

from fractions import Fraction

import numpy as np
import pytest

from service.core.plan import ONE
from service.core.schema import DOUBLE, SqlType
from service.privacy.noise.laws import LAWS, Law
from tests.unit.privacy.questions import Silent, aggregate, by_key, measure, plan, priced, released

EVERY = ("count", "sum", "avg", "rms", "var_pop", "var_samp", "stddev_pop", "stddev_samp")


def moments(values: list[int]) -> dict[str, list[int]]:
    return {
        "m0.n": [ONE * len(values)],
        "m0.s1": [ONE * sum(values)],
        "m0.s2": [ONE * sum(v * v for v in values)],
    }


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_without_noise_every_aggregate_is_the_plain_one(law: Law) -> None:
    values = [3, 97, 41, 40, 12]
    core = plan(*(aggregate(f, "m0") for f in EVERY), measures=(measure(),))
    table = released(priced(core, law), moments(values), noise=Silent())
    got = {name: column.values[0] for name, column in table.columns.items()}
    assert got["count_m0"] == 5
    assert got["sum_m0"] == sum(values)
    expected = {
        "avg_m0": np.mean(values), "var_pop_m0": np.var(values), "var_samp_m0": np.var(values, ddof=1),
        "stddev_pop_m0": np.std(values), "stddev_samp_m0": np.std(values, ddof=1),
        "rms_m0": np.sqrt(np.mean(np.square(values))),
    }  # fmt: skip
    for name, value in expected.items():
        column = table.columns[name]
        assert abs(got[name] - value) <= (column.high[0] - column.low[0]) / 100 + 1e-9, name
        assert column.low[0] <= value <= column.high[0]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_sum_alone_count_alone_and_steps(law: Law) -> None:
    cents = measure(step=Fraction(1, 100), low=-5000, high=700_000)
    core = plan(aggregate("sum", "m0", SqlType("DECIMAL", 18, 2)), measures=(cents,))
    assert released(priced(core, law), {"m0.s1": [ONE * 12345], "m0.n": [ONE]}, noise=Silent()).columns[
        "sum_m0"
    ].values[0] == pytest.approx(123.45)
    core = plan(aggregate("count", None))
    assert released(priced(core, law), {"*.n": [ONE * 77]}, noise=Silent()).columns["count_all"].values[0] == 77


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("function", ["count", "sum", "avg", "var_pop"])
def test_rows_without_a_value_count_as_rows_and_nothing_else(function: str, law: Law) -> None:
    core = plan(aggregate(function, "m0"), aggregate("count", None), measures=(measure(),))
    exact = {"*.n": [9 * ONE], **moments([10, 30, 20])}
    table = released(priced(core, law), exact, noise=Silent())
    assert table.columns["count_all"].values[0] == 9
    plain = {"count": 3, "sum": 60, "avg": 20, "var_pop": 200 / 3}[function]
    assert table.columns[f"{function}_m0"].values[0] == pytest.approx(plain, rel=0.06)
    assert len(table.primitives) == 1


def test_an_empty_group_looks_like_any_other() -> None:
    core = plan(*(aggregate(f, "m0") for f in EVERY), measures=(measure(low=10, high=20),), keys=by_key(400))
    zeros = np.zeros(400, dtype=np.int64)
    for law in LAWS:
        table = released(priced(core, law), {"m0.n": zeros, "m0.s1": zeros, "m0.s2": zeros}, 400)
        for name, column in table.columns.items():
            assert np.isfinite(column.values.astype(float)).all(), name
            assert (column.low <= column.high).all(), name
        average = table.columns["avg_m0"]
        assert ((average.values >= 10) & (average.values <= 20)).all()
        assert (average.low == 10).mean() > 0.9  # nobody there: nothing is known of the mean
        assert (table.columns["count_m0"].values < 0).any()  # counts are not clamped at zero


def test_huge_integers_neither_wrap_nor_raise() -> None:
    top = 10**18
    wide = measure(low=-top, high=top)
    core = plan(aggregate("sum", "m0"), aggregate("avg", "m0"), measures=(wide,))
    exact = {"m0.n": np.array([ONE * 3], dtype=object), "m0.s1": np.array([ONE * 3 * top], dtype=object)}
    for law in LAWS:
        table = released(priced(core, law), exact, noise=Silent())
        assert table.columns["sum_m0"].values[0] == 3 * top
        assert table.columns["avg_m0"].values[0] == pytest.approx(top)
        released(priced(core, law, amount=10**6), exact)


def test_a_sum_beyond_bigint_is_held_at_its_end() -> None:
    wide = measure(low=0, high=2**62)
    core = plan(aggregate("sum", "m0"), measures=(wide,))
    exact = {"m0.n": np.array([1], dtype=object), "m0.s1": np.array([ONE * 2**66], dtype=object)}
    assert released(priced(core), exact, noise=Silent()).columns["sum_m0"].values[0] == 2**63 - 1


def test_a_measure_with_one_possible_value_is_only_counted() -> None:
    core = plan(
        aggregate("sum", "m0"), aggregate("avg", "m0"), aggregate("var_pop", "m0"), measures=(measure(low=7, high=7),)
    )
    for law in LAWS:
        at = priced(core, law)
        table = released(at, {"m0.n": [ONE * 5], "m0.s1": [0], "m0.s2": [0]}, noise=Silent())
        assert [table.columns[f"{f}_m0"].values[0] for f in ("sum", "avg", "var_pop")] == [35, 7.0, 0.0]


@pytest.mark.parametrize(("low", "high", "least", "most"), [(-9, 4, 0, 9), (3, 8, 3, 8), (-8, -3, 3, 8), (0, 0, 0, 0)])
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_a_root_mean_square_never_leaves_what_its_bounds_allow(
    law: Law, low: int, high: int, least: int, most: int
) -> None:
    """In empty groups, where noise is all there is, nothing is known of it; with many rows it is known well."""
    halves = measure(low=low, high=high, step=Fraction(1, 2))
    core = plan(aggregate("rms", "m0"), measures=(halves,), keys=by_key(400))
    for rows in (0, 1, 10**6):
        sums = {"m0.n": rows, "m0.s1": rows * low, "m0.s2": rows * low * low}
        exact = {name: np.full(400, ONE * value) for name, value in sums.items()}
        column = released(priced(core, law), exact, 400).columns["rms_m0"]
        for values in (column.values, column.low, column.high):
            assert ((values >= least / 2) & (values <= most / 2)).all()
        assert ((column.low <= column.values) & (column.values <= column.high)).all()
        if rows == 0:
            assert ((column.low == least / 2) & (column.high == most / 2)).mean() > 0.9
    assert np.abs(column.values - abs(low) / 2).max() <= 0.01


def test_values_carry_no_more_digits_than_the_noise_leaves() -> None:
    core = plan(aggregate("sum", "m0", DOUBLE), measures=(measure(step=Fraction(1, 1024), high=10**6),))
    value = released(priced(core), {"m0.n": [0], "m0.s1": [ONE * 987654321]}).columns["sum_m0"].values[0]
    assert value == round(value / 10) * 10  # the half-width is about 3,000


def test_replicas_share_the_noise_of_their_part() -> None:
    core = plan(aggregate("sum", "m0", DOUBLE), aggregate("count", "m0"), measures=(measure(),), keys=by_key(3))
    exact = {"m0.n": [ONE * 1000] * 3, "m0.s1": [ONE * 100_000] * 3}
    table = released(priced(core), exact, 3, replicas=frozenset({"sum_m0", "count_m0"}))
    assert table.replicas["sum_m0"].shape == (200, 3)
    both = np.corrcoef(table.replicas["sum_m0"][:, 0], table.replicas["count_m0"][:, 0])[0, 1]
    assert 0.5 < both < 0.9  # 1/sqrt(2) for low = 0
