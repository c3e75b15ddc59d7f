"""Worker processes with deadlines: JSON lines out to one, JSON lines back, and a kill where none comes in time."""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from oncurve.rewards.worker import LOAD_TIMEOUT_S


class VerifierFault(Exception):
    """An answer that could not be graded. `reason` is `timeout`, `crash`, `raised`, `result` or `not_graded`."""

    def __init__(self, reason: str, words: str):
        super().__init__(words)
        self.reason = reason


class Worker:
    """One Python process that runs `module`, in a session of its own; it does one thing at a time.

    `ready` is the line that it begins with. Raises `VerifierFault` where that holds a `fault`. It is killed, with all that it
    started, after a fault of its own, with this object, and at the interpreter's exit.
    """

    def __init__(self, module: str, *arguments: str):
        command = [sys.executable, "-P", "-B", "-m", module, *arguments]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
            )
        except OSError as error:
            raise VerifierFault("crash", f"no worker can be started: {error.strerror}") from None
        self._kill = weakref.finalize(self, _kill, self._process)
        self.ready = self._reply(LOAD_TIMEOUT_S, "loading")
        if "fault" in self.ready:
            self._kill()
            raise VerifierFault("crash", self.ready["fault"])

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The worker's reply. Raises `VerifierFault` at the deadline, or where the process ends before."""
        with suppress(BrokenPipeError):  # the reply then says how the worker ended
            remaining = memoryview(json.dumps(request).encode() + b"\n")
            while remaining:
                remaining = remaining[self._process.stdin.write(remaining) :]
        return self._reply(timeout_s, "an answer")

    def _reply(self, timeout_s: float, what: str) -> dict[str, Any]:
        line, deadline, output = b"", time.monotonic() + timeout_s, self._process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self._kill()
                    raise VerifierFault("timeout", f"{what} took more than {timeout_s:g} s")
                if not (piece := output.read(1 << 16)):
                    raise VerifierFault("crash", f"the worker {self._end()} during {what}")
                line += piece
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            self._kill()
            raise VerifierFault("crash", f"the worker wrote no JSON during {what}") from None

    def _end(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        status = self._process.poll()
        self._kill()
        if status is None:
            return "closed its output"
        return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended itself with status {status}"


def _kill(process: subprocess.Popen) -> None:
    """End a worker with all processes of its session's group, and close its pipes."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdin.close()
    process.stdout.close()
