"""The attacks on the sandbox: they work where there are no walls, and fail where there are."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oncurve.cli.main import main
from oncurve.errors import SandboxError
from oncurve.sandbox import probes
from oncurve.sandbox.launch import open_child
from oncurve.sandbox.limits import Limits
from oncurve.sandbox.probes import NOT_OF_LANDLOCK, Probe, attack, report


def outcomes(level: str) -> dict[str, str]:
    return {probe.name: probe.outcome for probe in attack(level)}


def test_without_walls_the_attacks_get_through():
    """Else a blocked attack would say nothing."""
    stopped_by_limits = {"take_memory", "take_memory_together", "write_without_end"}
    assert {name for name, outcome in outcomes("none").items() if outcome != "allowed"} == stopped_by_limits


def test_bubblewrap_blocks_them_all(bubblewrap):
    assert set(outcomes("bubblewrap").values()) == {"blocked"}


def test_bubblewrap_blocks_them_all_for_an_ordinary_user(bubblewrap, tmp_path):
    """As root, where the tests run so: as an ordinary user, with the system's own Python, who has to be able to read it."""
    python = shutil.which("python3", path="/usr/bin")
    if os.geteuid() != 0 or not python or sys.version_info[:2] != (3, 11):
        pytest.skip("needs root, and the system's Python in the version of this one")
    folders = [Path(probes.__file__).parents[2], *map(Path, __import__("site").getsitepackages())]
    code = "from oncurve.sandbox.probes import attack; print({probe.outcome for probe in attack('bubblewrap')})"
    command = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", python, "-B", "-c", code]
    done = subprocess.run(
        command, env={"PYTHONPATH": ":".join(map(str, folders))}, cwd="/", capture_output=True, text=True, check=False
    )
    if "No module named" in done.stderr:
        pytest.skip("this checkout can't be read by other users")
    assert done.stdout == "{'blocked'}\n", done.stderr


def test_landlock_blocks_what_it_is_said_to():
    try:
        found = outcomes("landlock")
    except SandboxError as error:
        pytest.skip(f"no Landlock here: {error}")
    assert {name for name, outcome in found.items() if outcome != "blocked"} <= NOT_OF_LANDLOCK


@pytest.mark.parametrize("missing", ["connect_network", "take_memory"])
def test_the_level_is_what_the_attacks_prove(monkeypatch, missing):
    def fake(level: str) -> tuple[Probe, ...]:
        through = level == "bubblewrap" or (level == "landlock" and missing == "take_memory")
        return tuple(
            Probe(name, "", "allowed" if name == missing and through else "blocked", "")
            for name in ("connect_network", "take_memory", "fill_disk")
        )

    monkeypatch.setattr(probes, "attack", fake)
    found = report.__wrapped__()
    assert found.level == {"connect_network": "landlock", "take_memory": "none"}[missing]
    assert found.missed["bubblewrap"] == f"not blocked: {missing}"


def test_a_disposable_machine_is_declared_and_then_looked_at(monkeypatch):
    monkeypatch.setattr(probes, "attack", lambda level: (Probe("fill_disk", "", "blocked", ""),))
    assert report.__wrapped__().level == "bubblewrap"
    monkeypatch.setenv("ONCURVE_DISPOSABLE_VM", "1")
    monkeypatch.setattr(probes, "_hypervisor", lambda: True)
    assert report.__wrapped__().level == "vm"
    monkeypatch.setattr(probes, "_hypervisor", lambda: False)
    assert report.__wrapped__().level == "bubblewrap"


def test_the_verb_prints_every_attack(bubblewrap, capsys):
    assert main(["sandbox", "probe", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["level"] in ("bubblewrap", "vm")
    assert {"name", "outcome", "detail"} <= told["probes"][0].keys()
    assert len(told["probes"]) == 21
    assert main(["sandbox", "probe"]) == 0
    text = capsys.readouterr().out
    assert "21 of 21 attacks blocked" in text
    assert "outlive its deadline" in text


def test_below_bubblewrap_the_verb_says_so(monkeypatch, capsys):
    found = probes.Report("landlock", attack_of("allowed"), {"bubblewrap": "bubblewrap is not installed"})
    monkeypatch.setattr("oncurve.cli.sandbox.report", lambda: found)
    assert main(["sandbox", "probe"]) == 1
    text = capsys.readouterr().out
    assert "bubblewrap is not installed" in text
    assert "0 of 1 attacks blocked" in text


def attack_of(outcome: str) -> tuple[Probe, ...]:
    return (Probe("fill_disk", "fill the disk", outcome, "many"),)


def test_a_child_behind_landlock_can_work():
    program = """
import tempfile

def answer(request):
    import fractions  # what it imports later is there
    with tempfile.NamedTemporaryFile("w+") as file:
        file.write(open(FILES + "/a").read())
        file.seek(0)
        return {"read": file.read(), "third": str(fractions.Fraction(1, 3))}
"""
    options = {"limits": Limits(), "files": {"a": b"text"}, "site_packages": False, "read_only": ()}
    try:
        child = open_child("landlock", program, **options)
    except SandboxError as error:
        pytest.skip(f"no Landlock here: {error}")
    with child:
        assert child.ask({}, 10.0) == {"read": "text", "third": "1/3"}
