"""Hostile answers of every sort leave nothing behind."""

import json
import subprocess
import sys

TYPES = {
    "exits": {"crash"},
    "crashes": {"crash"},
    "spins": {"timeout"},
    "escapes": {"timeout"},
    "takes memory": {"memory", "timeout"},
    "answers without end": {"output", "timeout"},
    "leaves orphans, and answers": {"answered", "timeout"},
    "answers no JSON": {"crash", "timeout"},
}


def test_a_short_soak(bubblewrap):
    command = [sys.executable, "tools/soak.py", "--answers", "30", "--workers", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert found["left_behind"] == {}
    assert done.returncode == 0
    assert sum(sum(ends.values()) for ends in found["ends"].values()) == 30 + 2 * len(found["ends"])
    for name, allowed in TYPES.items():
        assert found["ends"][name].keys() <= allowed
