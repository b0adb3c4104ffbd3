"""Noise: exact draws per second beside opendp's, and what pricing and choosing cost."""

import os
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import opendp.prelude as dp

from service.core.events import LaplaceEvent
from service.core.plan import ONE, Bounds
from service.privacy.accounting import costs
from service.privacy.mechanisms.approximate_bounds import ApproximateBounds
from service.privacy.mechanisms.quantile import Histograms, Quantile, RankDraw
from service.privacy.mechanisms.selection import choose_rule, decide
from service.privacy.noise.laws import GAUSSIAN, LAPLACE
from service.privacy.noise.sampling import SecureNoise

SCALE = 100
REPEATS = 3


def rows() -> list[tuple[str, str]]:
    """(name, printed figure) pairs. HALFTONE_BENCH_QUICK=1 draws fewer."""
    draws = 50_000 if os.environ.get("HALFTONE_BENCH_QUICK") else 1_000_000
    return [*_against_opendp(draws), *_single_draws(), *_quality(draws), *_mechanisms()]


def _against_opendp(draws: int) -> list[tuple[str, str]]:
    """The same law on a vector of the same length, ours and opendp's turn by turn."""
    dp.enable_features("contrib")
    noise = SecureNoise()
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    zeros = [0] * draws
    laplace = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=float(SCALE))
    gaussian = dp.m.make_gaussian(domain, dp.l2_distance(T="i64"), scale=float(SCALE))
    pairs: list[tuple[str, Callable[[], object], Callable[[], object], int]] = [
        ("Laplace", lambda: noise.discrete_laplace(Fraction(SCALE), draws), lambda: laplace(zeros), 15),
        ("Gaussian", lambda: noise.discrete_gaussian(Fraction(SCALE**2), draws), lambda: gaussian(zeros), 10),
    ]
    result = []
    for name, ours, theirs, wanted in pairs:
        ours()
        seconds = min(_seconds(ours) for _ in range(REPEATS))
        other = _seconds(theirs)
        figure = f"{seconds / draws * 1e9:.0f} ns a draw, opendp {other / draws * 1e9:.0f} ns: "
        result.append((f"{name}, {draws:,} draws", f"{figure}{other / seconds:.0f} times faster (at least {wanted})"))
    for name, wide in (("2^40 + 1/3", Fraction(3 * 2**40 + 1, 3)), ("2^60", Fraction(2**60))):
        seconds = _seconds(lambda wide=wide: noise.discrete_laplace(wide, draws // 5))  # type: ignore[misc]
        result.append((f"Laplace of scale {name}", f"{seconds / (draws // 5) * 1e9:.0f} ns a draw"))
    return result


def _single_draws() -> list[tuple[str, str]]:
    """One value of a scale never seen before: tables and thresholds are computed too."""
    noise = SecureNoise()
    laplace = _median(lambda i: noise.discrete_laplace(Fraction(10**6 + i, 7), 1))
    gaussian = _median(lambda i: noise.discrete_gaussian(Fraction(10**12 + 10**7 * i, 7), 1))
    return [
        ("one Laplace draw, new scale", f"{laplace * 1e3:.2f} ms (at most 1)"),
        ("one Gaussian draw, new scale", f"{gaussian * 1e3:.2f} ms (at most 1)"),
    ]


def _quality(draws: int) -> list[tuple[str, str]]:
    """Mean squared error of the noise against its formula."""
    noise = SecureNoise()
    t = np.exp(-1 / SCALE)
    cases = [
        ("Laplace", noise.discrete_laplace(Fraction(SCALE), draws), 2 * t / (1 - t) ** 2),
        ("Gaussian", noise.discrete_gaussian(Fraction(SCALE**2), draws), float(SCALE**2)),
    ]
    return [
        (f"{name} squared error over theory", f"{np.mean(drawn.astype(float) ** 2) / theory:.4f} (within 5%)")
        for name, drawn, theory in cases
    ]


def _mechanisms() -> list[tuple[str, str]]:
    noise, rng = SecureNoise(), np.random.default_rng()
    groups, bins, each = 2_000, 4096, 50
    histograms = Histograms(
        groups,
        bins,
        np.repeat(np.arange(groups), each),
        np.concatenate([rng.choice(bins, each, replace=False) for _ in range(groups)]),
        rng.integers(1, 100, groups * each) * ONE,
    )
    median = _seconds(lambda: RankDraw(Quantile(Fraction(1, 2)), 1, Fraction(1)).release(histograms, noise))
    found = ApproximateBounds(1, 32, LAPLACE, Fraction(1, 10))
    counts = np.zeros(64, dtype=np.int64)
    bound = _median(lambda i: found.release(counts, noise))
    terms = costs.open_terms(10**12, 10**12, keys_declared=False)
    price = _median(lambda i: costs.cost(_laplace_event(i), terms))
    rule = _median(lambda i: choose_rule(Bounds(1, 5), LAPLACE, Fraction(10**6 + i, 10**7), Fraction(1, 10**6)))
    chosen = choose_rule(Bounds(1, 5), GAUSSIAN, Fraction(1, 100), Fraction(1, 10**6))
    judged = _seconds(lambda: decide(np.full(200_000, ONE), None, chosen, noise))
    return [
        (f"median in {groups:,} groups of {each} values", f"{median * 1e3:.0f} ms"),
        ("approximate bounds, 64 bins", f"{bound * 1e3:.2f} ms"),
        ("price of a new Laplace event, 6 orders", f"{price * 1e3:.2f} ms"),
        ("choice of a selection rule", f"{rule * 1e3:.2f} ms"),
        ("selection among 200,000 groups", f"{judged * 1e3:.0f} ms"),
    ]


def _laplace_event(i: int) -> LaplaceEvent:
    return LaplaceEvent(Fraction(20 * ONE), Fraction(20 * ONE * 10**12, 10**11 + i))


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _median(work: Callable[[int], object]) -> float:
    """The median of 21 runs, each with its own number."""
    return float(np.median([_seconds(lambda i=i: work(i)) for i in range(21)]))  # type: ignore[misc]


if __name__ == "__main__":
    for name, figure in rows():
        print(f"{name:44} {figure}")
