"""The short version of `make torture`: a few kills, and still the same run bit for bit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import oncurve as package

TOOL = Path(__file__).parents[2] / "tools" / "torture.py"


def test_killed_and_resumed_runs_are_the_undisturbed_run():
    environment = os.environ | {"PYTHONPATH": str(Path(package.__file__).parents[1])}
    command = [sys.executable, TOOL, "--kills", "6", "--seed", "3"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    found = json.loads(done.stdout)
    assert found["identical"] is True
    assert found["kills"] == sum(found["ways"].values()) >= 6
    assert found["differences"] == []
