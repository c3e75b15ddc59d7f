"""Stopping and going on gives the same bits as not stopping."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from shutil import copytree

import pytest
import torch
from safetensors.torch import load_file

import oncurve as package
from oncurve.record.reader import RunReader

CLOCKS = ("time/", "throughput/", "memory/", "verifier/latency_ms/")


def metrics(run_folder):
    rows = RunReader(run_folder).metrics()
    return [{name: value for name, value in row.items() if not name.startswith(CLOCKS)} for row in rows]


def same_tensors(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_tensors(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same_tensors, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def assert_same_run(one: Path, other: Path):
    a, b = RunReader(one), RunReader(other)
    assert metrics(one) == metrics(other)
    assert a.steps() == b.steps()
    for step in a.steps():
        assert [repr(row) for row in a.step(step)] == [repr(row) for row in b.step(step)]
    assert a.probes() == b.probes()
    assert sorted(p.name for p in (one / "images").iterdir()) == sorted(p.name for p in (other / "images").iterdir())
    checkpoints = sorted(path.name for path in (one / "checkpoints").iterdir())
    assert checkpoints == sorted(path.name for path in (other / "checkpoints").iterdir())
    for name in checkpoints:
        x, y = one / "checkpoints" / name, other / "checkpoints" / name
        assert same_tensors(load_file(x / "model/model.safetensors"), load_file(y / "model/model.safetensors"))
        assert same_tensors(torch.load(x / "optimizer.pt"), torch.load(y / "optimizer.pt"))
        assert (x / "state.json").read_bytes() == (y / "state.json").read_bytes()


def test_from_the_checkpoint_before_a_damaged_one(oncurve, run_folder, tmp_path):
    """Steps 3 and 4 are recorded, but their checkpoint is torn: they are cut off and replayed."""
    folder = copytree(run_folder, tmp_path / "run")
    weights = folder / "checkpoints" / "step-000004" / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    done = oncurve("train", "--resume", folder)
    assert (done.status, done.err) == (0, "")
    assert "model.safetensors has 1000 bytes" in done.out
    assert "goes on after step 2" in done.out
    assert [line.split()[0] for line in done.out.splitlines() if "/4 " in line] == ["3/4", "4/4"]
    assert_same_run(folder, run_folder)


def test_after_a_kill(oncurve, folder, warmed, tmp_path):
    options = ["--num_steps=9", f"--model.path={warmed}", "--accumulate_steps=1", "--evaluate.every_steps=0"]
    options += ["--checkpoint.every_steps=3", "--objective.passes=1", "--optimizer.schedule=linear"]
    command = ["train", str(folder / "train.toml"), *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(package.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-m", "oncurve", *command, f"--runs_folder={tmp_path}"],
        stdout=subprocess.DEVNULL,
        env=environment,
    ) as process:
        while not (tmp_path / "small" / "steps" / "step-000004.parquet").exists():
            assert process.poll() is None, "the run ended before it could be killed"
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    steps = RunReader(tmp_path / "small").steps()
    assert 4 <= len(steps) < 9
    done = oncurve("train", "--resume", tmp_path / "small")
    assert done.status == 0, done.err
    whole = tmp_path / "whole"
    assert oncurve(*command, f"--runs_folder={whole}").status == 0
    assert_same_run(tmp_path / "small", whole / "small")


def test_a_finished_run_says_so(oncurve, run_folder):
    before = {path: path.read_bytes() for path in run_folder.rglob("*") if path.is_file()}
    done = oncurve("train", "--resume", run_folder)
    assert (done.status, done.err) == (0, "")
    assert "all 4 steps of this run are done" in done.out
    assert {path: path.read_bytes() for path in before} == before


def test_without_a_checkpoint(oncurve, run_folder, tmp_path):
    folder = copytree(run_folder, tmp_path / "run", ignore=lambda *_: ["checkpoints"])
    before = (folder / "metrics.jsonl").read_bytes()
    status, _, err = oncurve("train", "--resume", folder)
    assert status == 2
    assert f"{folder}: there is no intact checkpoint" in err
    assert "--replace" in err
    assert (folder / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--resume", "{run}", "--num_steps=9"], "takes no other options"),
        (["--resume", "{run}", "--replace"], "takes no other options"),
        (["{config}", "--resume", "{run}"], "give either a configuration"),
        ([], "give either a configuration"),
        (["--resume", "{here}"], "is no run folder: it has no config.json"),
        (["--resume", "{here}/nowhere"], "is no run folder: it has no config.json"),
        (["--resume", "{sft}"], "is no run of `oncurve train`"),
    ],
)
def test_what_cannot_be_resumed(oncurve, run_folder, warmed, folder, tmp_path, arguments, says):
    places = {"run": run_folder, "config": folder / "train.toml", "here": tmp_path, "sft": warmed}
    status, out, err = oncurve("train", *(argument.format(**places) for argument in arguments))
    assert (status, out) == (2, "")
    assert err.startswith("oncurve: ")
    assert says in err


def test_a_run_is_never_overwritten(oncurve, folder, warmed, tmp_path):
    command = ["train", folder / "train.toml", f"--runs_folder={tmp_path}", f"--model.path={warmed}", "--num_steps=2"]
    assert oncurve(*command).status == 0
    before = metrics(tmp_path / "small")
    status, _, err = oncurve(*command, "--seed=1")
    assert status == 2
    assert all(choice in err for choice in ("--resume", "--name=", "--replace"))
    assert metrics(tmp_path / "small") == before
    assert oncurve(*command, "--seed=1", "--replace").status == 0
    assert RunReader(tmp_path / "small").config["seed"] == 1
    assert metrics(tmp_path / "small") != before
    assert sorted(row["step"] for row in metrics(tmp_path / "small")) == [0, 1, 2, 2]


def test_replace_keeps_the_old_run_where_the_new_one_cannot_start(oncurve, run_folder, folder, tmp_path):
    copytree(run_folder, tmp_path / "small")
    command = ["train", folder / "train.toml", f"--runs_folder={tmp_path}", "--replace", "--model.path=builtin:tyni"]
    status, _, err = oncurve(*command)
    assert status == 2
    assert "builtin:tyni" in err
    assert_same_run(tmp_path / "small", run_folder)
