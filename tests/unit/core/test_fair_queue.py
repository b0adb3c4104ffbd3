"""The queue before the engine: bounded, and fair between those who wait."""

import threading
import time

import pytest

from service.core.errors import TooBusy
from service.core.fair_queue import FairQueue


class Waiting:
    """Takes a turn in a thread and notes the order."""

    def __init__(self, turns: FairQueue, caller: str, order: list[str]) -> None:
        self.turns, self.caller, self.order = turns, caller, order
        self.thread = threading.Thread(target=self._take)
        self.thread.start()

    def _take(self) -> None:
        self.turns.take(self.caller, 10)
        self.order.append(self.caller)


def queue_up(turns: FairQueue, shares: str) -> tuple[list[Waiting], list[str]]:
    order: list[str] = []
    waiting = []
    for number, caller in enumerate(shares, 1):
        waiting.append(Waiting(turns, caller, order))
        while sum(len(queue) for queue in turns._queues.values()) < number:
            time.sleep(0.001)
    return waiting, order


def test_a_free_place_is_taken_at_once() -> None:
    turns = FairQueue(2, 4)
    turns.take("a", 0)
    turns.take("a", 0)
    with pytest.raises(TooBusy):
        turns.take("a", 0)
    turns.give("a")
    turns.take("b", 0)


def test_an_analyst_with_many_questions_does_not_delay_the_others() -> None:
    turns = FairQueue(1, 20)
    turns.take("greedy", 0)
    waiting, order = queue_up(turns, "ggggab")
    running = "greedy"
    for number in range(6):
        turns.give(running)
        while len(order) <= number:
            time.sleep(0.001)
        running = order[-1]
    for held in waiting:
        held.thread.join()
    assert order[:3] == ["g", "a", "b"]
    assert order[3:] == ["g", "g", "g"]


def test_the_place_goes_to_whoever_runs_least() -> None:
    turns = FairQueue(2, 20)
    turns.take("a", 0)
    turns.take("b", 0)
    waiting, order = queue_up(turns, "ab")
    turns.give("b")
    while not order:
        time.sleep(0.001)
    assert order == ["b"]
    turns.give("a")
    for held in waiting:
        held.thread.join()


def test_one_analyst_fills_at_most_half_of_the_queue() -> None:
    turns = FairQueue(1, 4)
    turns.take("x", 0)
    waiting, _ = queue_up(turns, "aa")
    with pytest.raises(TooBusy):
        turns.take("a", 10)
    more, _ = queue_up(FairQueue(1, 4), "")
    for caller in ("x", "a", "a"):
        turns.give(caller)
    for held in waiting + more:
        held.thread.join()


def test_a_full_queue_refuses_at_once() -> None:
    turns = FairQueue(1, 2)
    turns.take("x", 0)
    waiting, _ = queue_up(turns, "ab")
    began = time.monotonic()
    with pytest.raises(TooBusy):
        turns.take("c", 10)
    assert time.monotonic() - began < 1
    turns.give("x")
    turns.give("a")
    for held in waiting:
        held.thread.join()


def test_who_gives_up_waiting_leaves_no_trace() -> None:
    turns = FairQueue(1, 2)
    turns.take("x", 0)
    with pytest.raises(TooBusy):
        turns.take("a", 0.02)
    turns.give("x")
    turns.take("b", 0)
    turns.give("b")


def test_no_more_than_the_places_ever_run() -> None:
    turns, running, most, lock = FairQueue(3, 100), 0, 0, threading.Lock()

    def work(caller: str) -> None:
        nonlocal running, most
        for _ in range(20):
            turns.take(caller, 10)
            with lock:
                running += 1
                most = max(most, running)
            time.sleep(0.0005)
            with lock:
                running -= 1
            turns.give(caller)

    threads = [threading.Thread(target=work, args=(str(number % 3),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 3
    for _ in range(3):
        turns.take("end", 0)


def test_one_caller_leaves_a_place_to_the_next() -> None:
    turns = FairQueue(3, 10, each=2)
    turns.take("greedy", 0)
    turns.take("greedy", 0)
    with pytest.raises(TooBusy):
        turns.take("greedy", 0.01)
    turns.take("modest", 0)
    with pytest.raises(TooBusy):
        turns.take("late", 0.01)
    turns.give("modest")
    turns.take("late", 0)


def test_whoever_holds_all_that_one_may_hold_waits_for_a_place_of_its_own() -> None:
    turns = FairQueue(2, 10, each=1)
    turns.take("a", 0)
    waiting, order = queue_up(turns, "a")
    turns.take("b", 0)
    turns.give("b")
    assert order == [], "the place that b gave back is not for a, which has one"
    turns.take("b", 0)
    turns.give("a")
    waiting[0].thread.join()
    assert order == ["a"]
