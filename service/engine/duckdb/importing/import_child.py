"""The child process of an import: one job each, within limits of its own, and its failures in words for an admin."""

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from service.core.errors import ServiceError, SourceRefused
from service.core.rungs import rung_at_or_above
from service.engine.duckdb.processes.child import Child, ChildLost

MODULE = "service.engine.duckdb.importing.build"
MINUTE_S = 60.0
NICENESS = 10  # an import waits for everybody


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What one import may use; `threads` None: all cores. `step_s`: what others can see of it (its charge, its version)
    comes step · 2^k after it began; 0: when it is ready."""

    memory_bytes: int = 4 * 2**30
    threads: int | None = None
    seconds: float = 6 * 3600.0
    step_s: float = 0.0

    def wait_for_rung(self, began: float) -> None:
        """How long an import takes depends on private rows, and everybody sees when its version serves. Beyond a minute
        it waits for the next whole one: one unit's rows move a long import by less than a short one."""
        if self.step_s > 0:
            passed = time.monotonic() - began
            rung = rung_at_or_above(passed, self.step_s)
            if rung > MINUTE_S:
                rung = MINUTE_S * math.ceil(passed / MINUTE_S)
            time.sleep(rung - passed)


class ImportChild:
    """Runs the jobs of imports, each in a process that ends with it."""

    def __init__(self, options: ImportOptions) -> None:
        self._options = options

    def run(self, job: dict[str, Any], tell: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
        threads = self._options.threads or os.cpu_count() or 1
        child = Child(MODULE, memory_bytes=self._options.memory_bytes, threads=threads, niceness=NICENESS)
        try:
            child.wait_ready()
            answer, _ = child.call(job, b"", self._options.seconds, tell)
        except ChildLost as lost:
            raise _lost(late=lost.late) from None
        finally:
            child.kill()
        if "refused" in answer:
            raise SourceRefused(answer["refused"], answer["extra"])
        if answer.get("error") == "memory":
            raise SourceRefused("the import needs more memory or spill space than it may use", _REMEDY)
        if "error" in answer:
            raise SourceRefused("the source could not be prepared", {"kind": str(answer["error"])})
        return answer


_REMEDY: dict[str, str | int] = {"remedy": "raise HALFTONE_ENGINE_MEMORY or import fewer columns"}


def _lost(*, late: bool) -> ServiceError:
    if late:
        return SourceRefused("the import took longer than it may", {})
    return SourceRefused("the import was stopped by its memory limit or from outside", _REMEDY)
