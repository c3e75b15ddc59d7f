"""A run folder belongs to one process at a time, and to nobody once that is dead."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oncurve.errors import RunError
from oncurve.record.files import locked

HOLD = """
import sys, time
from pathlib import Path
from oncurve.record.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    folder = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", HOLD, folder], stdout=subprocess.PIPE, env=environment) as holder:
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(RunError, match=f"being written by another process .process {holder.pid}.; wait"),
            locked(folder),
        ):
            pass
        holder.send_signal(signal.SIGKILL)
    with locked(folder):
        assert (folder / ".lock").read_text() == f"process {os.getpid()}"


def test_it_is_free_again_after_an_error(tmp_path: Path):
    with pytest.raises(ValueError, match="mine"), locked(tmp_path):
        raise ValueError("mine")
    with locked(tmp_path), pytest.raises(RunError, match=f"process {os.getpid()}"), locked(tmp_path):
        pass
