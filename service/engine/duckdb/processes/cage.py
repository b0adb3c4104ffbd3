"""The walls around a child process that runs SQL, from the outside in.

1. The process: its own address-space, CPU, file and core limits; no new privileges; a network of its own
   that leads nowhere; a filter on system calls (seccomp.py); an environment without a single setting of
   ours; it dies with us.
2. The database: files attached read-only first, then external access off, the local file system
   disabled, no extensions, no secrets, no Python variables as tables, and at last the configuration
   locked. The order matters: ATTACH needs external access, and nothing can be set after the lock.
3. The SQL: emitted from a validated plan over an allow-list (service/sql). That is the first wall for
   an attacker; this file holds the second and the third.
"""

import contextlib
import ctypes
import os
import resource
import sys
import threading
from typing import Any

import duckdb

from service.engine.duckdb.processes import seccomp

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 4, 38
OPEN_FILES = 1024
CORES_TO_SHARE = 4  # from so many cores on, children leave one to the process that answers
NETWORK, CALLS = "network", "system calls"
WALLS = {  # what some systems do not let us build, and what that means for the operator
    NETWORK: "no network namespace and no filter: whoever takes over an engine process could open connections",
    CALLS: "no seccomp filter: whoever takes over an engine process could use every system call of its user",
}

ENVIRONMENT = {
    "PATH": os.defpath,
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "HOME": "/nonexistent",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",  # each arena reserves address space, which is what RLIMIT_AS counts
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}

AT_CONNECT: dict[str, Any] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_unsigned_extensions": False,
    "allow_extension_repositories": "forbidden",
    "allow_persistent_secrets": False,
    "python_enable_replacements": False,
}


def step_back(niceness: int) -> None:
    """Behind the process that answers, in the queue for the processors: whatever children compute, others are
    heard. To be called before the cage is closed, whose filter refuses any change of priorities."""
    os.nice(niceness)
    if sys.platform == "linux":
        cores = os.sched_getaffinity(0)
        if len(cores) >= CORES_TO_SHARE:
            os.sched_setaffinity(0, cores - {min(cores)})


def enclose_process(*, keep_files: bool = False) -> list[str]:
    """Before anything else runs in the child: what the kernel itself enforces. Returns the walls that are missing.

    A query child may not write a byte to any file (RLIMIT_FSIZE 0). Core dumps would hold private rows.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_NOFILE, OPEN_FILES)
    if not keep_files:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if sys.platform != "linux":
        return [CALLS, NETWORK]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    # Without the right to do so these fail and change nothing; the child goes on and says what it lacks.
    own_network = libc.unshare(CLONE_NEWNET) == 0 or libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0
    if seccomp.put_on_filter(read_only=not keep_files):
        return []  # no socket can be made in any network
    return [CALLS] if own_network else [CALLS, NETWORK]


def limit_memory(memory_bytes: int) -> None:
    """Address space: what is mapped now, plus the database's own limit, plus room for results.

    DuckDB's memory_limit does not see what a single vector function allocates; this does, on Linux."""
    if sys.platform != "linux":
        return
    mapped = int(_statm().split()[0]) * resource.getpagesize()
    room = max(512 * 2**20, memory_bytes // 4)
    _lower(resource.RLIMIT_AS, mapped + memory_bytes + room)


def limit_cpu(seconds: float, threads: int) -> None:
    """CPU time left to this child from now on; renewed with every statement."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime + seconds * threads) + 5
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def die_with_parent() -> None:
    """Leave when the lifeline (stdin, held open by the service) closes, even in mid-query."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1):
                pass
        os._exit(3)

    threading.Thread(target=watch, daemon=True).start()


def connect(*, memory_bytes: int, threads: int) -> duckdb.DuckDBPyConnection:
    """An in-memory database that spills nowhere; still open for ATTACH until `lock`."""
    sizes: dict[str, Any] = {"memory_limit": f"{memory_bytes}B", "threads": threads, "temp_directory": ""}
    return duckdb.connect(":memory:", config={**AT_CONNECT, **sizes})


def lock(connection: duckdb.DuckDBPyConnection, *, keep_files: bool = False) -> None:
    """Close the database from the inside. Nothing can be opened, set or loaded after this."""
    connection.execute("SET error_on_division_by_zero = false")
    connection.execute("SET ieee_floating_point_ops = true")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_external_access = false")
    if not keep_files:
        connection.execute("SET disabled_filesystems = 'LocalFileSystem'")
    connection.execute("SET lock_configuration = true")


def _lower(kind: int, wanted: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(kind, (wanted, wanted))


def _statm() -> str:
    with open("/proc/self/statm") as file:
        return file.read()
