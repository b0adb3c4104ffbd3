"""What tells a file from another one: where it really lies, its inode, and a hash of what it holds.

Hashing reads every byte once more, about a second for each gigabyte and core; a file that has not changed since it
was last hashed by this process is not read again.
"""

import ctypes
import hashlib
import os
import struct
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from service.core.errors import SourceRefused

REMEMBERED = 20_000
AT_FDCWD, STATX_BTIME, STATX_BYTES = -100, 0x800, 256  # of linux/stat.h; Python's os.stat leaves this time out

_hashes: dict[tuple[str, str], str] = {}  # by path and stamp
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A real path with "device:inode" and the SHA-256 of its content, as they were when it was looked at; `stamp`
    tells whether the file has been written to or replaced since then."""

    path: str
    inode: str
    content: str
    stamp: str


def facts_of(paths: Iterable[Path]) -> tuple[FileFacts, ...]:
    """Of every file, several at a time: hashing lets other threads run."""
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return tuple(pool.map(_facts, paths))


def inode_of(path: str) -> str:
    """ "device:inode" of the file that lies there now; empty when none does."""
    try:
        status = os.stat(path)
    except OSError:
        return ""
    return f"{status.st_dev}:{status.st_ino}"


def stamp_of(path: str) -> str:
    """The stamp of the file that lies there now; empty when none does."""
    try:
        return _stamp(os.stat(path))
    except OSError:
        return ""


def born_at(path: str) -> str:
    """When the file that lies there was made, as the journal writes times; empty where no system says. Writing to a
    file and moving it leave this as it was, and nobody can set it."""
    facts = (ctypes.c_uint64 * (STATX_BYTES // 8))()
    try:
        asked = ctypes.CDLL(None).statx(AT_FDCWD, os.fsencode(path), 0, STATX_BTIME, ctypes.byref(facts))
    except (AttributeError, OSError):  # not Linux, or one of before 2017
        return ""
    mask, seconds, nanoseconds = struct.unpack_from("=I76xqI", facts)
    if asked != 0 or not mask & STATX_BTIME:
        return ""
    made = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{made}.{nanoseconds // 1_000_000:03}Z"


def _stamp(status: os.stat_result) -> str:
    """The system moves the last of these times with every change; nobody can set it back."""
    parts = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return ":".join(str(part) for part in parts)


def _facts(path: Path) -> FileFacts:
    try:
        with path.open("rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            sign = (str(path), _stamp(status))
            with _lock:
                known = _hashes.get(sign)
            content = known or hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        raise SourceRefused("a file of this source can not be read", {"file": path.name}) from None
    with _lock:
        if len(_hashes) >= REMEMBERED:
            _hashes.clear()
        _hashes[sign] = content
    return FileFacts(str(path), f"{status.st_dev}:{status.st_ino}", content, sign[1])
