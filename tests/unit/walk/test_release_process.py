"""Release processes as the service holds them: waited for whatever their descriptor, and ended when of no use."""

import fcntl
import resource
import socket
from collections.abc import Iterator

import pytest

from service.walk.process_wire import WireLost
from service.walk.release_process import ReleaseProcess, ReleaseProcesses

BEYOND_SELECT = 1024


@pytest.fixture
def many_files() -> Iterator[None]:
    """Descriptors beyond those that select can name."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * BEYOND_SELECT), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_a_process_is_waited_for_whatever_its_descriptor() -> None:
    process = ReleaseProcess(())
    try:
        low = process.channel
        process.channel = socket.socket(fileno=fcntl.fcntl(low.fileno(), fcntl.F_DUPFD_CLOEXEC, BEYOND_SELECT))
        low.close()
        assert process.channel.fileno() >= BEYOND_SELECT
        assert process.readable(60.0)
        process.wait_ready()
        assert not process.readable(0.0)
    finally:
        process.kill()


@pytest.mark.parametrize("cause", [WireLost, TimeoutError])
def test_a_process_that_does_not_become_ready_is_ended(monkeypatch: pytest.MonkeyPatch, cause: type[Exception]) -> None:
    started: list[ReleaseProcess] = []

    def never(process: ReleaseProcess) -> None:
        started.append(process)
        raise cause

    monkeypatch.setattr(ReleaseProcess, "wait_ready", never)
    pool = ReleaseProcesses(())
    pool.warm(1)
    try:
        assert [process.alive for process in started] == [False]
        assert pool._idle == []
    finally:
        for process in started:
            process.kill()
