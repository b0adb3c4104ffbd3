"""Readiness: looked at by threads of its own, told from memory."""

import threading

import pytest

from service.readiness import SLACK_S, Lookout, Probe


class Patient:
    """Answers, fails, or does not come back."""

    def __init__(self) -> None:
        self.ill, self.asked = False, 0

    def __call__(self) -> None:
        self.asked += 1
        if self.ill:
            raise OSError("gone")


def test_what_has_not_answered_yet_is_missing_and_what_fails_is_missing_again() -> None:
    ledger, engine = Patient(), Patient()
    probes = Probe("ledger", ledger, 10), Probe("engine", engine, 5)
    ready = Lookout(*probes)
    assert ready.missing() == ["ledger", "engine"]
    assert ready.look(probes[0])
    assert ready.missing() == ["engine"]
    assert ready.look(probes[1])
    assert ready.missing() == []
    ledger.ill = True
    assert not ready.look(probes[0])
    assert ready.missing() == ["ledger"]


def test_asking_does_not_look() -> None:
    patient = Patient()
    probe = Probe("ledger", patient, 10)
    ready = Lookout(probe)
    ready.look(probe)
    for _ in range(100):
        assert ready.missing() == []
    assert patient.asked == 1


def test_a_look_that_does_not_come_back_is_no_answer() -> None:
    now = 0.0
    probe = Probe("ledger", Patient(), 10)
    ready = Lookout(probe, clock=lambda: now)
    ready.look(probe)
    now = 10 + SLACK_S
    assert ready.missing() == []
    now += 1
    assert ready.missing() == ["ledger"]


@pytest.mark.parametrize("ill", [False, True])
def test_threads_look_until_they_are_told_to_end(ill: bool) -> None:
    patient, looked = Patient(), threading.Event()
    patient.ill = ill

    def check() -> None:
        looked.set()
        patient()

    ready = Lookout(Probe("engine", check, 0.01))
    ready.start()
    assert looked.wait(10)
    ready.close()
    seen = patient.asked
    assert ready.missing() == (["engine"] if ill else [])
    assert not any(thread.is_alive() for thread in ready._threads)
    assert patient.asked == seen
