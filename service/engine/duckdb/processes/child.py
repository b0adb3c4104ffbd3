"""One supervised child process: started, spoken to, killed."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from service.engine.duckdb.processes import cage, frames

ROOT = str(Path(__file__).resolve().parents[4])
START_SECONDS = 60.0

Seen = Callable[[frames.Header], None]

log = logging.getLogger("halftone")


class Walls:
    """What children said is missing around them: the same for all on one machine, so it is told once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._missing: set[str] = set()

    def note(self, missing: Sequence[str]) -> None:
        """Words that the cage does not know are dropped: nothing else is to come from there into our log."""
        with self._lock:
            new = {wall for wall in missing if wall in cage.WALLS} - self._missing
            self._missing |= new
        for wall in sorted(new):
            log.warning(f"engine processes lack a wall: {wall}", extra={"detail": cage.WALLS[wall]})

    def missing(self) -> list[str]:
        with self._lock:
            return sorted(self._missing)


walls = Walls()


class ChildLost(Exception):
    """The child died or was killed: by its limits, by the deadline (`late`), or from outside."""

    def __init__(self, *, late: bool) -> None:
        super().__init__("deadline" if late else "died")
        self.late = late


class Conversation:
    """Questions and answers over the socket of a child, wherever the child was started.

    A query's child is started by the service and spoken to by the process that adds the noise: that one can end the
    conversation, and whoever started the child ends the child.
    """

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.alive = True

    def call(
        self, header: frames.Header, payload: bytes | memoryview, deadline_s: float, seen: Seen | None = None
    ) -> tuple[frames.Header, memoryview]:
        """One question, one answer. A child that is late is given up; so is one whose caller gives up, and one
        that said it can answer no more."""
        if not self.alive:
            raise ChildLost(late=False)
        deadline = time.monotonic() + deadline_s
        try:
            self.channel.settimeout(max(0.001, deadline_s))
            frames.send(self.channel, {**header, "seconds": deadline_s}, payload)
            answer, table = self.receive(deadline)
            while "progress" in answer:
                if seen is not None:
                    seen(answer)
                answer, table = self.receive(deadline)
        except TimeoutError:
            self.kill()
            raise ChildLost(late=True) from None
        except frames.ConnectionLost:
            self.kill()
            raise ChildLost(late=False) from None
        except BaseException:
            self.kill()
            raise
        if answer.get("last"):
            self.kill()
        return answer, table

    def receive(self, deadline: float) -> tuple[frames.Header, memoryview]:
        try:
            return frames.receive(self.channel, deadline)
        except TimeoutError:
            self.kill()
            raise ChildLost(late=True) from None
        except frames.ConnectionLost:
            self.kill()
            raise ChildLost(late=False) from None

    def kill(self) -> None:
        """End the conversation for good."""
        self.alive = False
        self.channel.close()


class Child(Conversation):
    """A Python process that runs `main` of one of our modules behind a socket.

    A fresh interpreter, not a fork: nothing of the service's memory (keys, ledger, noise) is in it.
    Its stdin is a lifeline: it closes when the service goes away, however that happens.
    """

    def __init__(self, module: str, *, memory_bytes: int, threads: int, niceness: int = 0) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(ours)
        options = json.dumps(
            {"fd": theirs.fileno(), "memory_bytes": memory_bytes, "threads": threads, "niceness": niceness}
        )
        program = f"import sys; sys.path.insert(0, {ROOT!r}); from {module} import main; main()"
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-c", program, options],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # whatever a database prints may quote a row
                pass_fds=[theirs.fileno()],
                env=cage.ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._ready = False

    def wait_ready(self, deadline_s: float = START_SECONDS) -> None:
        if not self._ready:
            hello, _ = self.receive(time.monotonic() + deadline_s)
            walls.note(hello.get("missing", ()))
            self._ready = True

    def call(
        self, header: frames.Header, payload: bytes | memoryview, deadline_s: float, seen: Seen | None = None
    ) -> tuple[frames.Header, memoryview]:
        assert self._ready, "wait_ready first"
        return super().call(header, payload, deadline_s, seen)

    def kill(self) -> None:
        """At once and for good. Safe to call twice and from any thread."""
        self.alive = False
        if self.process.poll() is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.channel.close()
