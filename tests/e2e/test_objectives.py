"""PPO with everything that an update carries on, from the command line: traced, stopped and resumed."""

import json
from shutil import copytree

import pytest
import torch

from oncurve.record.reader import RunReader

CLOCKS = ("time/", "throughput/", "memory/", "verifier/latency_ms/")
PPO = """
name = "ppo"
num_steps = 2
data = { type = "scenes", num_scenes = 2, max_things = 1 }
heldout = { type = "scenes", split = "heldout", num_scenes = 4 }
sampling = { prompts_per_step = 2, answers_per_prompt = 2 }
optimizer = { warmup_updates = 0, learning_rate = 1e-3 }
evaluate = { every_steps = 0, num_tasks = 2, num_probes = 1 }
checkpoint = { every_steps = 1 }
[objective]
type = "ppo"
passes = 2
mini_batches = 2
entropy = 0.01
importance_cap = 2.0
truncated = "mask"
sft_weight = 0.1
kl = { beta = 0.05, move_every = 1 }
"""


@pytest.fixture(scope="module")
def ppo(oncurve, folder, warmed):
    (folder / "ppo.toml").write_text(PPO)
    done = oncurve("train", folder / "ppo.toml", f"--runs_folder={folder}", f"--model.path={warmed}")
    assert done.status == 0, done.err
    return folder / "ppo"


def everything(run_folder):
    reader = RunReader(run_folder)
    metrics = [{k: v for k, v in row.items() if not k.startswith(CLOCKS)} for row in reader.metrics()]
    return metrics, [[repr(row) for row in reader.step(step)] for step in reader.steps()]


def same(a, b) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_policy_and_value_loss_add_up_to_what_was_logged(oncurve, ppo):
    for step in (1, 2):
        done = oncurve("trace", ppo, "--step", step, "--json")
        assert done.status == 0, done.out
        traced = json.loads(done.out)
        assert traced["critic"]["sum_of_absolute_terms"] > 0
        assert traced["critic"]["relative_difference"] < 1e-5
        assert len(traced["passes"]) == 2
    last = [row for row in RunReader(ppo).metrics() if "critic/loss" in row][-1]
    assert {"critic/value/mean", "critic/clip/share", "critic/learning_rate", "policy/sft_loss"} <= last.keys()
    assert RunReader(ppo).step(2)[0].policy_version == 4  # two passes of two mini-batches
    shown = oncurve("trace", ppo, "--step", 2).out
    assert max(map(len, shown.splitlines())) <= 100
    assert "value loss (mean)" in shown


def test_going_on_from_the_first_step_gives_the_same_run(oncurve, ppo, tmp_path):
    folder = copytree(ppo, tmp_path / "run")
    (folder / "checkpoints" / "step-000002" / "optimizer.pt").write_bytes(b"torn")
    done = oncurve("train", "--resume", folder)
    assert (done.status, done.err) == (0, "")
    assert "goes on after step 1" in done.out
    assert everything(folder) == everything(ppo)
    saved = [torch.load(run / "checkpoints" / "step-000002" / "optimizer.pt") for run in (folder, ppo)]
    assert same(*saved)
    assert saved[0]["value_head"]["out.weight"].any()
    assert saved[0]["reference"] is not None
