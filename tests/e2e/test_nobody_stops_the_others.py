"""A crowd asks for as much as it can, and somebody else is answered all the same, by a real process.

The one place where times are compared: the same question in the same run, first alone and then beside the crowd.
Medians, and the time alone counts as half a second at least, since a shared machine of two cores gives any process a
few turns less now and then; what went wrong once took tens of seconds or ended in 503. `make bench` has the ratios.
"""

from collections.abc import Iterator

import pytest

from tests.fixtures.crowds import (
    HALF_SENT,
    NO_LIMITS,
    ORDERED,
    Seen,
    add_keys,
    endless_outer_sql,
    half_sent,
    look,
    many_estimates,
)
from tests.fixtures.process import Running, start

SECONDS = 5.0
TIMES, FLOOR_S = 3.0, 0.5


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Without the limit per minute, which would end the crowd's attempts before they are one; and as behind a proxy,
    where everybody comes from one address."""
    opened = start(tmp_path_factory.mktemp("crowded"), **NO_LIMITS, HALFTONE_OUTER_SECONDS="2")
    add_keys(opened)
    yield opened
    opened.stop()


def check(alone: Seen, beside: Seen) -> None:
    assert set(beside.statuses) == {201}, beside.statuses
    assert set(beside.ready) == {200}, beside.ready
    assert beside.median <= TIMES * max(alone.median, FLOOR_S), (alone.seconds, beside.seconds)
    assert max(beside.ready_seconds) < 5, beside.ready_seconds


def test_lists_of_estimates_do_not_hold_up_the_others(running: Running) -> None:
    alone = look(running, 1)
    with many_estimates(running) as done:
        beside = look(running, SECONDS)
    check(alone, beside)
    assert done[200] > 0, "the crowd got estimates too"


def test_half_sent_requests_shut_nobody_out(running: Running) -> None:
    alone = look(running, 1)
    with half_sent(running) as held:
        beside = look(running, SECONDS)
        assert len(held) == HALF_SENT
    check(alone, beside)


def test_endless_outer_sql_does_not_hold_up_the_others(running: Running) -> None:
    """Also those who need the scratch engine themselves."""
    alone = look(running, 1, sql=ORDERED)
    with endless_outer_sql(running) as done:
        beside = look(running, SECONDS, sql=ORDERED)
    check(alone, beside)
    assert set(done) <= {"outer-refused", "too-busy"}, "each ran to its deadline, or waited for its own key's turn"
    assert done["outer-refused"] > 0
