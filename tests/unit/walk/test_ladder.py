"""Answers leave on rungs, and nothing else about their time shows."""

import pytest

from service.walk.ladder import Ladder


@pytest.mark.parametrize(
    ("elapsed", "rung"), [(0, 50), (1, 50), (50, 50), (50.1, 100), (399, 400), (401, 800), (6000, 6400)]
)
def test_the_rungs_double(elapsed: float, rung: float) -> None:
    assert Ladder(step_ms=50, deadline_ms=10_000).rung_ms(elapsed) == rung


def test_a_constant_ladder_has_one_rung() -> None:
    ladder = Ladder(step_ms=50, deadline_ms=10_000, mode="constant")
    assert {ladder.rung_ms(elapsed) for elapsed in (0, 3, 700, 9_999)} == {10_000}


def test_a_step_of_zero_switches_the_ladder_off() -> None:
    assert Ladder(step_ms=0, deadline_ms=10_000).rung_ms(7.25) == 7.25
