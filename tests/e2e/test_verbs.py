"""`oncurve sft`, `eval`, `predict` and `plan`, on what the runs of this folder made."""

import json
import tomllib
from pathlib import Path

import pytest
from PIL import Image, ImageChops

from oncurve.geometry.boxes import iou
from oncurve.policy.tiny import build_tokenizer
from oncurve.record.reader import RunReader
from oncurve.tasks.scenes import draw_scene, make_scene

RECIPES = Path(__file__).parents[2] / "recipes"


def test_sft_learns_and_leaves_a_whole_run(warmed_up, warmed, oncurve):
    assert (warmed_up.status, warmed_up.err) == (0, "")
    rows = RunReader(warmed).metrics()
    losses = [row["policy/loss"] for row in rows if "policy/loss" in row]
    assert len(losses) == 40
    assert losses[-1] < 0.5 * losses[0]
    steps = [row["step"] for row in rows if "eval/mean_iou/mean" in row]
    assert sorted(set(steps)) == [0, 20, 40]
    assert f"oncurve train recipes/cat_and_dog.toml --model.path={warmed}" in warmed_up.out
    assert "oncurve trace" not in warmed_up.out  # a supervised run has no steps to trace
    done = oncurve("eval", warmed, "--data", "scenes:train?num_scenes=2&max_things=1", "--json")
    assert json.loads(done.out)["valid_format"] == 1.0


def test_sft_stops_after_its_seconds(oncurve, folder, tmp_path):
    stage = '[[stages]]\nname = "later"\nnum_updates = 3\n'
    (tmp_path / "two.toml").write_text((folder / "warm_up.toml").read_text() + stage)
    done = oncurve("sft", tmp_path / "two.toml", f"--runs_folder={tmp_path}", "--max_seconds=1e-6")
    assert done.status == 0, done.err
    losses = [row for row in RunReader(tmp_path / "warmed").metrics() if "policy/loss" in row]
    assert len(losses) == 1
    assert [path.name for path in (tmp_path / "warmed" / "checkpoints").iterdir()] == ["step-000001"]


def test_eval_of_a_run_is_that_of_its_last_weights(oncurve, run_folder):
    done = oncurve("eval", run_folder, "--data", "scenes:heldout", "--limit", 8, "--json")
    assert (done.status, done.err) == (0, "")
    found, last = json.loads(done.out), RunReader(run_folder).metrics()[-1]
    assert last["step"] == 4
    assert found["mean_iou"] == pytest.approx(last["eval/mean_iou/mean"])
    assert found["acc@0.5"] == last["eval/accuracy/mean"]
    assert found["valid_format"] == last["eval/heldout/valid_format"]
    assert found["num_tasks"] == 8
    for name, (low, high) in found["intervals_95"].items():
        assert 0 <= low <= found[name] <= high <= 1


def test_eval_of_a_model_counts_rejected_rows(oncurve, tmp_path):
    draw_scene(make_scene("train", 0)).save(tmp_path / "a.png")
    rows = [
        {"image": "a.png", "phrase": "the cat", "box": [0.1, 0.1, 0.5, 0.5]},
        {"image": "b.png", "phrase": "the cat", "box": [0.1, 0.1, 0.5, 0.5]},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ("eval", "builtin:untrained", "--data", f"{tmp_path}/a.jsonl?space=unit&order=xyxy")
    found = json.loads(oncurve(*arguments, "--json").out)
    assert (found["num_tasks"], found["num_rejected_rows"], found["valid_format"]) == (1, 1, 0.0)
    assert "1 of 2 rows left out: 1 image missing (a.jsonl:2)" in oncurve(*arguments).out


def test_predict_draws_the_box_that_it_prints(oncurve, warmed, tmp_path):
    scene = make_scene("train", 0, max_things=1)
    draw_scene(scene, 256).save(tmp_path / "scene.png")
    out = tmp_path / "boxed.png"
    done = oncurve("predict", tmp_path / "scene.png", scene.phrase, "--model", warmed, "--out", out, "--json")
    assert (done.status, done.err) == (0, "")
    found = json.loads(done.out)
    assert found["fault"] is None
    assert iou(found["box"], scene.box) > 0.2
    before, after = Image.open(tmp_path / "scene.png").convert("RGB"), Image.open(out)
    x1, y1, x2, y2 = (round(corner * 255) for corner in found["box"])
    assert ImageChops.difference(before, after).getbbox() == (x1, y1, x2 + 1, y2 + 1)
    assert {after.getpixel(corner) for corner in ((x1, y1), (x2, y1), (x1, y2), (x2, y2))} == {(255, 45, 45)}
    center = ((x1 + x2) // 2, (y1 + y2) // 2)
    assert after.getpixel(center) == before.getpixel(center)


def test_predict_without_a_box(oncurve, tmp_path):
    draw_scene(make_scene("train", 0)).save(tmp_path / "scene.png")
    out = tmp_path / "boxed.png"
    done = oncurve("predict", tmp_path / "scene.png", "the cat", "--model", "builtin:untrained", "--out", out)
    assert (done.status, done.err) == (1, "")
    assert "is no box" in done.out
    assert not out.exists()


def test_plan_of_one_prompt_and_56_answers(oncurve):
    only = ("--model.path=builtin:untrained", "--data.num_scenes=1", "--data.max_things=1")
    found = json.loads(oncurve("plan", RECIPES / "pr1.toml", "--json", *only).out)
    named = {"prompts_per_step": 1, "answers_per_step": 56, "groups_per_step": 7, "group_size": 8}
    named |= {"prompts_per_update": 2, "answers_per_update": 112, "num_steps": 200, "num_updates": 100}
    assert {name: found[name] for name in named} == named
    phrase = make_scene("train", 0, max_things=1).phrase
    # <user>, the words, then the picture's 64 tokens between <fake_token_around_image> <global-img> and another, <assistant>
    prompt = 1 + len(build_tokenizer()(f"box {phrase}").input_ids) + 2 + 64 + 1 + 1
    assert found["prompt_tokens"] == prompt
    assert found["tokens_plain"] == 56 * (prompt + 16)
    assert found["tokens_shared"] == prompt + 56 * 16


def test_plan_in_words(oncurve):
    done = oncurve("plan", RECIPES / "pr1_code.toml", "--model.path=builtin:untrained")
    assert done.status == 0
    assert "7 prompts x 8 answers = 56 answers, in 7 groups of 8" in done.out
    assert "14 prompts, 112 answers, 1 pass" in done.out
    assert max(map(len, done.out.splitlines())) <= 100


def test_plan_of_every_training_recipe(oncurve, monkeypatch):
    monkeypatch.chdir(RECIPES.parent)
    for path in RECIPES.glob("*.toml"):
        if "stages" not in tomllib.loads(path.read_text("utf-8")):
            found = json.loads(oncurve("plan", path, "--json", "--model.path=builtin:untrained").out)
            assert found["tokens_shared"] < found["tokens_plain"], path
            assert 0 < found["memory_bytes_estimate"] < 2**32


def test_the_built_in_model_learns_one_pass_a_step_and_its_trace_adds_up(oncurve, tmp_path):
    """One pass and no KL term, from the shipped weights: rewards vary from the first step on."""
    config = tmp_path / "one_pass.toml"
    config.write_text(
        'name = "one_pass"\nnum_steps = 2\n'
        "sampling = { prompts_per_step = 2, answers_per_prompt = 4 }\n"
        "evaluate = { every_steps = 0, num_tasks = 8 }\n"
    )
    done = oncurve("train", str(config), f"--runs_folder={tmp_path}")
    assert done.status == 0, done.err
    traced = oncurve("trace", str(tmp_path / "one_pass"), "--step", "2", "--json")
    assert traced.status == 0
    found = json.loads(traced.out)
    assert found["sum_of_absolute_terms"] > 0.1
    (only,) = found["passes"]
    assert only["logged_loss"] == found["logged_loss"]


def test_the_built_in_model_is_no_straw_man(oncurve):
    done = oncurve("eval", "builtin:tiny", "--data", "scenes:heldout", "--limit", "100", "--json")
    found = json.loads(done.out)
    assert found["num_tasks"] == 100
    assert found["valid_format"] >= 0.95
    assert 0.55 <= found["mean_iou"] <= 0.65
