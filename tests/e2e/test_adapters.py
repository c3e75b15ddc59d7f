"""A run that trains an adapter under gradient checkpointing, from the command line to the model that it leaves."""

import json
from shutil import copytree

import pytest
from safetensors.torch import load_file

from oncurve.record.reader import RunReader
from oncurve.tasks.scenes import draw_scene, make_scene

OPTIONS = ["--model.lora.rank=4", "--model.gradient_checkpointing=true", "--optimizer.learning_rate=5e-3"]
CLOCKS = ("time/", "throughput/", "memory/", "verifier/latency_ms/")


@pytest.fixture(scope="module")
def adapted(oncurve, folder, warmed, tmp_path_factory):
    runs = tmp_path_factory.mktemp("adapted")
    command = ["train", folder / "train.toml", f"--runs_folder={runs}", f"--model.path={warmed}", *OPTIONS]
    done = oncurve(*command)
    assert done.status == 0, done.err
    return runs / "small"


def metrics(run_folder):
    rows = RunReader(run_folder).metrics()
    return [{name: value for name, value in row.items() if not name.startswith(CLOCKS)} for row in rows]


def test_the_reference_stays_at_the_base(adapted):
    reader = RunReader(adapted)
    first, last = reader.step(1), reader.step(4)
    assert all(row.pass_logps[0] == row.reference_logps for row in first)
    assert any(abs(a - b) > 1e-3 for row in last for a, b in zip(row.pass_logps[0], row.reference_logps, strict=True))


def test_a_checkpoint_holds_the_adapter_alone(adapted, warmed):
    model = adapted / "checkpoints/step-000004/model"
    weights = load_file(model / "adapter_model.safetensors")
    assert all(".lora_" in name for name in weights)
    assert any(value.any() for name, value in weights.items() if ".lora_B." in name)
    config = json.loads((model / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(warmed / "checkpoints/step-000040/model")
    assert not (model / "model.safetensors").exists()


def test_going_on_gives_the_same_bits(oncurve, adapted, tmp_path):
    folder = copytree(adapted, tmp_path / "run")
    weights = folder / "checkpoints/step-000004/model/adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    done = oncurve("train", "--resume", folder)
    assert (done.status, done.err) == (0, "")
    assert "goes on after step 2" in done.out
    assert metrics(folder) == metrics(adapted)
    name = "checkpoints/step-000004/model/adapter_model.safetensors"
    assert (folder / name).read_bytes() == (adapted / name).read_bytes()


def test_eval_and_predict_take_the_run(oncurve, adapted, tmp_path):
    done = oncurve("eval", adapted, "--data", "scenes:heldout", "--limit", 8, "--json")
    assert (done.status, done.err) == (0, "")
    assert json.loads(done.out)["mean_iou"] == pytest.approx(metrics(adapted)[-1]["eval/mean_iou/mean"], abs=0.02)
    draw_scene(make_scene("train", 0)).save(tmp_path / "scene.png")
    done = oncurve("predict", tmp_path / "scene.png", "the cat", "--model", adapted, "--json")
    assert done.err == ""
    assert json.loads(done.out)["text"]


def test_plan_counts_what_trains(oncurve, folder, warmed):
    plans = []
    for options in ([], OPTIONS):
        done = oncurve("plan", folder / "train.toml", f"--model.path={warmed}", "--json", *options)
        assert (done.status, done.err) == (0, "")
        plans.append(json.loads(done.out))
    whole, adapter = plans
    assert whole["trained_parameters"] == whole["model_parameters"]
    assert adapter["trained_parameters"] == adapter["model_parameters"] - whole["model_parameters"] > 0
    assert adapter["memory_bytes_estimate"] < whole["memory_bytes_estimate"] / 2
