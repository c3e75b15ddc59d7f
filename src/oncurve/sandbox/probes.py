"""The sandbox attacks itself at the start, and the level that it reaches is what these attacks prove."""

import os
import platform
import re
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from oncurve.errors import SandboxError
from oncurve.sandbox import attacks, seccomp
from oncurve.sandbox.child import Child, ChildStopped
from oncurve.sandbox.launch import ENVIRONMENT, open_child
from oncurve.sandbox.limits import MIB, Limits

LEVELS = ("none", "landlock", "bubblewrap", "vm")
LIMITS = Limits(wall_s=20.0, memory_bytes=128 * MIB, output_bytes=MIB, scratch_bytes=4 * MIB, processes=8)
ATTACK_TIMEOUT_S = 15.0  # for a machine that is busy; all attacks together take half a second
DEADLINE_S = 0.1  # the deadline that an attack tries to outlive
DECLARED = "ONCURVE_DISPOSABLE_VM"  # =1 says that the whole machine may be lost
NOT_OF_LANDLOCK = {"signal_others", "fork_bomb", "fill_disk"}  # reported, not required


@dataclass(frozen=True, slots=True)
class Probe:
    """One attack: what it tries, whether it was `blocked`, `allowed` or `not_tried`, and what happened."""

    name: str
    tries: str
    outcome: str
    detail: str


@dataclass(frozen=True, slots=True)
class Report:
    """The level reached, the attacks at that level, and why each higher level was not reached."""

    level: str
    probes: tuple[Probe, ...]
    missed: dict[str, str]


@cache
def report() -> Report:
    """Attack this machine's sandbox, from the strongest walls down. Once a process, in about half a second."""
    missed: dict[str, str] = {}
    for level in ("bubblewrap", "landlock", "none"):
        try:
            probes = attack(level)
        except SandboxError as error:
            missed[level] = str(error)
            continue
        needed = {probe.name for probe in probes} - (NOT_OF_LANDLOCK if level == "landlock" else set())
        through = [probe.name for probe in probes if probe.name in needed and probe.outcome != "blocked"]
        if level == "none" or not through:
            if level == "bubblewrap" and not (missed_vm := _why_no_vm()):
                return Report("vm", probes, {})
            return Report(level, probes, missed | ({"vm": missed_vm} if level == "bubblewrap" else {}))
        missed[level] = f"not blocked: {', '.join(through)}"
    raise SandboxError(f"no child can be started at all: {missed['none']}")


def _why_no_vm() -> str:
    if os.environ.get(DECLARED) != "1":
        return f"not declared: {DECLARED}=1 says that this is a virtual machine which may be lost"
    return "" if _hypervisor() else f"{DECLARED}=1, but the processor does not say that a hypervisor is there"


def _hypervisor() -> bool:
    cpus = Path("/proc/cpuinfo").read_text("utf-8")  # other processors than x86 don't say
    return bool(re.search(r"^flags\b.*\bhypervisor\b", cpus, re.MULTILINE)) or platform.machine() != "x86_64"


def attack(level: str) -> tuple[Probe, ...]:
    """All attacks at one level. Raises `SandboxError` where no child starts at it."""
    with _host() as (targets, victim), ThreadPoolExecutor(2) as threads:
        endless = [threads.submit(_endless, level, reason, targets) for reason in attacks.ENDLESS]
        with _child(level) as child:
            probes = [_single(child, name, targets, victim) for name in attacks.ATTACKS]
        return (*probes, *(found.result() for found in endless))


def _child(level: str) -> Child:
    source = Path(attacks.__file__).read_text("utf-8")
    return open_child(level, source, limits=LIMITS, files={}, site_packages=False, read_only=())


def _single(child: Child, name: str, targets: dict[str, Any], victim: subprocess.Popen) -> Probe:
    tries = attacks.ATTACKS[name].__doc__
    try:
        found = child.ask({"attack": name, "targets": targets, "calls": _calls()}, ATTACK_TIMEOUT_S)
    except ChildStopped as stopped:
        return Probe(name, tries, "not_tried", str(stopped))
    worked = found["worked"]
    if name == "signal_others" and worked:  # inside, the number may be another process's
        try:
            victim.wait(0.5)
        except subprocess.TimeoutExpired:
            worked = []
    if worked:
        return Probe(name, tries, "allowed", ", ".join(worked))
    return Probe(name, tries, "blocked", ", ".join(found["errors"]))


def _endless(level: str, reason: str, targets: dict[str, Any]) -> Probe:
    """An attack that ends only by force. It is blocked if that was for the right reason and left no process behind."""
    name, tries = attacks.ENDLESS[reason].__name__, attacks.ENDLESS[reason].__doc__
    with _child(level) as child, os.fdopen(os.dup(child.process.stdout.fileno()), "rb", 0) as held:
        try:
            timeout_s = DEADLINE_S if reason == "timeout" else ATTACK_TIMEOUT_S
            child.ask({"attack": reason, "targets": targets, "calls": _calls()}, timeout_s)
        except ChildStopped as stopped:
            while select.select([held], [], [], 0.5)[0]:
                if not held.read(1 << 20):  # the end of the pipe: no process has its other end
                    return Probe(name, tries, "blocked" if stopped.reason == reason else "allowed", str(stopped))
            return Probe(name, tries, "allowed", f"{stopped}, but a process of it lives on")
        return Probe(name, tries, "not_tried", "it ended by itself")


@contextmanager
def _host() -> Iterator[tuple[dict[str, Any], subprocess.Popen]]:
    """What there is on the host to attack: a file that everyone may change, servers, a process."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="oncurve-host-"))
        file, path, abstract = (os.path.join(folder, name) for name in ("file", "socket", "abstract"))
        Path(file).write_text("a file of the host")
        os.chmod(folder, 0o777)
        os.chmod(file, 0o666)
        servers = [
            stack.enter_context(socket.socket(kind)) for kind in (socket.AF_INET, socket.AF_UNIX, socket.AF_UNIX)
        ]
        for server, address in zip(servers, (("127.0.0.1", 0), path, f"\0{abstract}"), strict=True):
            server.bind(address)
            server.listen()
        os.chmod(path, 0o777)
        victim = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        yield (
            {
                "folder": folder,
                "file": file,
                "port": servers[0].getsockname()[1],
                "socket": path,
                "abstract": abstract,
                "victim": victim.pid,
                "known": [*ENVIRONMENT, "PWD", "LC_CTYPE"],
                "processes": LIMITS.processes,
                "memory_bytes": LIMITS.memory_bytes,
                "scratch_bytes": LIMITS.scratch_bytes,
            },
            victim,
        )


@cache
def _calls() -> dict[str, int]:
    """The numbers of this machine's system calls, for the attacks; below 0 where there is none."""
    return {name: seccomp.number(name) for name in (*seccomp.DENIED.split(), "clone")}
