"""A real engine child that somebody has taken over: the worker itself, with two habits more.

`attack` runs code of the intruder's inside the bound child and says how the system answered. A statement
with the word FATAL meets the error after which DuckDB refuses everything else.
"""

import ctypes
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import duckdb

from service.engine.duckdb.processes import frames, syscalls, worker
from service.engine.duckdb.processes.seccomp import MACHINES

PLACE = MACHINES[os.uname().machine][0]
SYSTEM = ctypes.CDLL(None, use_errno=True)
NOBODY = 2**22 + 1  # no process has this number
THREAD_BUT_OWN_NETWORK = 0x00010000 | 0x40000000


class Fragile:
    """A connection that breaks at a statement with the word FATAL, as DuckDB's do: no answer to anything after it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def execute(self, sql: str | duckdb.Statement) -> duckdb.DuckDBPyConnection:
        self._meet(sql)
        return self.connection.execute(sql)

    def sql(self, sql: str | duckdb.Statement) -> duckdb.DuckDBPyRelation:
        self._meet(sql)
        return self.connection.sql(sql)

    def _meet(self, sql: str | duckdb.Statement) -> None:
        text = sql if isinstance(sql, str) else sql.query
        if "FATAL" in text and not text.startswith("DESCRIBE"):
            self.connection.close()
            raise duckdb.FatalException("FATAL Error: Failed: database has been invalidated\n0x7f00 stack")


class Intruder(worker.Worker):
    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.connection = Fragile(self.connection)  # type: ignore[assignment]

    def _answer(self, header: frames.Header, payload: memoryview) -> tuple[frames.Header, bytes | memoryview]:
        if header["do"] == "attack":
            return {"errors": attack(header["file"]), "swept": sweep()}, b""
        return super()._answer(header, payload)


def attack(file: str) -> dict[str, int | None]:
    """The system's error number of each attempt, None where it succeeded. Harmless where nothing refuses them."""
    attempts: dict[str, Callable[[], Any]] = {
        "internet socket": lambda: socket.socket().close(),
        "local socket": lambda: socket.socket(socket.AF_UNIX).close(),
        "socket pair": socket.socketpair,
        "fork": fork,
        "clone": lambda: call(syscalls.CLONE, signal.SIGCHLD, 0, 0, 0, 0),
        "clone with a network": lambda: call(syscalls.CLONE, THREAD_BUT_OWN_NETWORK, 0, 0, 0, 0),
        "clone3": lambda: call(syscalls.UNREADABLE["clone3"], 0, 0),
        "subprocess": lambda: subprocess.run(["/bin/true"], check=True),
        "exec": lambda: os.execv("/nonexistent", ["x"]),
        "ptrace": lambda: call(syscalls.NEVER["ptrace"], 16, NOBODY, 0, 0),
        "memory of others": lambda: call(syscalls.NEVER["process_vm_readv"], NOBODY, 0, 0, 0, 0, 0),
        "signal": lambda: os.kill(os.getppid(), 0),
        "signal by thread": lambda: call(syscalls.TGKILL, os.getppid(), os.getppid(), 0),
        "limits of others": lambda: call(syscalls.PRLIMIT, NOBODY, 0, 0, 0),
        "x32": lambda: refused(SYSTEM.syscall(ctypes.c_long(0x40000000 | 39))),
        "younger call": lambda: call((1000, 1000)),
        "write": lambda: open(file, "r+").close(),
        "append": lambda: open(file, "a").close(),
        "create": lambda: open(file + ".new", "x").close(),
        "change the mode": lambda: os.chmod(file, 0o644),
        "rename": lambda: os.rename(file, file),
        "remove": lambda: os.unlink(file),
        "own signal": lambda: call(syscalls.TGKILL, os.getpid(), threading.get_native_id(), 0),
        "thread": lambda: threading.Thread(target=str).start(),
        "read": lambda: open(file).close(),
    }
    return {name: tried(attempt) for name, attempt in attempts.items()}


def sweep() -> dict[str, int | None]:
    """Every listed call, with arguments that no kernel takes; from another thread than the one that was filtered."""
    found: dict[str, int | None] = {}
    listed = {**syscalls.NEVER, **syscalls.CHANGES, **syscalls.UNREADABLE}

    def run() -> None:
        for name, numbers in listed.items():
            if numbers[PLACE] is not None:
                found[name] = tried(lambda numbers=numbers: call(numbers, *[-1] * 6))  # type: ignore[misc]

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found


def tried(attempt: Callable[[], Any]) -> int | None:
    try:
        attempt()
    except OSError as error:
        return error.errno
    return None


def fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def call(numbers: syscalls.Numbers, *arguments: int) -> None:
    number = numbers[PLACE]
    assert number is not None
    result = SYSTEM.syscall(ctypes.c_long(number), *(ctypes.c_long(argument) for argument in arguments))
    if result == 0 and numbers in (syscalls.CLONE, syscalls.NEVER["fork"], syscalls.NEVER["vfork"]):
        os._exit(0)  # nothing refused it: this is the new process
    refused(result)


def refused(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def main() -> None:
    worker.Worker = Intruder  # type: ignore[misc]
    worker.main()
