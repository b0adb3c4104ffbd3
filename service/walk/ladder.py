"""When an answer that touched private rows may leave.

Invariant T1: the moment at which a result becomes visible is arrival + step·2^k, for success and
failure alike; noise is drawn, and the answer made, before the rung is chosen. What is left of the
time channel is the rung itself: at most log2(deadline / step) values. `constant` leaves one value.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Ladder:
    """The moments at which results may leave. `step_ms` 0 switches the ladder off; `constant`: everything
    leaves at the deadline.

    `clock` is what arrivals are measured with; tests hand over one that they can wind.
    """

    step_ms: int
    deadline_ms: int
    mode: Literal["doubling", "constant"] = "doubling"
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def rung_ms(self, elapsed_ms: float) -> float:
        """The first rung at or after `elapsed_ms`, in milliseconds after arrival."""
        if self.step_ms == 0:
            return elapsed_ms
        rung = float(self.deadline_ms if self.mode == "constant" else self.step_ms)
        while rung < elapsed_ms:
            rung *= 2
        return rung

    def hold_until_rung(self, arrived: float) -> None:
        """Sleep until the next rung; `arrived` is the clock at arrival."""
        elapsed_ms = (self.clock() - arrived) * 1000
        pause_s = (self.rung_ms(elapsed_ms) - elapsed_ms) / 1000
        if pause_s > 0:
            self.sleep(pause_s)
