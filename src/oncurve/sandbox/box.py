"""A child process that can't do harm, and the pipe to it.

sandbox = Sandbox()
with sandbox.open("def answer(request): return {'n': request['n'] + 1}") as child:
    child.ask({"n": 1}, timeout_s=1.0)  # {"n": 2}
"""

import json
import math
import os
import select
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from oncurve.errors import SandboxError
from oncurve.sandbox import seccomp
from oncurve.sandbox.limits import Limits
from oncurve.sandbox.start import OUT_OF_MEMORY

LEVELS = ("none", "landlock", "bubblewrap", "vm")
START_TIMEOUT_S = 30.0  # for a machine that is busy; a start takes 30 ms
UIDS = range(60600, 61100)  # neither Debian nor systemd gives these to anyone
FILES = "/files"
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONUTF8": "1",
    "PYTHONHASHSEED": "0",  # the order of a set is the same each time
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


class ChildStopped(Exception):
    """A child that is no more. `reason` is `timeout`, `memory`, `output` or `crash`; the text says more."""

    def __init__(self, reason: str, words: str):
        super().__init__(words)
        self.reason = reason


class Sandbox:
    """Opens children at the isolation level that this machine was found to reach; safe to use from threads.

    Raises `SandboxError` where that is below `min_level`, unless `allow_unsafe`. `stamp` is then `unsafe:LEVEL` and
    belongs into every result; otherwise it is empty.
    """

    def __init__(self, *, min_level: str = "bubblewrap", allow_unsafe: bool = False):
        self.level = reached()
        below = LEVELS.index(self.level) < LEVELS.index(min_level)
        if below and not allow_unsafe:
            raise SandboxError(
                f"the isolation reached on this machine is {self.level}, and {min_level} is needed to run code\n"
                "    install bubblewrap (apt-get install bubblewrap) and see `oncurve sandbox probe`,\n"
                "    or pass --allow-unsafe, which marks every result"
            )
        self.stamp = f"unsafe:{self.level}" if below else ""

    def open(
        self,
        program: str,
        *,
        limits: Limits = Limits(),  # noqa: B008  it is frozen
        files: Mapping[str, bytes] | None = None,
        site_packages: bool = False,
        read_only: Iterable[str | Path] = (),
    ) -> "Child":
        """Start `program`, trusted Python source that defines `answer(request: dict) -> dict`, in a box of its own.

        Inside, `/tmp` is empty and writable (the working directory); the folder named by the global `FILES` holds
        `files` by name, read only; `read_only` paths are where they are outside; the packages of this environment can
        be imported with `site_packages`. A process that the program forks calls the global `close_channel()` before
        it runs what is not trusted. Raises `SandboxError` where the child does not start: that is never the answer's
        fault.
        """
        return _open(self.level, self.stamp, program, limits, dict(files or {}), site_packages, list(read_only))


@cache
def reached() -> str:
    """The level that this machine reaches, tried once a process."""
    if not shutil.which("bwrap"):
        return "none"
    try:
        with _open("bubblewrap", "", "def answer(request): return {}", Limits(), {}, False, []) as child:
            child.ask({}, START_TIMEOUT_S)
    except (SandboxError, ChildStopped):
        return "none"
    return "bubblewrap"


class Child:
    """One process tree and the pipe to it. A fault of it, `close` or the end of this process kills the whole tree."""

    def __init__(self, process: subprocess.Popen, init: int | None, limits: Limits, stamp: str, leftovers: list):
        self.stamp = stamp
        self._process, self._init, self._limits, self._leftovers = process, init, limits, leftovers
        self._end = time.monotonic() + START_TIMEOUT_S + limits.wall_s
        os.set_blocking(process.stdin.fileno(), False)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The program's answer: whatever JSON object it sent, nothing of which can be trusted.

        Raises `ChildStopped`, with everything in the box killed, where none came in time or it was too long.
        """
        try:
            line = self._exchange(json.dumps(request).encode() + b"\n", timeout_s)
        except ChildStopped:
            self.close()
            raise
        with suppress(ValueError, RecursionError):
            if isinstance(reply := json.loads(line), dict):
                return reply
        self.close()
        raise ChildStopped("crash", "the child wrote no JSON object")

    def close(self) -> None:
        """Kill whatever runs in the box, wait until it is gone, and remove what it had. Does nothing the second time."""
        process = self._process
        if process.stdin.closed:
            return
        if self._init is not None:  # process 1 of the box: when it has ended, so have all others
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init, signal.SIGKILL)
            os.close(self._init)
            with suppress(subprocess.TimeoutExpired):
                process.wait(START_TIMEOUT_S)  # bubblewrap itself ends after it, and leaves no zombie
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdin.close()
        process.stdout.close()
        for leftover in self._leftovers:
            leftover()

    def _exchange(self, request: bytes, timeout_s: float) -> bytes:
        if self._process.stdin.closed:
            raise ChildStopped("crash", "the child was stopped before")
        end = min(time.monotonic() + timeout_s, self._end)
        source, target = self._process.stdout.fileno(), self._process.stdin.fileno()
        rest, reply = memoryview(request), bytearray()
        while not reply.endswith(b"\n"):
            left = end - time.monotonic()
            readable, writable, _ = select.select([source], [target] if rest else [], [], max(0.0, left))
            if left <= 0 or not (readable or writable):
                raise ChildStopped("timeout", f"no answer within {timeout_s:g} s")
            if writable:
                try:
                    rest = rest[os.write(target, rest) :]
                except BrokenPipeError:
                    rest = rest[:0]  # its end is seen on the other pipe
            if readable:
                if not (piece := os.read(source, 1 << 16)):
                    raise self._ended()
                reply += piece
                if len(reply) > self._limits.output_bytes:
                    raise ChildStopped("output", f"the answer is longer than {self._limits.output_bytes} bytes")
        if reply.count(b"\n") > 1:
            raise ChildStopped("crash", "the child wrote more than an answer")
        return bytes(reply)

    def _ended(self) -> ChildStopped:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        status = self._process.returncode
        if status is None:
            return ChildStopped("crash", "the child closed its output")
        number = -status if status < 0 else status - 128
        if status == OUT_OF_MEMORY:
            return ChildStopped("memory", f"the child asked for more than {self._limits.memory_bytes >> 20} MiB")
        if number == signal.SIGXCPU:
            return ChildStopped("timeout", f"the child computed for more than {self._limits.cpu_s:g} s")
        if number in signal.valid_signals():
            return ChildStopped("crash", f"the child was ended by {signal.Signals(number).name}")
        return ChildStopped("crash", f"the child ended with status {status}")


def _open(
    level: str, stamp: str, program: str, limits: Limits, files: dict, site_packages: bool, read_only: list
) -> Child:
    uid, leftovers, descriptors = 0, [], []
    try:
        packages = site.getsitepackages() if site_packages else []
        python = [os.path.realpath(sys.executable), "-s", "-S", "-P", "-B", "-c", _start_source()]
        if level == "none":
            folder = tempfile.mkdtemp(prefix="oncurve-box-")
            leftovers.append(lambda: shutil.rmtree(folder, ignore_errors=True))
            inside = os.path.join(folder, "files")
            os.mkdir(inside)
            for name, data in files.items():
                Path(inside, name).write_bytes(data)
            command, home = python, folder
        else:
            if os.geteuid() == 0:
                uid, release = _take_uid()
                leftovers.append(release)
            inside, home = FILES, "/"
            command = ["bwrap", *_walls(limits, packages, read_only)]
            descriptors.append(_memory_file(seccomp.program()))
            command += ["--seccomp", str(descriptors[-1])]
            for name, data in files.items():
                descriptors.append(_memory_file(data))
                command += ["--perms", "0444", "--file", str(descriptors[-1]), f"{FILES}/{name}"]
            info, told = os.pipe()
            descriptors += [info, told]
            command += ["--remount-ro", "/", "--info-fd", str(told), "--", *python]
        errors = _memory_file(b"")
        descriptors.append(errors)
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                cwd=home,
                env=ENVIRONMENT,
                pass_fds=[descriptor for descriptor in descriptors if level == "none" or descriptor != info],
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxError(f"no child can be started in the sandbox: {error.strerror}") from None
        init = None
        if level != "none":
            os.close(descriptors.pop(descriptors.index(told)))
            init = _process_one(info)
        child = Child(process, init, limits, stamp, leftovers)
        settings = {
            "uid": uid,
            "limits": _rlimits(limits),
            "path": packages,
            "files": inside,
            "program": program,
        }
        try:
            ready = child.ask(settings, START_TIMEOUT_S)
        except ChildStopped as stopped:
            os.lseek(errors, 0, os.SEEK_SET)
            words = os.read(errors, 1 << 16).decode("utf-8", "replace").strip()[-2000:]
            raise SandboxError(f"no child can be started in the sandbox: {stopped}\n    {words}") from None
        child._end = time.monotonic() + limits.wall_s
        assert ready == {"ready": True}
        return child
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _walls(limits: Limits, packages: list[str], read_only: list) -> list[str]:
    """bubblewrap's arguments: what the child sees, and what it shares with others (nothing)."""
    prefix = os.path.realpath(sys.base_prefix)
    walls = ["--die-with-parent", "--new-session", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    walls += ["--unshare-cgroup-try", "--ro-bind", "/usr", "/usr"]
    if os.geteuid() == 0:  # the child itself drops to a user of its own, which a user namespace has no number for
        walls += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        walls += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        if os.path.islink(f"/{name}"):
            walls += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
        elif os.path.isdir(f"/{name}"):
            walls += ["--ro-bind", f"/{name}", f"/{name}"]
    seen = ["/etc/ld.so.cache", *([prefix] if prefix != "/usr" else []), *packages, *map(str, read_only)]
    folders = {str(parent) for path in seen for parent in Path(path).parents} - {"/"}
    for folder in [*sorted(folders, key=len), "/dev", FILES]:
        walls += ["--perms", "0755", "--dir", folder]
    for path in seen:
        walls += ["--ro-bind-try" if path in ("/etc/ld.so.cache", *packages) else "--ro-bind", path, path]
    for device in ("null", "zero", "urandom", "random"):
        walls += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    return [*walls, "--perms", "1777", "--size", str(limits.scratch_bytes), "--tmpfs", "/tmp", "--chdir", "/tmp"]


def _rlimits(limits: Limits) -> dict[str, tuple[int, int]]:
    cpu_s = math.ceil(limits.cpu_s)
    same = {
        "RLIMIT_AS": limits.memory_bytes,
        "RLIMIT_NPROC": limits.processes,
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_FSIZE": limits.scratch_bytes,
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
    }
    return {"RLIMIT_CPU": (cpu_s, cpu_s + 1)} | {name: (value, value) for name, value in same.items()}


def _memory_file(data: bytes) -> int:
    descriptor = os.memfd_create("oncurve")
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _process_one(info: int) -> int | None:
    """A pidfd of the box's process 1, from what bubblewrap says of it; none where it failed before."""
    told = b""
    while piece := os.read(info, 1 << 12):
        told += piece
    with suppress(ValueError, ProcessLookupError):
        return os.pidfd_open(json.loads(told)["child-pid"])
    return None


_uid_lock = threading.Lock()


def _take_uid():
    """A user id that no other box of this machine has, and what gives it back. Held by a socket's name, without a file."""
    with _uid_lock:
        for uid in UIDS:
            held = socket.socket(socket.AF_UNIX)
            try:
                held.bind(f"\0oncurve-uid-{uid}")
                return uid, held.close
            except OSError:
                held.close()
    raise SandboxError(f"all {len(UIDS)} user ids of the sandbox are taken; are children left open?")


@cache
def _start_source() -> str:
    return Path(__file__).with_name("start.py").read_text("utf-8")
