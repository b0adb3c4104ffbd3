"""Is what release adds to counts, sums, means and variances the noise that was charged? False alarm 1e-6.

The scale to expect is worked out here again from epsilon (rho), rows per unit and range, not read from the
code under test.
"""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import beta, norm

from service.core.amounts import PICO
from service.core.boundary import Array
from service.core.plan import ONE, Bounds, Plan
from service.privacy.noise.laws import GAUSSIAN, LAPLACE, LAWS, Law
from service.privacy.noise.sampling import SecureNoise
from tests.statistical.laws import FALSE_ALARM, gaussian_below, laplace_below, p_value
from tests.unit.privacy.questions import aggregate, attribute, by_key, measure, plan, priced, released

GROUPS = 20_000
ROWS_PER_UNIT, GROUPS_PER_UNIT, LOW, HIGH = 3, 4, -2, 6
EPSILON, RHO = Fraction(1, 2), Fraction(1, 8)
REACH = ONE * ROWS_PER_UNIT
WIDTH, MIDDLE, RADIUS = HIGH - LOW, (LOW + HIGH) // 2, 4

N, S1, S2 = 50 * ONE, 120 * ONE, 700 * ONE
EXACT = {"*.n": N, "m0.n": N, "m0.s1": S1, "m0.s2": S2, "m0.us": S1, "units": 40, "d0.d": 17}


def core(*functions: str, unit_sum: int | None = None) -> Plan:
    source = {"count": None, "count_units": None, "count_distinct": "d0"}
    caps = {"m0": Fraction(unit_sum)} if unit_sum else {}
    return plan(
        *(aggregate(f, source.get(f, "m0")) for f in functions),
        measures=(measure("m0", LOW, HIGH),), attributes=(attribute("d0", "a"),), keys=by_key(GROUPS),
        bounds=Bounds(ROWS_PER_UNIT, GROUPS_PER_UNIT, unit_sum=caps),
    )  # fmt: skip


class HalfScale(SecureNoise):
    """The broken twin: half the noise."""

    def discrete_laplace(self, scale: Fraction, size: int) -> Array:
        return super().discrete_laplace(scale / 2, size)

    def discrete_gaussian(self, sigma_squared: Fraction, size: int) -> Array:
        return super().discrete_gaussian(sigma_squared / 4, size)


def noise_of(asked: Plan, law: Law, source: SecureNoise) -> Array:
    """Released coordinates, (coordinates, groups)."""
    amount = EPSILON if law is LAPLACE else RHO
    columns = {name: np.full(GROUPS, value) for name, value in EXACT.items()}
    table = released(priced(asked, law, int(amount * PICO)), columns, GROUPS, source)
    ((_, coordinates),) = table.primitives.items()
    return coordinates


CASES = [
    ("count", core("count"), [N], [REACH], [REACH]),
    ("sum", core("sum"), [S1], [REACH * 6], [REACH * 6]),
    ("capped", core("sum", unit_sum=5), [S1], [ONE * 5], [ONE * 5]),
    ("units", core("count_units"), [40], [GROUPS_PER_UNIT], [2]),  # sqrt(4) groups under Gaussian noise
    ("distinct", core("count_distinct"), [17], [ROWS_PER_UNIT], [ROWS_PER_UNIT]),
]


@pytest.mark.parametrize(("asked", "exact", "l1", "l2"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_single_primitives_carry_noise_for_their_sensitivity(
    law: Law, asked: Plan, exact: list[int], l1: list[int], l2: list[int]
) -> None:
    for source, honest in ((SecureNoise(), True), (HalfScale(), False)):
        drawn = noise_of(asked, law, source)[0] - exact[0]
        assert (fits(drawn, law, l1[0] if law is LAPLACE else l2[0]) > FALSE_ALARM) == honest


def fits(drawn: Array, law: Law, sensitivity: int, times: int = 1) -> float:
    """p-value of noise for a sensitivity (under Gaussian noise: with `times` such vectors in one budget)."""
    if law is LAPLACE:
        scale = sensitivity / EPSILON
        return p_value(drawn, laplace_below(scale), int(60 * scale) + 60)
    variance = Fraction(times * sensitivity**2) / (2 * RHO)
    return p_value(drawn, gaussian_below(variance), int(20 * float(variance) ** 0.5) + 60)


@pytest.mark.parametrize("source", [SecureNoise(), HalfScale()], ids=["honest", "half"])
def test_joint_sums_carry_one_laplace_each(source: SecureNoise) -> None:
    honest = not isinstance(source, HalfScale)
    mean = noise_of(core("avg"), LAPLACE, source)
    exact = [S1 - LOW * N, HIGH * N - S1]
    spread = noise_of(core("var_pop"), LAPLACE, source)
    shifted = S2 - 2 * LOW * S1 + LOW**2 * N  # Σ(x - low)²
    moved = S1 - LOW * N
    squares = [WIDTH**2 * N - 2 * WIDTH * moved + shifted, 2 * (WIDTH * moved - shifted), shifted]
    for values, expected, size in ((mean, exact, WIDTH), (spread, squares, WIDTH**2)):
        drawn = [row - value for row, value in zip(values, expected, strict=True)]
        assert all((fits(row, LAPLACE, REACH * size) > FALSE_ALARM) == honest for row in drawn)
        assert independent(drawn)


@pytest.mark.parametrize("source", [SecureNoise(), HalfScale()], ids=["honest", "half"])
def test_centred_moments_carry_gaussian_noise_for_two_vectors(source: SecureNoise) -> None:
    honest = not isinstance(source, HalfScale)
    values = noise_of(core("stddev_pop"), GAUSSIAN, source)
    centred = S2 - 2 * MIDDLE * S1 + MIDDLE**2 * N
    exact = [N, S1 - MIDDLE * N, RADIUS**2 * N - centred]
    drawn = [row - value for row, value in zip(values, exact, strict=True)]
    for row, size in zip(drawn, (1, RADIUS, RADIUS**2), strict=True):
        assert (fits(row, GAUSSIAN, REACH * size, times=2) > FALSE_ALARM) == honest
    assert independent(drawn)


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("source", [SecureNoise(), HalfScale()], ids=["honest", "half"])
def test_rows_without_a_value_carry_noise_like_the_others(source: SecureNoise, law: Law) -> None:
    drawn = noise_of(core("avg", "count"), law, source)[2]  # no row is NULL here: nothing but noise
    if law is LAPLACE:
        p = fits(drawn, law, REACH * WIDTH)
    else:
        variance = Fraction(25, 49) * 2 * REACH**2 / (2 * RHO)
        p = p_value(drawn, gaussian_below(variance), int(20 * float(variance) ** 0.5))
    assert (p > FALSE_ALARM) == (not isinstance(source, HalfScale))


def independent(rows: list[Array]) -> bool:
    """No correlation between the coordinates beyond chance."""
    seen = np.corrcoef([row.astype(float) for row in rows])
    limit = norm.isf(FALSE_ALARM / 6) / GROUPS**0.5
    return bool(np.abs(seen - np.eye(len(rows))).max() < limit)


def test_the_check_of_independence_catches_noise_that_is_used_twice() -> None:
    once = SecureNoise().discrete_laplace(Fraction(100), GROUPS)
    assert not independent([once, once])


# --- Trying to falsify the promise -----------------------------------------------------------------


def odds_bound(ours: Array, theirs: Array) -> float:
    """A lower bound of log(P/Q) over the events {value >= t}, wrong with probability at most 1e-6.

    `t` runs over quantiles of a first half; the second half, untouched, gives Clopper-Pearson bounds.
    """
    half = ours.size // 2
    edges = np.quantile(np.concatenate([ours[:half], theirs[:half]]), np.linspace(0.02, 0.98, 40))
    best = -np.inf
    for edge in edges:
        for one, other in ((ours[half:], theirs[half:]), (theirs[half:], ours[half:])):
            hits, rare = int((one >= edge).sum()), int((other >= edge).sum())
            if hits:
                low = beta.ppf(FALSE_ALARM / 160, hits, one.size - hits + 1)
                high = beta.ppf(1 - FALSE_ALARM / 160, rare + 1, max(1, other.size - rare))
                best = max(best, float(np.log(low / high)))
    return best


def answers(column: str, extra: int, source: SecureNoise) -> Array:
    """Released values with and without a unit of ROWS_PER_UNIT rows, each of value HIGH."""
    rows = extra * ROWS_PER_UNIT
    moments = {"m0.n": N + rows * ONE, "m0.s1": S1 + rows * HIGH * ONE, "m0.s2": S2 + rows * HIGH**2 * ONE}
    columns = {name: np.full(GROUPS, value) for name, value in moments.items()}
    asked = core("avg", "sum")
    table = released(priced(asked, LAPLACE, 2 * PICO), columns, GROUPS, source)
    return table.columns[column].values.astype(float)


@pytest.mark.parametrize("column", ["sum_m0", "avg_m0"])
def test_no_event_tells_a_unit_apart_beyond_epsilon(column: str) -> None:
    assert odds_bound(answers(column, 1, SecureNoise()), answers(column, 0, SecureNoise())) <= 2.0


def test_the_falsifier_catches_half_the_noise() -> None:
    assert odds_bound(answers("sum_m0", 1, HalfScale()), answers("sum_m0", 0, HalfScale())) > 2.0
