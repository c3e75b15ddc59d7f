"""`oncurve export`: a folder that transformers loads by itself, and that answers as Oncurve does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from oncurve.record.reader import RunReader
from oncurve.tasks.scenes import draw_scene, make_scene

ALONE = """
import json, sys
from pathlib import Path
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor
folder, rows = sys.argv[1], json.loads(sys.argv[2])
model, processor = AutoModelForImageTextToText.from_pretrained(folder), AutoProcessor.from_pretrained(folder)
answers = []
for path, question in rows:
    content = [{"type": "image"}, {"type": "text", "text": question}]
    prompt = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    inputs = processor(text=[prompt], images=[Image.open(path)], return_tensors="pt")
    answer = model.generate(**inputs)[0, inputs["input_ids"].shape[1] :]
    answers.append(processor.decode(answer, skip_special_tokens=True))
assert not [name for name in sys.modules if name.split(".")[0] == "oncurve"]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def exported(oncurve, run_folder, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("export") / "deep" / "model"
    done = oncurve("export", run_folder, "--merge-adapter", "--out", out)
    assert (done.status, done.err) == (0, "")
    assert f"step 4, to {out}" in done.out
    assert "whole weights: the run trained no adapter" in done.out
    return out


def answers(oncurve, model: Path, exported: Path, folder: Path) -> tuple[list[str], list[str]]:
    """Greedy answers to six scenes: of Oncurve with `model`, and of transformers alone in a fresh process."""
    scenes = [make_scene("train", i, max_things=1) for i in range(2)] + [make_scene("heldout", i) for i in range(4)]
    rows, ours = [], []
    for i, scene in enumerate(scenes):
        draw_scene(scene).save(folder / f"{i}.png")
        rows.append([str(folder / f"{i}.png"), f"box {scene.phrase}"])
        done = oncurve("predict", folder / f"{i}.png", scene.phrase, "--model", model, "--json")
        ours.append(json.loads(done.out)["text"])
    command = [sys.executable, "-I", "-c", ALONE, exported, json.dumps(rows)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return ours, json.loads(done.stdout)


def test_a_fresh_process_with_transformers_alone_gives_the_same_greedy_answers(exported, oncurve, run_folder, tmp_path):
    ours, theirs = answers(oncurve, run_folder, exported, tmp_path)
    assert theirs == ours
    assert len(set(ours)) > 1
    assert any(text.startswith("<box>") for text in ours)


def test_an_adapter_alone_and_merged(oncurve, folder, warmed, tmp_path):
    options = [f"--runs_folder={tmp_path}", f"--model.path={warmed}", "--model.lora.rank=4", "--num_steps=2"]
    assert oncurve("train", folder / "train.toml", *options, "--optimizer.learning_rate=1e-2").status == 0
    run, alone, merged = tmp_path / "small", tmp_path / "alone", tmp_path / "merged"
    assert json.loads(oncurve("export", run, "--out", alone, "--json").out)["kind"] == "adapter"
    done = oncurve("export", run, "--merge-adapter", "--out", merged)
    assert (done.status, done.err) == (0, "")
    assert "with the adapter merged in" in done.out
    assert not (alone / "model.safetensors").exists()
    before = load_file(warmed / "checkpoints" / "step-000040" / "model" / "model.safetensors")
    after = load_file(merged / "model.safetensors")
    assert after.keys() == before.keys()
    assert any(not after[name].equal(before[name]) for name in after)
    assert not (merged / "adapter_config.json").exists()
    ours, theirs = answers(oncurve, run, merged, tmp_path)
    assert theirs == ours


def test_what_is_in_the_folder(exported):
    names = {path.name for path in exported.iterdir()}
    assert {"model.safetensors", "config.json", "generation_config.json", "chat_template.jinja", "README.md"} <= names
    assert {"tokenizer.json", "processor_config.json"} <= names
    generation = json.loads((exported / "generation_config.json").read_text())
    assert generation["max_new_tokens"] == 16
    assert generation["do_sample"] is False
    assert list(exported.parent.iterdir()) == [exported]


def test_the_model_card(exported, run_folder):
    card, rows = (exported / "README.md").read_text(), RunReader(run_folder).metrics()
    evaluated = [row for row in rows if "eval/mean_iou/mean" in row]
    before, after = evaluated[0]["eval/mean_iou/mean"], evaluated[-1]["eval/mean_iou/mean"]
    assert f"| mean IoU | {before:.3f} | {after:.3f} |" in card
    assert RunReader(run_folder).info["command"] in card
    assert '"similarity": "iou"' in card
    assert "training: type `scenes`, split `train`, num_scenes `2`" in card
    assert "held out: type `scenes`, split `heldout`, num_scenes `8`" in card
    assert f"torch {RunReader(run_folder).info['versions']['torch']}" in card


def test_an_earlier_checkpoint_and_a_supervised_run(oncurve, run_folder, warmed, tmp_path):
    done = oncurve("export", run_folder, "--step", 2, "--out", tmp_path / "two", "--json")
    found = json.loads(done.out)
    assert (found["step"], found["kind"]) == (2, "weights")
    assert "after (step 2)" in (tmp_path / "two" / "README.md").read_text()
    assert oncurve("export", warmed, "--out", tmp_path / "sft").status == 0
    assert "the weights after step 40" in (tmp_path / "sft" / "README.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{run}", "--out", "{taken}"], "is not empty, and an export never overwrites"),
        (["{run}", "--out", "{taken}/mine"], "is not empty, and an export never overwrites"),
        (["{run}", "--step", "3", "--out", "{here}/new"], "no checkpoint of step 3; there are: 2, 4"),
        (["{here}", "--out", "{here}/new"], "is no run folder"),
    ],
)
def test_what_is_refused(oncurve, run_folder, tmp_path, arguments, says):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").write_text("mine")
    places = {"run": run_folder, "taken": tmp_path / "taken", "here": tmp_path}
    status, out, err = oncurve("export", *(argument.format(**places) for argument in arguments))
    assert (status, out) == (2, "")
    assert says in err
    assert [path.name for path in tmp_path.rglob("*")] == ["taken", "mine"]
