"""Waiting for room in the allowance of failures, before anything is charged and without an engine slot.

The ledger refuses a charge while so many queries run as may still fail (NoRoomYet, invariant W2 in
service/ledger/allowances.py). Those ends are public moments, so waiting for them tells nothing.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from service.ledger.allowances import NO_ROOM, NoRoomYet
from service.ledger.book import Ledger

T = TypeVar("T")

FIRST_LOOK_S, RAREST_LOOK_S = 0.01, 0.1


@dataclass(frozen=True, slots=True)
class Room:
    """The allowance of a dataset and of one owner's keys, and how long to wait for a place in it."""

    ledger: Ledger
    dataset: str
    owner: str
    wait_s: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def when_there_is_some(self, attempt: Callable[[], T]) -> T:
        """`attempt`'s result: tried when there seems to be room, and again when others took it meanwhile.

        `attempt` takes a slot and reserves; when its reserve says NoRoomYet it has given the slot back.
        """
        until, pause_s = self.clock() + self.wait_s, FIRST_LOOK_S
        while True:
            if self.ledger.seems_to_have_room(self.dataset, self.owner):
                try:
                    return attempt()
                except NoRoomYet:
                    if self.clock() >= until:
                        raise
            elif self.clock() >= until:
                raise NoRoomYet(NO_ROOM, {"retry_after_s": 2})
            self.sleep(max(0.0, min(pause_s, until - self.clock())))
            pause_s = min(2 * pause_s, RAREST_LOOK_S)
