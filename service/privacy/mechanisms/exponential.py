"""The exponential mechanism, drawn exactly, for many groups at once."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from service.core.boundary import Array, Floats
from service.privacy.noise.decided import exp_bounds, exp_minus
from service.privacy.noise.sampling import NoiseSource

# Shares of a group are held as integers of 62 bits, so a running sum never rounds.
SHARE_BITS = 62
BAND = 1 << 22
BAND_PER_CANDIDATE = 1 << 10


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of many independent draws, side by side.

    Draw g owns entries starts[g] … starts[g+1]-1, at least one. Entry i stands for `copies[i]` >= 1 equal
    candidates, each with probability proportional to e**(-rate·costs[i]). `costs` are non-negative
    integers: int64, or Python integers in an object array.
    """

    costs: Array
    copies: Array
    starts: Array


def choose(candidates: Candidates, rate: Fraction, noise: NoiseSource) -> Array:
    """One entry per draw, with probability proportional to copies·e**(-rate·cost).

    Neighbours   all rows of one privacy unit are added or removed.
    Needs        costs are integers; the rate is rational. Nothing is compared in floats that is not proved.
    Sensitivity  the costs of draw g move by at most d_g, with d_g summing to at most D over all draws.
    Guarantee    draw g changes by a factor of at most e**(2·rate·d_g): e**(rate·d_g) from the entry and as
                 much from the sum. Over all draws that is e**(2·rate·D) = e**epsilon for
                 rate = epsilon/(2·D). Costs that only ever move one way need half as much:
                 rate = epsilon/D. Either way the log of the factor ranges over an interval of length
                 epsilon, which gives the Rényi cost a·epsilon²/8 (Dong, Durfee, Rogers 2020).
    Exactness    a uniform number of 62 bits is compared with the running sums of the shares. An
                 entry's weight is off by less than 2**-43 of itself (the product of cost and rate, at most
                 128, by 3·2**-53 of itself; exp_minus by 2**-48; beyond 128 the weight is below 2**-180),
                 a sum of n by n·2**-53 more, cutting to 62 bits by 1 each. BAND covers all of it four times;
                 within the band the draw is decided by exact_choice, with more bits.
    Checked by   tests/statistical/test_exponential.py, tests/unit/privacy/test_exponential.py.
    """
    starts, draws = candidates.starts[:-1], candidates.starts.size - 1
    if not draws:
        return np.zeros(0, dtype=np.int64)
    sizes = np.diff(candidates.starts)
    owner = np.repeat(np.arange(draws), sizes)
    ends = _running_shares(candidates, rate, owner)
    uniform = (noise.words(draws) >> np.uint64(64 - SHARE_BITS)).astype(np.int64)
    gap = ends - uniform[owner]
    passed = np.add.reduceat((gap <= 0).astype(np.int64), starts)
    chosen: Array = starts + np.minimum(passed, sizes - 1)  # the last sum is 1: nothing lies beyond it
    near = np.abs(gap) <= BAND + BAND_PER_CANDIDATE * sizes[owner]
    near[candidates.starts[1:] - 1] = False
    for draw in np.unique(owner[near]).tolist():
        chosen[draw] = starts[draw] + exact_choice(_one(candidates, draw), rate, int(uniform[draw]), noise)
    return chosen


def _running_shares(candidates: Candidates, rate: Fraction, owner: Array) -> Array:
    """Running sums of each draw's shares, in units of 2**-62. The integers wrap; differences do not."""
    starts = candidates.starts[:-1]
    excess = candidates.costs - np.minimum.reduceat(candidates.costs, starts)[owner]
    weights: Floats = candidates.copies.astype(np.float64) * exp_minus(excess.astype(np.float64) * float(rate))
    shares = weights / np.add.reduceat(weights, starts)[owner]
    running = np.cumsum((shares * 2.0**SHARE_BITS).astype(np.uint64), dtype=np.uint64)
    before = np.where(starts > 0, running[starts - 1], np.uint64(0))
    ends: Array = (running - before[owner]).astype(np.int64)
    return ends


def _one(candidates: Candidates, draw: int) -> tuple[list[int], list[int]]:
    part = slice(int(candidates.starts[draw]), int(candidates.starts[draw + 1]))
    return [int(cost) for cost in candidates.costs[part]], [int(copies) for copies in candidates.copies[part]]


def exact_choice(entries: tuple[list[int], list[int]], rate: Fraction, prefix: int, noise: NoiseSource) -> int:
    """The entry in which a uniform number falls, whose first 62 bits are `prefix`.

    Every weight is bracketed by integers, hence every running sum; the number times the whole sum is
    bracketed too. When one entry holds the whole bracket it is the answer; else more bits are drawn.
    """
    costs, copies = entries
    least, known = min(costs), SHARE_BITS
    while True:
        bits = known + 16 + sum(copies).bit_length()
        brackets = {cost: exp_bounds((cost - least) * rate, bits) for cost in set(costs)}
        ends, low, high = [], 0, 0
        for cost, copy in zip(costs, copies, strict=True):
            low, high = low + copy * brackets[cost][0], high + copy * brackets[cost][1]
            ends.append((low << known, high << known))
        point = prefix * low, (prefix + 1) * high
        ends[-1] = (point[1], point[1])
        entry = next(i for i, end in enumerate(ends) if end[0] >= point[1])
        if entry == 0 or ends[entry - 1][1] <= point[0]:
            return entry
        prefix, known = prefix << 64 | noise.bits(64), known + 64
