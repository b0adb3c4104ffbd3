"""A process of our own beside the one that answers: started, waited for, ended.

A fresh interpreter, not a fork: nothing of the service's memory (keys, ledger) is in it. It is spoken to over a socket
pair (service/walk/process_wire.py) and ends when that closes, however that happens.
"""

import subprocess
import sys
import time
from pathlib import Path
from socket import socketpair

from service.walk.process_wire import receive_message

ROOT = str(Path(__file__).resolve().parents[2])
START_SECONDS = 60.0
ENVIRONMENT = {"LANG": "C.UTF-8", "TZ": "UTC", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class HelperProcess:
    """Runs `main` of one of our modules, which says that it is ready before anything else."""

    def __init__(self, module: str, *arguments: str) -> None:
        ours, theirs = socketpair()
        program = f"import sys; sys.path.insert(0, {ROOT!r}); from {module} import main; main()"
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", program, str(theirs.fileno()), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # whatever is printed may quote an analyst's text, or a value
                pass_fds=[theirs.fileno()],
                env=ENVIRONMENT,
                cwd="/",
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self.channel = ours
        self._ready = False

    def wait_ready(self) -> None:
        """Raises TimeoutError or WireLost; then the process is of no more use."""
        if not self._ready:
            receive_message(self.channel, time.monotonic() + START_SECONDS)
            self._ready = True

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self.channel.close()
        self._process.kill()
        self._process.wait()
