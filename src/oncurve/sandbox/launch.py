"""How a child is started at each level of isolation."""

import json
import math
import os
import shutil
import site
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO

from oncurve.errors import SandboxError
from oncurve.sandbox import seccomp
from oncurve.sandbox.child import START_TIMEOUT_S, Child, ChildStopped
from oncurve.sandbox.limits import Limits

UIDS = range(60600, 61100)  # neither Debian nor systemd gives these to anyone
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONUTF8": "1",
    "PYTHONHASHSEED": "0",  # a set has the same order each time
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
LINKER_CACHE = "/etc/ld.so.cache"
MAX_WORDS = 2000  # characters of what a child that does not start says


def open_child(
    level: str,
    program: str,
    *,
    limits: Limits,
    files: Mapping[str, bytes],
    site_packages: bool,
    read_only: Iterable[str | Path],
    stamp: str = "",
) -> Child:
    """Start `program` at `level` (`bubblewrap`, `landlock` or `none`). Raises `SandboxError` where it does not start."""
    packages = site.getsitepackages() if site_packages else []
    visible = ["/usr", LINKER_CACHE, os.path.realpath(sys.base_prefix), *packages, *map(str, read_only)]
    python = [os.path.realpath(sys.executable), "-s", "-S", "-P", "-B", "-c", _source("start.py")]
    settings = {"walls": [], "path": packages, "program": program, "limits": _rlimits(limits)}
    if level != "bubblewrap":
        del settings["limits"]["RLIMIT_NPROC"]  # it would count whatever else this user runs
    settings["wall_s"] = START_TIMEOUT_S + limits.wall_s
    with ExitStack() as kept, ExitStack() as passed:
        errors = passed.enter_context(_memory_file(b""))
        if level == "bubblewrap":
            settings["files"], folder = "/files", "/"
            if os.geteuid() == 0:
                uid = kept.enter_context(_own_uid())
                python = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *python]
            inside = {f"/files/{name}": passed.enter_context(_memory_file(data)) for name, data in files.items()}
            calls = passed.enter_context(_memory_file(seccomp.program()))
            info, told = map(passed.enter_context, map(os.fdopen, os.pipe(), "rw"))
            command = [*_bubblewrap(limits, visible, inside, calls, told), "--", *python]
            handed = [*inside.values(), calls, told]
        else:
            folder = kept.enter_context(tempfile.TemporaryDirectory(prefix="oncurve-box-", ignore_cleanup_errors=True))
            settings["files"] = os.path.join(folder, "files")
            os.mkdir(settings["files"])
            for name, data in files.items():
                Path(settings["files"], name).write_bytes(data)
            if level == "landlock":
                walls = {"readable": [*visible, *SYSTEM], "writable": [folder], "devices": DEVICES}
                walls["filter_hex"] = seccomp.program(namespaces=False).hex()
                settings["walls"] = [(_source("landlock.py"), walls)]
            command, handed = python, []
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                cwd=folder,
                env=ENVIRONMENT,
                pass_fds=[file.fileno() for file in handed],
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxError(f"no child can be started in the sandbox: {error}") from None
        init = None
        if level == "bubblewrap":
            told.close()
            with suppress(ValueError):  # it failed before, and says why on its standard error
                init = json.loads(info.read())["child-pid"]
        child = Child(process, init, limits, stamp, kept.pop_all().close)
        try:
            child.begin(settings)
        except ChildStopped as stopped:
            errors.seek(0)
            words = errors.read().decode("utf-8", "replace").strip()[-MAX_WORDS:]
            raise SandboxError(f"no child can be started in the sandbox: {stopped}\n    {words}") from None
        return child


def _bubblewrap(
    limits: Limits, visible: Iterable[str], files: Mapping[str, IO[bytes]], calls: IO[bytes], told: IO[str]
) -> list[str]:
    """What the child sees, and what it shares with others: nothing. There is no `/proc`; Python needs none."""
    if not (bwrap := shutil.which("bwrap")):
        raise SandboxError("bubblewrap is not installed (apt-get install bubblewrap)")
    command = [bwrap, "--as-pid-1", "--new-session"]
    command += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    if os.geteuid() == 0:  # `setpriv` then drops to a user of its own, which a new user namespace has no number for
        command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
    command += ["--perms", "1777", "--size", str(limits.scratch_bytes), "--tmpfs", "/tmp", "--chdir", "/tmp"]
    paths = dict.fromkeys(path for path in visible if os.path.exists(path) and not path.startswith("/usr/"))
    parents = {str(parent) for path in [*paths, *DEVICES, "/files/_"] for parent in Path(path).parents} - {"/"}
    for folder in sorted(parents - {"/usr", "/tmp"}):
        command += ["--perms", "0755", "--dir", folder]
    for path in SYSTEM:
        if os.path.islink(path):
            command += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            command += ["--ro-bind", path, path]
    for path in paths:
        command += ["--ro-bind", path, path]
    for path in DEVICES:
        command += ["--dev-bind", path, path]
    for path, file in files.items():
        command += ["--perms", "0444", "--file", str(file.fileno()), path]
    return [*command, "--remount-ro", "/", "--seccomp", str(calls.fileno()), "--info-fd", str(told.fileno())]


def _rlimits(limits: Limits) -> dict[str, tuple[int, int]]:
    own = 3  # the child itself and its two watching threads
    hard = {
        "RLIMIT_CPU": math.ceil(limits.cpu_s),
        "RLIMIT_AS": limits.memory_bytes,
        "RLIMIT_NPROC": limits.processes + own,
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_FSIZE": limits.scratch_bytes,
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
    }
    return {name: (value, value) for name, value in hard.items()}


@contextmanager
def _memory_file(data: bytes) -> Iterator[IO[bytes]]:
    with os.fdopen(os.memfd_create("oncurve"), "w+b") as file:
        file.write(data)
        file.seek(0)
        yield file


@contextmanager
def _own_uid() -> Iterator[int]:
    """A user id that no other box of this machine has. A socket's name holds it, which a process can't leave behind."""
    for uid in UIDS:
        with socket.socket(socket.AF_UNIX) as holder:
            try:
                holder.bind(f"\0oncurve-uid-{uid}")
            except OSError:
                continue
            yield uid
            return
    raise SandboxError(f"all {len(UIDS)} user ids of the sandbox are taken; are children left open?")


@cache
def _source(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")
