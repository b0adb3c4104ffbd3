"""The table of aggregates: names that never change, and derivations that are what plain arithmetic gives."""

import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.aggregates import AGGREGATES, AggregateSpec, ReleasedAs, TakenOf, bigint
from service.core.derivations import Choice, CodeRange, Linear, Rank, Ratio, Variance

PLAIN = {
    "count": len, "sum": np.sum, "avg": np.mean, "var_pop": np.var, "var_samp": lambda x: np.var(x, ddof=1),
    "rms": lambda x: np.sqrt(np.mean(np.square(x))), "stddev_pop": np.std, "stddev_samp": lambda x: np.std(x, ddof=1),
}  # fmt: skip
FROM_MOMENTS = [name for name, spec in AGGREGATES.items() if spec.released_as is ReleasedAs.MOMENTS]
AT = CodeRange(-40, 100)
codes = st.lists(st.integers(AT.low, AT.high), min_size=2, max_size=8)
origins = st.fractions(AT.low, AT.high, max_denominator=4)


def combined(values: list[int], origin: Fraction, combination: tuple[Fraction, ...]) -> np.ndarray:
    """A combination of n, t1 and t2 of these codes, as if it had been released without noise."""
    moments = [Fraction(len(values)), sum(x - origin for x in values), sum((x - origin) ** 2 for x in values)]
    return np.array([float(sum(c * m for c, m in zip(combination, moments, strict=True)))])


def test_names_in_stored_releases_and_digests_stay_what_they_are() -> None:
    stored = {
        "count", "sum", "avg", "var_pop", "var_samp", "stddev_pop", "stddev_samp", "min", "max", "quantile", "mode",
        "count_distinct", "count_units",
    }  # fmt: skip
    assert stored <= set(AGGREGATES)
    assert all(name == spec.name for name, spec in AGGREGATES.items())


def test_a_spelling_means_one_aggregate() -> None:
    spellings = [name for spec in AGGREGATES.values() for name in spec.spellings]
    assert len(spellings) == len(set(spellings))


@pytest.mark.parametrize("name", FROM_MOMENTS)
@given(values=codes, origin=origins)
def test_an_aggregate_of_moments_is_what_plain_arithmetic_gives(name: str, values: list[int], origin: Fraction) -> None:
    derivation = AGGREGATES[name].moments
    if isinstance(derivation, Linear):
        found = combined(values, origin, derivation.combination(origin))
    else:
        moments = tuple(combined(values, origin, c) for c in derivation.combinations(origin))
        found = derivation.value(moments, origin, AT)
    assert found[0] == pytest.approx(PLAIN[name](values), abs=1e-5, rel=1e-9)


@pytest.mark.parametrize("name", FROM_MOMENTS)
@given(origin=origins)
def test_what_is_read_is_what_the_value_is_made_of(name: str, origin: Fraction) -> None:
    """The highest moment that is read has the aggregate's degree: a measure is coded for exactly that."""
    derivation = AGGREGATES[name].moments
    read = [place for row in derivation.reads(origin) for place, c in enumerate(row) if c]
    assert max(read) == derivation.degree


@given(values=codes, origin=origins)
def test_the_slopes_of_a_variance_are_its_derivatives(values: list[int], origin: Fraction) -> None:
    plain = Variance(samples=False, root=False)
    moments = np.array([combined(values, origin, c) for c in plain.combinations(origin)])

    def variance(at: np.ndarray) -> float:
        n, t1, t2 = at[:, 0]
        return float(t2 / n - (t1 / n) ** 2)

    for place, slope in enumerate(plain.slopes(tuple(moments))[:, 0]):
        step = np.zeros((3, 1))
        step[place] = 1e-4
        assert slope == pytest.approx((variance(moments + step) - variance(moments - step)) / 2e-4, abs=2e-3, rel=1e-4)


def test_no_value_leaves_its_bounds_whatever_the_noise_did() -> None:
    wild = tuple(np.array([-1e9, -3.0, 0.0, 0.4, 1.0, 7.0, 1e12]) for _ in range(3))
    for name in FROM_MOMENTS:
        derivation = AGGREGATES[name].moments
        if isinstance(derivation, Ratio):
            low, high = derivation.within(AT)
            found = derivation.value(wild[:2], Fraction(30), AT)
            assert ((found >= low) & (found <= high)).all()
        if isinstance(derivation, Variance):
            assert (derivation.value(wild, Fraction(30), AT) >= 0).all()


def test_an_entry_that_contradicts_itself_is_not_made() -> None:
    choice = Choice(Rank.LOWEST, Fraction(0))
    with pytest.raises(AssertionError):
        AggregateSpec("odd", ReleasedAs.MOMENTS, TakenOf.MEASURE, choice, bigint, ())
    with pytest.raises(AssertionError):
        assert AGGREGATES["min"].moments
    with pytest.raises(AssertionError):
        assert AGGREGATES["sum"].choice


def test_in_another_process_there_is_one_of_each_too() -> None:
    for spec in AGGREGATES.values():
        assert pickle.loads(pickle.dumps(spec)) is spec
