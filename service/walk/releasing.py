"""From emitted cores to released tables, wherever that runs: here, or in a process of its own.

The service runs it in processes of their own (service/walk/release_process.py). How long it takes depends on private
rows: on how many candidates a selection has, on how many bins are not empty. In the process that answers everybody,
everybody would feel that. So an order goes out, messages come back, and they are looked at when the time has come
that was promised (service/walk/promised_time.py), not when they arrive.
"""

import logging
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from service.core.boundary import Array, Primitive, ReleasedTable
from service.engine.base import Slot
from service.privacy.noise.sampling import NoiseSource
from service.walk.core_run import CoreRun, Releasing

log = logging.getLogger("halftone.answer")


@dataclass(frozen=True, slots=True, repr=False)
class ReleaseOrder:
    """The cores of one charged question. `replicas` and `bases` by core; `deadline` is a time.monotonic() value, which
    all processes of a machine share."""

    query_id: str
    runs: tuple[CoreRun, ...]
    replicas: tuple[frozenset[str], ...]
    bases: tuple[Mapping[Primitive, Array] | None, ...]
    noise: NoiseSource
    deadline: float


@dataclass(frozen=True, slots=True)
class Selected:
    """Keys of a core may be named: so many."""

    groups: int


@dataclass(frozen=True, slots=True)
class Finished:
    """All cores, released."""

    tables: tuple[ReleasedTable, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """Something went wrong; `kind` is for the operator's log."""

    kind: str


Message = Selected | Finished | Failed


class Release(Protocol):
    """An order under way, since `begun`: the moment at which it was handed over."""

    @property
    def begun(self) -> float: ...

    def there_at(self, moment: float) -> Message | None:
        """The next message, if it was there at this moment, which has passed."""

    def wait(self, until: float) -> Message | None:
        """The next message as soon as it is there."""

    def stop(self) -> None:
        """Nobody waits any more."""


class Releasers(Protocol):
    """Who carries out orders."""

    def start(self, order: ReleaseOrder, slot: Slot) -> Release: ...

    def close(self) -> None: ...


def carry_out(order: ReleaseOrder, slot: Slot, say: Callable[[Message], None]) -> None:
    """Core after core; exactly one Finished or Failed, and a Selected before it for every core whose keys are chosen.

    Whatever goes wrong is one Failed: which error it was may depend on rows, so no more than its kind leaves.
    """
    tables = []
    try:
        for run, replicas, base in zip(order.runs, order.replicas, order.bases, strict=True):
            at = Releasing(slot, order.noise, order.deadline, lambda groups: say(Selected(groups)))
            tables.append(run.release(at, replicas=replicas, base=base))
    except Exception as cause:
        log.debug("cause of %s", order.query_id, exc_info=cause)
        say(Failed(type(cause).__name__))
        return
    say(Finished(tuple(tables)))


@dataclass(slots=True)
class ReleaseHere:
    """An order that was carried out at once, by whoever gave it; messages bear the time at which they were said."""

    begun: float
    said: deque[tuple[float, Message]] = field(default_factory=deque)

    @staticmethod
    def failed(kind: str, begun: float) -> "ReleaseHere":
        """An order that came to nothing from the beginning."""
        return ReleaseHere(begun, deque([(-math.inf, Failed(kind))]))

    def there_at(self, moment: float) -> Message | None:
        return self.said.popleft()[1] if self.said and self.said[0][0] <= moment else None

    def wait(self, until: float) -> Message | None:
        return self.there_at(until)

    def stop(self) -> None:
        self.said.clear()
