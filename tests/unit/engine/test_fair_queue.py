"""The queue before the engine: bounded, and fair between those who wait."""

import threading
import time

import pytest

from service.core.errors import TooBusy
from service.engine.duckdb.processes.fair_queue import Turns


class Waiting:
    """Takes a turn in a thread and notes the order."""

    def __init__(self, turns: Turns, share: str, order: list[str]) -> None:
        self.turns, self.share, self.order = turns, share, order
        self.thread = threading.Thread(target=self._take)
        self.thread.start()

    def _take(self) -> None:
        self.turns.take(self.share, 10)
        self.order.append(self.share)


def queue_up(turns: Turns, shares: str) -> tuple[list[Waiting], list[str]]:
    order: list[str] = []
    waiting = []
    for number, share in enumerate(shares, 1):
        waiting.append(Waiting(turns, share, order))
        while sum(len(queue) for queue in turns._queues.values()) < number:
            time.sleep(0.001)
    return waiting, order


def test_a_free_place_is_taken_at_once() -> None:
    turns = Turns(2, 4)
    turns.take("a", 0)
    turns.take("a", 0)
    with pytest.raises(TooBusy):
        turns.take("a", 0)
    turns.give("a")
    turns.take("b", 0)


def test_an_analyst_with_many_questions_does_not_delay_the_others() -> None:
    turns = Turns(1, 20)
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
    turns = Turns(2, 20)
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
    turns = Turns(1, 4)
    turns.take("x", 0)
    waiting, _ = queue_up(turns, "aa")
    with pytest.raises(TooBusy):
        turns.take("a", 10)
    more, _ = queue_up(Turns(1, 4), "")
    for share in ("x", "a", "a"):
        turns.give(share)
    for held in waiting + more:
        held.thread.join()


def test_a_full_queue_refuses_at_once() -> None:
    turns = Turns(1, 2)
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
    turns = Turns(1, 2)
    turns.take("x", 0)
    with pytest.raises(TooBusy):
        turns.take("a", 0.02)
    turns.give("x")
    turns.take("b", 0)
    turns.give("b")


def test_no_more_than_the_places_ever_run() -> None:
    turns, running, most, lock = Turns(3, 100), 0, 0, threading.Lock()

    def work(share: str) -> None:
        nonlocal running, most
        for _ in range(20):
            turns.take(share, 10)
            with lock:
                running += 1
                most = max(most, running)
            time.sleep(0.0005)
            with lock:
                running -= 1
            turns.give(share)

    threads = [threading.Thread(target=work, args=(str(number % 3),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 3
    for _ in range(3):
        turns.take("end", 0)
