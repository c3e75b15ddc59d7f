"""One process tree in a box, and the pipe to it."""

import json
import os
import select
import signal
import subprocess
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from oncurve.sandbox.limits import Limits
from oncurve.sandbox.start import OUT_OF_MEMORY

START_TIMEOUT_S = 30.0  # for a machine that is busy; a start takes 30 ms
TICK_S = 0.05  # how often the memory of what runs is looked at
PIECE_BYTES = 1 << 16
FILE_BYTES = 1024  # what the kernel holds for a file in memory
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ChildStopped(Exception):
    """A child that is no more. `reason` is `timeout`, `memory`, `output` or `crash`; the text says more."""

    def __init__(self, reason: str, words: str):
        super().__init__(words)
        self.reason = reason


class Child:
    """Answers one request at a time. A fault of it, its end, and the end of this process (`start.watch`) end its tree.

    `init` is the number of the box's process 1 where the box has one; when that ends, the kernel ends all others.
    """

    def __init__(
        self, process: subprocess.Popen, init: int | None, limits: Limits, stamp: str, leftovers: Callable[[], None]
    ):
        self.stamp = stamp
        self.process, self._limits = process, limits
        self._root, self._boxed, self._loaded = init or process.pid, init is not None, False
        self._end = time.monotonic() + START_TIMEOUT_S
        self._kill = weakref.finalize(self, _kill, process, init and _pidfd(init), leftovers)
        os.set_blocking(process.stdin.fileno(), False)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Have the program loaded. Raises `ChildStopped` where it does not load."""
        if self.ask(settings, START_TIMEOUT_S) != {"ready": True}:
            raise ChildStopped("crash", "the program wrote an answer before it was asked")
        self._end, self._loaded = time.monotonic() + self._limits.wall_s, True

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The program's answer: whatever JSON object it sent, nothing of which can be trusted.

        Raises `ChildStopped`, with everything in the box killed, where none came in time or it was too long.
        """
        line = json.dumps(request).encode() + b"\n"
        try:
            reply = json.loads(self._exchange(line, timeout_s))
            if not isinstance(reply, dict):
                raise ValueError
        except ChildStopped:
            self.close()
            raise
        except (ValueError, RecursionError):
            self.close()
            raise ChildStopped("crash", "the child wrote no JSON object") from None
        return reply

    def close(self) -> None:
        """Kill whatever runs in the box, wait until it is gone, and remove what it had. The second time does nothing."""
        self._kill()

    def _exchange(self, request: bytes, timeout_s: float) -> bytes:
        if not self._kill.alive:
            raise ChildStopped("crash", "the child was stopped before")
        begin = time.monotonic()
        end = min(begin + timeout_s, self._end)
        source, target = self.process.stdout.fileno(), self.process.stdin.fileno()
        pipes = select.poll()
        pipes.register(source, select.POLLIN)
        if pipes.poll(0):
            raise self._ended(begin) if not os.read(source, 1) else ChildStopped("crash", "the child wrote unasked")
        pipes.register(target, select.POLLOUT)
        rest, reply = memoryview(request), bytearray()
        while b"\n" not in reply[-PIECE_BYTES:]:
            ready = dict(pipes.poll(1000 * TICK_S))
            if (now := time.monotonic()) > end:
                raise ChildStopped("timeout", f"no answer within {end - begin:.3g} s")
            if source not in ready and self._memory_bytes() > self._limits.memory_bytes:
                raise self._out_of_memory()
            if target in ready:
                with suppress(BrokenPipeError):  # its end is seen on the other pipe
                    rest = rest[os.write(target, rest) :]
                if not rest or ready[target] & select.POLLERR:
                    pipes.unregister(target)
            if source in ready:
                if not (piece := os.read(source, PIECE_BYTES)):
                    raise self._ended(now)
                reply += piece
                if len(reply) > self._limits.output_bytes:
                    raise ChildStopped("output", f"the answer is longer than {self._limits.output_bytes} bytes")
        if rest or not reply.endswith(b"\n") or reply.count(b"\n") > 1:
            raise ChildStopped("crash", "the child wrote more than an answer")
        return bytes(reply)

    def _memory_bytes(self) -> int:
        """What all processes of the box hold for themselves, and the kernel for its files, which may be empty.

        What two processes share since a fork counts twice.
        """
        total, processes = 0, [str(self._root)]
        if self._boxed and self._loaded:
            with suppress(OSError):
                scratch = os.statvfs(f"/proc/{self._root}/root/tmp")
                total += (scratch.f_files - scratch.f_ffree) * FILE_BYTES
        while processes:
            process = Path("/proc", processes.pop())
            with suppress(OSError):  # it has ended
                _, resident, shared, *_ = map(int, (process / "statm").read_text().split())
                total += (resident - shared) * PAGE_BYTES
                for task in (process / "task").iterdir():
                    processes += (task / "children").read_text().split()
        return total

    def _ended(self, now: float) -> ChildStopped:
        for _ in range(100):  # without collecting it: its number must stay its group's until `_kill`
            if end := os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
                break
            time.sleep(0.01)
        else:
            return ChildStopped("crash", "the child closed its output")
        status, number = end.si_status, end.si_status - 128 if end.si_code == os.CLD_EXITED else end.si_status
        if status == OUT_OF_MEMORY:
            return self._out_of_memory()
        if number == signal.SIGKILL and self._boxed:  # in there, nobody can send it to process 1
            if now < self._end - self._limits.wall_s + self._limits.cpu_s / 2:  # its threads compute at the same time
                return ChildStopped("memory", "the machine had no memory left for the child")
            return ChildStopped("timeout", f"the child computed for more than {self._limits.cpu_s:g} s")
        if number in signal.valid_signals():
            return ChildStopped("crash", f"the child was ended by {signal.Signals(number).name}")
        return ChildStopped("crash", f"the child ended with status {status}")

    def _out_of_memory(self) -> ChildStopped:
        return ChildStopped("memory", f"the child asked for more than {self._limits.memory_bytes >> 20} MiB")


def _pidfd(process: int) -> int | None:
    with suppress(ProcessLookupError):
        return os.pidfd_open(process)
    return None


def _kill(process: subprocess.Popen, init: int | None, leftovers: Callable[[], None]) -> None:
    if init is not None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(init, signal.SIGKILL)
        os.close(init)
        try:
            process.wait(START_TIMEOUT_S)  # bubblewrap itself ends after it, and leaves no zombie
        except subprocess.TimeoutExpired:
            process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdin.close()
    process.stdout.close()
    leftovers()
