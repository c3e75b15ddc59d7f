"""Ctrl-C in two steps: the first asks the run to stop when its update is done, the second leaves at once."""

import os
import signal
import threading
from pathlib import Path
from typing import NoReturn

ASKED = b"\nCtrl-C: the run ends after this update and saves a checkpoint. Ctrl-C again leaves at once.\n"


class Interrupt:
    """A context in which the first SIGINT sets `asked` and a second one raises `KeyboardInterrupt`.

    Nothing changes outside the main thread, and where SIGINT is ignored, as in a shell's background.
    """

    def __init__(self, run_folder: Path):
        self.asked = False
        self._resume = f"oncurve train --resume {run_folder}"
        self._before = None

    def __enter__(self) -> "Interrupt":
        ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT)
        if ours not in (False, None, signal.SIG_IGN):
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def leave(self, step: int) -> NoReturn:
        """End the run after `step`, whose checkpoint is saved (before the first step there is nothing to save)."""
        where = f"after step {step}, which is saved" if step else "before the first step"
        raise KeyboardInterrupt(f"stopped {where}; go on with\n    {self._resume}")

    def _handle(self, *_: object) -> None:
        if self.asked:
            raise KeyboardInterrupt(f"stopped at once; go on from the last checkpoint with\n    {self._resume}")
        self.asked = True
        os.write(2, ASKED)  # past Python's buffers, which this may have interrupted
