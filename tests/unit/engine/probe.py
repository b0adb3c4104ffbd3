"""A child that tells what it can see and do: the cage, looked at from the inside."""

import json
import os
import resource
import socket
import sys

from service.engine.duckdb.processes import cage, frames

LIMITS = ("RLIMIT_AS", "RLIMIT_CORE", "RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_NOFILE")


def main() -> None:
    options = json.loads(sys.argv[1])
    cage.enclose_process()
    cage.die_with_parent()
    channel = socket.socket(fileno=options["fd"])
    frames.send(channel, {"ready": True})
    while True:
        try:
            request, _ = frames.receive(channel)
        except frames.ConnectionLost:
            return
        cage.limit_memory(options["memory_bytes"])
        cage.limit_cpu(request["seconds"], options["threads"])
        frames.send(
            channel,
            {
                "environment": dict(os.environ),
                "limits": {name: resource.getrlimit(getattr(resource, name)) for name in LIMITS},
                "files": sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in _open_files()),
                "modules": sorted(sys.modules),
                "wrote": _can_write(request["path"]),
            },
        )


def _open_files() -> list[str]:
    held = []
    for fd in os.listdir("/proc/self/fd"):
        if os.path.lexists(f"/proc/self/fd/{fd}"):
            held.append(fd)
    return held


def _can_write(path: str) -> bool:
    try:
        with open(path, "w") as file:
            file.write("x")
    except OSError:
        return False
    return True
