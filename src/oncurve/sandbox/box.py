"""The sandbox: children that can't do harm, at a level of isolation that was tried out first.

sandbox = Sandbox()
with sandbox.open("def answer(request): return {'n': request['n'] + 1}") as child:
    child.ask({"n": 1}, timeout_s=1.0)  # {"n": 2}
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from oncurve.errors import SandboxError
from oncurve.sandbox.child import Child, ChildStopped
from oncurve.sandbox.launch import open_child
from oncurve.sandbox.limits import Limits
from oncurve.sandbox.probes import LEVELS, report

MINIMUM = "ONCURVE_MIN_ISOLATION"
__all__ = ["Child", "ChildStopped", "Limits", "Sandbox", "reached"]


class Sandbox:
    """Opens children at the level that this machine was found to reach; safe to use from threads.

    Raises `SandboxError` where that is below `min_level`, unless `allow_unsafe`. `stamp` is then `unsafe:LEVEL` and
    belongs into every result; otherwise it is empty. The minimum is that of the environment variable
    `ONCURVE_MIN_ISOLATION`, `bubblewrap` without it.
    """

    def __init__(self, *, min_level: str | None = None, allow_unsafe: bool = False):
        min_level = min_level or os.environ.get(MINIMUM, "bubblewrap")
        if min_level not in LEVELS:
            raise SandboxError(f"{MINIMUM} is {min_level!r}; it is one of {', '.join(LEVELS)}")
        self.level = reached()
        below = LEVELS.index(self.level) < LEVELS.index(min_level)
        if below and not allow_unsafe:
            why = report().missed.get(min_level, "")
            raise SandboxError(
                f"the isolation reached on this machine is {self.level}, and {min_level} is needed to run code\n"
                + (f"    {min_level}: {why}\n" if why else "")
                + "    install bubblewrap (apt-get install bubblewrap) and see `oncurve sandbox probe`,\n"
                f"    accept less with {MINIMUM}=landlock, or pass --allow-unsafe, which marks every result"
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
    ) -> Child:
        """Start `program`, trusted Python source that defines `answer(request: dict) -> dict`, in a box of its own.

        Inside, `/tmp` is empty and writable (the working directory); the folder named by the global `FILES` holds
        `files` by name, read only; `read_only` paths are where they are outside; the packages of this environment can
        be imported with `site_packages`. A process that the program forks calls the global `close_channel()` before
        it runs what is not trusted; `kill_others()` ends every other process of the box, whatever it did to escape.
        Raises `SandboxError` where the child does not start: that is never the answer's fault.
        """
        return open_child(
            "bubblewrap" if self.level == "vm" else self.level,
            program,
            limits=limits,
            files=files or {},
            site_packages=site_packages,
            read_only=read_only,
            stamp=self.stamp,
        )


def reached() -> str:
    """The level that this machine's sandbox reaches, by its attacks on itself: `none`, `landlock`, `bubblewrap` or `vm`."""
    return report().level
