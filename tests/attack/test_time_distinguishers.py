"""Does anything about time, order, status or headers tell whether one person is in the data?

A distinguisher sees 200 runs of each side of a pair of neighbours (tests/fixtures/neighbours.py) and looks at every
statistic of them: the rank of each time among those of the other side, and every other thing that was seen as a word.
It must be at chance; and the same distinguisher must be right nearly always about the old behaviour, its broken twin.
Times are compared with each other inside one run, never with a number of seconds.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import pytest

from service.ledger.book import By
from tests.fixtures.neighbours import KEYS, PERSON, SIDES, Neighbours, neighbours

RUNS = 200
MOST_LATE = 20  # of several hundred, beside whatever else runs on the machine
FEWER = 50  # where `make test-slow` has them all
CHANCE = 5.0  # deviations of the rank sum that chance passes once in two million
HEAVY = f"SELECT COUNT(DISTINCT note || CAST(amount AS VARCHAR)) AS n FROM events WHERE person = {PERSON}"
GROUPED = f"SELECT day, SUM(amount) AS s FROM events WHERE person = {PERSON} AND day IN (1, 2, 3) GROUP BY day"
FANNED = f"SELECT COUNT(*) AS n FROM events e CROSS JOIN cal c WHERE e.person = {PERSON} AND e.amount >= 0"
HEAVIER = f"SELECT COUNT(DISTINCT e.note || c.label) AS n FROM events e CROSS JOIN cal c WHERE e.person = {PERSON}"
PLAIN = "SELECT COUNT(*) AS n FROM events"


@dataclass
class Seen:
    """What was seen of one side: times by what they are of, and everything else in words."""

    times: dict[str, list[float]] = field(default_factory=dict)
    words: Counter[str] = field(default_factory=Counter)

    def time(self, name: str, seconds: float) -> None:
        self.times.setdefault(name, []).append(seconds)


def deviations(one: list[float], other: list[float]) -> float:
    """How far the ranks of one side lie from what chance gives, in its deviations (Mann and Whitney)."""
    placed = sorted([(value, 0) for value in one] + [(value, 1) for value in other])
    ranks = sum(at + 1 for at, (_, side) in enumerate(placed) if side == 0)
    n, m = len(one), len(other)
    return (ranks - n * (n + m + 1) / 2) / math.sqrt(n * m * (n + m + 1) / 12)


def told_apart(sides: dict[str, Seen]) -> dict[str, float]:
    """Statistics by which the distinguisher would be right more often than chance: their deviations."""
    with_them, without_them = (sides[side] for side in SIDES)
    found = {name: deviations(with_them.times[name], without_them.times[name]) for name in with_them.times}
    words = set(with_them.words) | set(without_them.words)
    for word in words:
        a, b = with_them.words[word], without_them.words[word]
        found[word] = (a - b) / math.sqrt(max(1, a + b))
    return {name: value for name, value in found.items() if abs(value) > CHANCE}


Look = Callable[[Neighbours, str, Seen], None]


def watched(house: Neighbours, runs: int, look: Look, *, at_once: int = 2) -> dict[str, Seen]:
    """Both sides in turn, the order of the two changing, so that the machine's moods fall on both alike; several such
    watches at a time, so that other questions run meanwhile."""
    sides = {side: Seen() for side in SIDES}

    def watch(number: int) -> None:
        for run in range(number, runs, at_once):
            for side in SIDES if run % 4 in (0, 3) else SIDES[::-1]:
                look(house, side, sides[side])
            house.forgive()

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(watch, range(at_once)))
    return sides


def asked(sql: str) -> Look:
    """One question, alone: how much longer than promised it took, its status, its headers."""

    def look(house: Neighbours, side: str, seen: Seen) -> None:
        began = time.perf_counter()
        response = house.ask(side, sql)
        took = time.perf_counter() - began
        promised = response.json()["receipt"]["seconds"] if response.status_code == 201 else 0.0
        seen.time("beyond the promise", took - promised)
        seen.words[f"{response.status_code} {sorted(response.headers)}"] += 1

    return look


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbours]:
    with neighbours(tmp_path_factory.mktemp("kept")) as opened:
        warm(opened)
        yield opened


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbours]:
    """The old behaviour: an answer leaves, and its slot is free, when it is ready."""
    with neighbours(tmp_path_factory.mktemp("twin"), step_ms=0) as opened:
        warm(opened)
        yield opened


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbours]:
    """One engine slot, so that whoever comes second waits."""
    with neighbours(tmp_path_factory.mktemp("queue"), workers=1) as opened:
        warm(opened)
        yield opened


@pytest.fixture(scope="module")
def queue_twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbours]:
    with neighbours(tmp_path_factory.mktemp("queue-twin"), workers=1, step_ms=0) as opened:
        warm(opened)
        yield opened


def warm(opened: Neighbours) -> None:
    for side in SIDES * 3:
        assert opened.ask(side, PLAIN).status_code == 201
    for side in SIDES:
        opened.books.ledger.reset_safety(side, By("test", "warm"))


QUESTIONS = {"count distinct": HEAVY, "group by": GROUPED, "cross join": FANNED}


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("count distinct", RUNS),
        pytest.param("group by", RUNS, marks=pytest.mark.slow),
        pytest.param("cross join", RUNS, marks=pytest.mark.slow),
    ],
)
def test_the_time_of_a_question_is_at_chance(house: Neighbours, name: str, runs: int) -> None:
    house.forgive()
    house.seconds(QUESTIONS[name])  # both sides promise the same
    assert told_apart(watched(house, runs, asked(QUESTIONS[name]))) == {}
    assert_few_events(house)


def test_without_a_promise_the_same_distinguisher_is_right(twin: Neighbours) -> None:
    assert "beyond the promise" in told_apart(watched(twin, FEWER, asked(HEAVIER), at_once=1))


def colluding(house: Neighbours, side: str, seen: Seen, sql: str = HEAVY) -> None:
    """The first key asks what depends on the person, the second asks something plain and has to wait, the third looks
    at what the second is told: when its query begins to run, when it is done, and which of the two is done first."""
    began = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(house.ask, side, sql, KEYS[0])
        time.sleep(0.01)
        second = house.ask(side, PLAIN, KEYS[1], wait=0)
        query_id, states = second.json()["id"], []
        while not states or states[-1] not in ("answered", "failed"):
            looked = house.get(f"/v1/queries/{query_id}", KEYS[1])
            state = looked.json().get("status", "failed")
            if not states or states[-1] != state:
                states.append(state)
                seen.time(f"until {state}", time.perf_counter() - began)
            time.sleep(0.002)
        seen.words[f"the first is done: {first.done()}"] += 1
        seen.words[" ".join(states)] += 1
        seen.words[str(first.result().status_code)] += 1


@pytest.mark.slow
@pytest.mark.parametrize("runs", [RUNS])
def test_three_keys_that_watch_the_queue_are_at_chance(queue: Neighbours, runs: int) -> None:
    assert told_apart(watched(queue, runs, colluding, at_once=1)) == {}
    assert_few_events(queue)


@pytest.mark.slow
def test_a_queue_that_moves_early_is_noticed(queue_twin: Neighbours) -> None:
    look = partial(colluding, sql=HEAVIER)
    assert told_apart(watched(queue_twin, FEWER // 2, look, at_once=1))


def assert_few_events(house: Neighbours) -> None:
    """Late answers are the exception that everybody may see: on a machine that others load there may be a few."""
    for side in SIDES:
        balance = house.books.ledger.balance(side)
        assert balance.failures == 0
        assert balance.late <= MOST_LATE
