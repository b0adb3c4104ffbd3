"""Rungs: the few lengths of time that anybody is shown in place of how long something took."""

import math


def rung_at_or_above(seconds: float, step_s: float) -> float:
    """The shortest of step · 2^k that is not shorter."""
    return step_s * 2.0 ** max(0, math.ceil(math.log2(max(seconds, step_s) / step_s)))
