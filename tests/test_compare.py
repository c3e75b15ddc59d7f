"""The first difference of two runs, in every part of the record and of a checkpoint."""

import copy
import json
import math
from pathlib import Path
from shutil import copytree

import pytest
import torch
from safetensors.torch import save_file

from oncurve.cli.main import main
from oncurve.compare import compare
from oncurve.config.schema import TrainConfig
from oncurve.record import checkpoint
from oncurve.record.writer import RunWriter

STATE = {"done": 2, "parts": [{"state": {0: {"step": torch.tensor(2.0), "m": torch.tensor([0.5, -0.5])}}}]}
WEIGHTS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.zeros(2, dtype=torch.bfloat16)}


def evaluated(step: int, mean: float, seconds: float) -> dict:
    names = ["eval/accuracy/mean", "eval/heldout/acc@0.75", "eval/heldout/acc@0.95", "eval/heldout/valid_format"]
    return {"eval/mean_iou/mean": mean, "eval/accuracy/num_tasks": 4, **dict.fromkeys(names, 0.5), "time/s": seconds}


def a_run(folder: Path, *, seconds: float = 1.0, loss=0.5, event="x", probe="x", weights=WEIGHTS, state=STATE) -> Path:
    config = TrainConfig(name=folder.name, num_steps=2, seed=0)
    writer = RunWriter.create(folder, config, "oncurve train")
    writer.metrics(0, evaluated(0, 0.25, seconds))
    for step in (1, 2):
        writer.metrics(step, {"policy/loss": loss * step, "nan": math.nan, "time/update_s": seconds})
        writer.metrics(step, {"throughput/tokens_per_s": seconds, "memory/peak_bytes": seconds, "same": 1})
        writer.metrics(step, {"verifier/latency_ms/p95": seconds})
    writer.event(1, "left_out", task_id=event)
    writer.probes(2, [{"text": probe}])

    def write(folder: Path) -> None:
        (folder / "model").mkdir()
        save_file(weights, folder / "model" / "model.safetensors")
        torch.save(state, folder / "optimizer.pt")

    checkpoint.save(folder, 2, write, {"policy_version": 4}, keep_last=2)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return a_run(tmp_path_factory.mktemp("compare") / "run")


def other_state() -> dict:
    state = copy.deepcopy(STATE)
    state["parts"][0]["state"][0]["m"][1] += 0.25
    return state


def test_clocks_names_and_rewritten_files_are_no_difference(run, tmp_path):
    found = compare(run, a_run(tmp_path / "another", seconds=2.0, weights=dict(reversed(WEIGHTS.items()))))
    assert found.identical
    assert found.config == {}
    assert found.checkpoints == (2,)
    assert found.evaluations[0] == found.evaluations[1]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"loss": 0.625}, (1, "metrics[0].policy/loss", 0.5, 0.625, 0.125)),
        ({"loss": math.nan}, (1, "metrics[0].policy/loss", 0.5, "missing", None)),
        ({"event": "y"}, (1, "events[0].task_id", "x", "y", None)),
        ({"probe": "y"}, (2, "probes[0].text", "x", "y", None)),
        (
            {"weights": WEIGHTS | {"a": WEIGHTS["a"] * torch.tensor([1.0, 1.0, 1.5])}},
            (2, "checkpoint/model/model.safetensors.a", 2.0, 3.0, 2.5),
        ),
        (
            {"weights": WEIGHTS | {"b": -WEIGHTS["b"]}},
            (2, "checkpoint/model/model.safetensors.b", 0.0, -0.0, 0.0),
        ),
        (
            {"weights": WEIGHTS | {"b": torch.zeros(2)}},
            (2, "checkpoint/model/model.safetensors.b", "torch.bfloat16 [2]", "torch.float32 [2]", None),
        ),
        ({"state": other_state()}, (2, "checkpoint/optimizer.pt.parts[0].state.0.m", -0.5, -0.25, 0.25)),
    ],
)
def test_the_first_difference_and_by_how_much(run, tmp_path, change, expected):
    first = compare(run, a_run(tmp_path / "run", **change)).first_difference
    assert (first.step, first.field, first.a, first.b, first.by) == expected


def test_what_only_one_run_has(run, tmp_path):
    longer = copytree(run, tmp_path / "longer")
    writer = RunWriter.resume(longer, 2)
    writer.metrics(3, {"policy/loss": 1.0})
    assert compare(run, longer).first_difference.step == 3
    checkpoint.save(writer.folder, 1, lambda folder: (folder / "w").touch(), {}, keep_last=2)
    first = compare(run, longer).first_difference
    assert first.step == 3  # a checkpoint that the other no longer keeps is no difference
    RunWriter.resume(longer, 1)
    first = compare(run, longer).first_difference
    assert (first.step, first.field, first.a, first.b) == (1, "checkpoint", "missing", "saved")


def test_the_command(run, tmp_path, capsys):
    same, other = copytree(run, tmp_path / "same"), a_run(tmp_path / "other", loss=0.625)
    info = json.loads((other / "config.json").read_text())
    info["config"]["sampling"]["temperature"] = 0.5
    (other / "config.json").write_text(json.dumps(info))
    assert main(["compare", str(run), str(same), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["identical"], found["first_difference"], found["config"]) == (True, None, {})
    assert main(["compare", str(run), str(other), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["identical"] is False
    assert found["first_difference"] == {
        "step": 1,
        "field": "metrics[0].policy/loss",
        "a": 0.5,
        "b": 0.625,
        "by": 0.125,
    }
    assert found["config"] == {"sampling.temperature": [1.0, 0.5]}
    assert main(["compare", str(run), str(other)]) == 1
    out = capsys.readouterr().out
    assert "first at step 1, in metrics[0].policy/loss" in out
    assert "sampling.temperature" in out
    assert "mean IoU" in out
    assert main(["compare", str(run), str(same)]) == 0
    assert "the same bit for bit" in capsys.readouterr().out
    assert main(["compare", str(run), str(tmp_path)]) == 2
    assert "is no run folder" in capsys.readouterr().err
