"""A filter on the system calls of an engine child, put on by itself and never taken off.

Whoever takes over a child (a hostile file, a hole in the database) runs our user's code in it. What is
left to him are the calls that the child itself needs: memory, threads, reading files, answering on the
socket that it was given. Everything in syscalls.py is answered with EPERM by the kernel, for all threads.

A classic BPF program decides, call by call. It sees the architecture, the number and the arguments as
numbers, never memory behind a pointer. Each rule is a test and an answer, so no jump is longer than a
few steps and the program can be read from top to bottom.
"""

import ctypes
import errno
import os
import struct
import sys
from dataclasses import dataclass

from service.engine.duckdb.processes import syscalls

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # place in syscalls.Numbers, audit architecture
X32 = 0x40000000  # the bit of x86_64's other numbering of the same calls
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data

LOAD, AND, RETURN = 0x20, 0x54, 0x06
EQUAL, ABOVE, AT_LEAST = 0x15, 0x25, 0x35

ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE, UNKNOWN = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS

CLONE_THREAD = 0x00010000
CLONE_SPACES = 0x7E020000  # every CLONE_NEW… that a clone may carry
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

SET_MODE_FILTER = 1
ALL_THREADS, SPECULATE = 1, 4

Step = tuple[int, int, int, int]  # code, jump if true, jump if false, operand


@dataclass(frozen=True, slots=True)
class CallRule:
    """Calls of `numbers` pass if argument `place`, masked, equals `value`."""

    numbers: syscalls.Numbers
    place: int
    value: int
    mask: int = 0xFFFFFFFF


def rules(*, read_only: bool, pid: int) -> tuple[CallRule, ...]:
    """Flags and process ids are 32 bits wide: the lower half of an argument is all that the kernel reads, too."""
    opening = (CallRule(syscalls.OPEN, 1, 0, WRITING), CallRule(syscalls.OPENAT, 2, 0, WRITING))
    return (
        CallRule(syscalls.CLONE, 0, CLONE_THREAD, CLONE_THREAD | CLONE_SPACES),  # a thread, and no new process
        CallRule(syscalls.TGKILL, 0, pid),  # abort() signals itself
        CallRule(syscalls.PRLIMIT, 0, 0),  # its own limits
        *(opening if read_only else ()),
    )


def program(machine: str, *, read_only: bool, pid: int) -> list[Step]:
    """The filter for one architecture. What another one would have called it is no number of ours: killed."""
    place, architecture = MACHINES[machine]
    refused = {**syscalls.NEVER, **(syscalls.CHANGES if read_only else {})}
    steps: list[Step] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
        *_if(AT_LEAST, X32, [(RETURN, 0, 0, REFUSE)]),
        *_if(ABOVE, syscalls.NEWEST, [(RETURN, 0, 0, UNKNOWN)]),
    ]
    for group, answer in ((refused, REFUSE), (syscalls.UNREADABLE, UNKNOWN)):
        for numbers in group.values():
            steps += _if(EQUAL, numbers[place], [(RETURN, 0, 0, answer)])
    for rule in rules(read_only=read_only, pid=pid):
        steps += _if(EQUAL, rule.numbers[place], _argument(rule))
    return [*steps, (RETURN, 0, 0, ALLOW)]


def _if(test: int, operand: int | None, then: list[Step]) -> list[Step]:
    """`then` where the test holds; where not, what follows. Without an operand there is no such call."""
    return [] if operand is None else [(test, 0, len(then), operand), *then]


def _argument(rule: CallRule) -> list[Step]:
    return [
        (LOAD, 0, 0, ARGUMENTS + 8 * rule.place),  # the lower half: both architectures are little-endian
        (AND, 0, 0, rule.mask),
        (EQUAL, 0, 1, rule.value),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, REFUSE),
    ]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def load_program(machine: str, steps: list[Step]) -> bool:
    """Hand a program to the kernel for all threads of this process, for good. False: it was not taken.

    SPECULATE spares kernels before 5.16 from slowing a filtered process down; those before 4.17 do not know it.
    """
    given = _Program(len(steps), b"".join(struct.pack("<HBBI", *step) for step in steps))
    number = syscalls.SECCOMP[MACHINES[machine][0]]
    assert number is not None
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return any(
        call(ctypes.c_long(number), ctypes.c_long(SET_MODE_FILTER), ctypes.c_long(flags), ctypes.byref(given)) == 0
        for flags in (ALL_THREADS | SPECULATE, ALL_THREADS)
    )


def put_on_filter(*, read_only: bool) -> bool:
    """Put the filter on this process; False where the system has none for us, and then nothing has changed.
    Needs "no new privileges", which the cage sets first."""
    if sys.platform != "linux" or sys.maxsize < 2**32 or os.uname().machine not in MACHINES:
        return False
    machine = os.uname().machine
    return load_program(machine, program(machine, read_only=read_only, pid=os.getpid()))
