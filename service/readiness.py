"""Is the service ready? Threads of their own look, and whoever asks is told what they saw last.

So asking costs nothing, waits for nobody and writes nothing, however often anybody asks: `/readyz` needs no key.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

AGAIN_S = 1.0  # after a look that failed
SLACK_S = 30.0  # a look that takes longer than this has not succeeded


@dataclass(frozen=True, slots=True)
class Probe:
    """One look: `check` raises when `name` does not answer; it is called every `every_s` seconds."""

    name: str
    check: Callable[[], None]
    every_s: float


class Lookout:
    """What does not answer, by name. Until something has answered once, it counts as missing."""

    def __init__(self, *probes: Probe, clock: Callable[[], float] = time.monotonic) -> None:
        self._probes = probes
        self._clock = clock
        self._answered: dict[str, float] = {}  # when each answered last, as long as it does
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._look, args=(probe,), name=f"ready-{probe.name}", daemon=True)
            for probe in probes
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def missing(self) -> list[str]:
        now = self._clock()
        return [
            probe.name
            for probe in self._probes
            if (seen := self._answered.get(probe.name)) is None or now - seen > probe.every_s + SLACK_S
        ]

    def close(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(SLACK_S)

    def look(self, probe: Probe) -> bool:
        """Once; whether it answered."""
        try:
            probe.check()
        except Exception:
            self._answered.pop(probe.name, None)
            return False
        self._answered[probe.name] = self._clock()
        return True

    def _look(self, probe: Probe) -> None:
        while not self._ending.is_set():
            answered = self.look(probe)
            self._ending.wait(probe.every_s if answered else AGAIN_S)
