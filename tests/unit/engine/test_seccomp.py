"""The filter's program, worked through by hand on both architectures, call by call."""

import os
import struct

import pytest

from service.engine.duckdb.processes import syscalls
from service.engine.duckdb.processes.seccomp import ALLOW, KILL, MACHINES, REFUSE, UNKNOWN, Step, program

PID = 4711
SIGCHLD = 17
THREAD = 0x3D0F00  # the flags of a thread as libc makes it
NEEDED = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "mmap": (9, 222), "munmap": (11, 215), "futex": (202, 98),
    "pread64": (17, 67), "pwrite64": (18, 68), "sendto": (44, 206), "recvfrom": (45, 207), "sendmsg": (46, 211),
    "recvmsg": (47, 212), "exit_group": (231, 94), "getrandom": (318, 278), "madvise": (28, 233), "rseq": (334, 293),
    "sched_getaffinity": (204, 123), "statx": (332, 291), "fsync": (74, 82),
}  # fmt: skip


def decide(steps: list[Step], architecture: int, number: int, *arguments: int) -> int:
    """What the kernel would answer: a classic BPF machine with the few instructions that the program uses."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, *[*arguments, 0, 0, 0, 0, 0, 0][:6])
    held, at = 0, 0
    while True:
        code, if_true, if_false, operand = steps[at]
        at += 1
        if code == 0x20:
            held = struct.unpack_from("<I", data, operand)[0]
        elif code == 0x54:
            held &= operand
        elif code == 0x06:
            return operand
        else:
            holds = {0x15: held == operand, 0x25: held > operand, 0x35: held >= operand}[code]
            at += if_true if holds else if_false


class Filter:
    def __init__(self, machine: str, *, read_only: bool) -> None:
        self.place, self.architecture = MACHINES[machine]
        self.steps = program(machine, read_only=read_only, pid=PID)

    def __call__(self, numbers: syscalls.Numbers, *arguments: int) -> int:
        number = numbers[self.place]
        assert number is not None
        return decide(self.steps, self.architecture, number, *arguments)


@pytest.fixture(params=[(machine, read_only) for machine in MACHINES for read_only in (True, False)])
def case(request: pytest.FixtureRequest) -> tuple[str, bool]:
    machine, read_only = request.param
    return str(machine), bool(read_only)


@pytest.fixture
def ask(case: tuple[str, bool]) -> Filter:
    return Filter(case[0], read_only=case[1])


def test_what_is_never_needed_is_refused_and_what_is_needed_is_not(ask: Filter) -> None:
    known = {name: numbers for name, numbers in syscalls.NEVER.items() if numbers[ask.place] is not None}
    assert len(known) > 100
    assert {name: ask(numbers) for name, numbers in known.items()} == dict.fromkeys(known, REFUSE)
    assert {name: ask(numbers) for name, numbers in NEEDED.items()} == dict.fromkeys(NEEDED, ALLOW)


def test_only_a_child_that_imports_changes_files(ask: Filter, case: tuple[str, bool]) -> None:
    answer = REFUSE if case[1] else ALLOW
    known = {name: numbers for name, numbers in syscalls.CHANGES.items() if numbers[ask.place] is not None}
    assert {name: ask(numbers) for name, numbers in known.items()} == dict.fromkeys(known, answer)
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_RDWR | os.O_TMPFILE, os.O_APPEND | os.O_WRONLY):
        assert ask(syscalls.OPENAT, 0, 0, flags | os.O_CLOEXEC) == answer
        if ask.place == 0:
            assert ask(syscalls.OPEN, 0, flags) == answer
    assert ask(syscalls.OPENAT, 0, 0, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW) == ALLOW


def test_a_thread_may_start_and_a_process_may_not(ask: Filter) -> None:
    assert ask(syscalls.CLONE, THREAD) == ALLOW
    assert ask(syscalls.CLONE, SIGCHLD) == REFUSE
    for space in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert ask(syscalls.CLONE, THREAD | space) == REFUSE
    assert ask(syscalls.UNREADABLE["clone3"]) == UNKNOWN
    assert ask(syscalls.UNREADABLE["openat2"]) == UNKNOWN


def test_only_itself_is_signalled_and_limited(ask: Filter) -> None:
    assert ask(syscalls.TGKILL, PID) == ALLOW
    assert ask(syscalls.TGKILL, 1) == REFUSE
    assert ask(syscalls.PRLIMIT, 0) == ALLOW
    assert ask(syscalls.PRLIMIT, 1) == REFUSE


def test_the_upper_half_of_an_argument_changes_nothing(ask: Filter) -> None:
    """The kernel reads 32 bits of flags and of process ids; so does the filter."""
    assert ask(syscalls.TGKILL, PID << 32 | 1) == REFUSE
    assert ask(syscalls.CLONE, THREAD << 32 | SIGCHLD) == REFUSE
    assert ask(syscalls.PRLIMIT, 1 << 32) == ALLOW


def test_other_numberings_of_the_same_calls_do_not_pass(ask: Filter) -> None:
    read = NEEDED["read"][ask.place]
    assert decide(ask.steps, ask.architecture, 0x40000000 | read) == REFUSE
    assert decide(ask.steps, ask.architecture, 0xFFFFFFFF) == REFUSE
    assert decide(ask.steps, ask.architecture, syscalls.NEWEST + 1) == UNKNOWN
    assert decide(ask.steps, 0x40000003, read) == KILL  # 32-bit x86 on the same machine
    assert decide(ask.steps, 0x40000028, read) == KILL  # 32-bit ARM


@pytest.mark.parametrize("place", [0, 1])
def test_no_two_calls_share_a_number(place: int) -> None:
    special = [syscalls.OPEN, syscalls.OPENAT, syscalls.CLONE, syscalls.TGKILL, syscalls.PRLIMIT, syscalls.SECCOMP]
    listed = [
        *syscalls.NEVER.values(),
        *syscalls.CHANGES.values(),
        *syscalls.UNREADABLE.values(),
        *special,
        *NEEDED.values(),
    ]
    numbers = [pair[place] for pair in listed if pair[place] is not None]
    assert len(numbers) == len(set(numbers))
    assert len(listed) == len({**syscalls.NEVER, **syscalls.CHANGES, **syscalls.UNREADABLE}) + len(special) + len(
        NEEDED
    )


def test_the_kernel_would_take_the_program(case: tuple[str, bool]) -> None:
    """Every jump stays inside, every path ends in an answer."""
    steps = program(case[0], read_only=case[1], pid=PID)
    assert len(steps) < 4096
    assert steps[-1][0] == 0x06
    for at, (_, if_true, if_false, operand) in enumerate(steps):
        assert at + max(if_true, if_false) < len(steps) - 1 or steps[at][0] == 0x06
        assert 0 <= if_true < 256
        assert 0 <= if_false < 256
        assert 0 <= operand < 2**32
