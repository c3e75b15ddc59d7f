"""`oncurve check`, `eval` of two models and of sampled answers, and `readout`, on what the runs of this folder made."""

import json

import pytest
import torch
from PIL import Image

from oncurve.record.reader import RunReader


def test_a_trained_run_against_an_untrained_model(oncurve, run_folder):
    done = oncurve("eval", "builtin:untrained", run_folder, "--paired", "--json")  # on the run's own held-out tasks
    assert (done.status, done.err) == (0, "")
    found = json.loads(done.out)
    assert (found["a"], found["b"]) == ("builtin:untrained", str(run_folder))
    assert (found["data"], found["num_tasks"], found["metric"]) == ("scenes:heldout", 8, "accuracy")
    last = RunReader(run_folder).metrics()[-1]
    assert found["metrics"]["mean_iou"]["b_mean"] == pytest.approx(last["eval/mean_iou/mean"])
    assert found["b_mean"] == last["eval/accuracy/mean"]
    assert found["difference"] == found["b_mean"] - found["a_mean"]
    assert len(found["changed"]["gained"]) == found["b_mean"] * 8
    assert found["changed"]["lost"] == []
    assert found["interval_95"][0] <= found["difference"] <= found["interval_95"][1]
    words = oncurve("eval", "builtin:untrained", run_folder, "--paired").out
    assert found["verdict"] in words
    assert max(map(len, words.splitlines())) <= 100


def test_a_model_against_itself_is_the_same(oncurve, run_folder):
    found = json.loads(oncurve("eval", run_folder, run_folder, "--paired", "--json").out)
    for one in found["metrics"].values():
        assert (one["difference"], one["p_value"], one["verdict"]) == (0.0, 1.0, "can't tell")
    assert found["changed"] == {"gained": [], "lost": []}


def test_sampled_answers(oncurve, warmed):
    data = "scenes:train?num_scenes=2&max_things=1"
    done = oncurve("eval", warmed, "--data", data, "--samples", 4, "--temperature", 0.7, "--json")
    found = json.loads(done.out)
    assert (found["samples"], found["temperature"], found["num_tasks"]) == (4, 0.7, 2)
    assert found["avg@4"] == pytest.approx(found["pass@1"])
    assert 0 <= found["pass@1"] <= found["pass@2"] <= found["pass@4"] <= 1


def test_general_questions_are_graded_by_kind(oncurve):
    done = oncurve("eval", "builtin:untrained", "--data", "general", "--limit", 60, "--max-new-tokens", 4, "--json")
    found = json.loads(done.out)
    assert found["num_tasks"] == 60
    assert list(found["by_kind"]) == ["choice", "counting", "math", "short_answer"]
    assert found["accuracy"] == 0.0
    assert sum(one["num_tasks"] for one in found["by_category"].values()) == 60


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("builtin:tiny", "builtin:tiny", "--data", "general"), "compares two (oncurve eval A B --paired)"),
        (("builtin:tiny", "--paired", "--data", "general"), "1 were given with --paired"),
        (("builtin:tiny",), "--data is needed: builtin:tiny is no run"),
        (("builtin:tiny", "--data", "general", "--temperature", "1"), "--temperature is of sampled answers"),
        (("builtin:tiny", "builtin:tiny", "--paired", "--samples", "2", "--data", "general"), "leave --samples out"),
    ],
)
def test_what_does_not_go_together_is_refused(oncurve, arguments, words):
    done = oncurve("eval", *arguments)
    assert done.status == 2
    assert words in done.err


def test_check_of_a_model_that_is_ready(oncurve, folder, warmed, tmp_path):
    sheet = tmp_path / "sheet.png"
    done = oncurve("check", folder / "train.toml", f"--model.path={warmed}", "--out", sheet, "--json")
    found = json.loads(done.out)
    assert (done.status, done.err, found["ready"], found["reasons"]) == (0, "", True, []), done.err
    assert (found["prompts"]["num_measured"], found["prompts"]["num_tasks"]) == (2, 2)
    assert found["audit"]["broken"] == []
    assert found["audit"]["num_applied"] > 10
    assert found["baseline"]["num_answers"] == 16 * 4
    assert found["baseline"]["valid_format"] > 0.5
    assert found["dry_run"]["fits"]
    assert found["duration"]["num_evaluations"] == 3
    assert found["duration"]["run_s"] > 0
    assert found["guide"]["method"] == "grpo"
    assert Image.open(sheet).size == (2 * 240, 240 + 34)
    assert not (folder / "small" / "readout").exists()


def test_check_of_a_model_that_knows_no_format(oncurve, folder):
    done = oncurve("check", folder / "train.toml", "--model.path=builtin:untrained", "--hours", "1e-9")
    assert (done.status, done.err) == (1, "")
    assert "NOT YET" in done.out
    assert "100% of groups have no signal: warm up first" in done.out
    assert "more than 1e-09 (--hours)" in done.out
    assert "so SFT, then GRPO" in done.out


def test_check_says_where_memory_ends(oncurve, folder, warmed, monkeypatch):
    arguments = ("check", folder / "train.toml", f"--model.path={warmed}")

    def out_of_memory(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patched:
        patched.setattr("oncurve.update.Updater.update", out_of_memory)
        done = oncurve(*arguments, "--json")
    found = json.loads(done.out)
    assert (done.status, [reason["reason"] for reason in found["reasons"]]) == (1, ["out_of_memory"])
    assert (found["dry_run"]["fits"], found["duration"]["run_s"]) == (False, None)
    monkeypatch.setattr("oncurve.rollout.local.LocalSampler.sample", out_of_memory)
    done = oncurve(*arguments)
    assert done.status == 2
    assert "2 x 4 answers can't be sampled" in done.err


def test_the_readout_of_a_run(oncurve, run_folder, tmp_path):
    done = oncurve("readout", run_folder, "--out", tmp_path / "read")
    assert (done.status, done.err) == (0, "")
    assert done.out.strip() == str(tmp_path / "read" / "README.md")
    text = (tmp_path / "read" / "README.md").read_text("utf-8")
    probes = RunReader(run_folder).probes()
    assert list(probes) == [0, 2, 4]
    assert "evaluated greedily after step 0, 2, 4." in text
    for number, probe in enumerate(probes[4], 1):
        assert f"### {number}. {probe['question']}" in text
        assert f"![question {number}](question-{number}.jpg)" in text
        assert (tmp_path / "read" / f"question-{number}.jpg").stat().st_size < 60_000
    assert [text.count(f"\n| {step} | ") for step in (0, 2, 4)] == [2, 2, 2]
    assert (tmp_path / "read" / "curves.svg").read_text("utf-8").count("<polyline") >= 4


def test_a_readout_needs_probes(oncurve, warmed):
    done = oncurve("readout", warmed)
    assert done.status == 2
    assert "has no probes to read" in done.err


def test_general_questions_in_a_run(oncurve, folder, warmed, tmp_path):
    options = ("--num_steps=2", "--evaluate.general=true", "--evaluate.every_steps=0", f"--runs_folder={tmp_path}")
    done = oncurve("train", folder / "train.toml", f"--model.path={warmed}", *options)
    assert done.status == 0, done.err
    rows = [row for row in RunReader(tmp_path / "small").metrics() if "eval/general/accuracy" in row]
    assert [row["step"] for row in rows] == [0, 2]
    assert [row["eval/general/num_tasks"] for row in rows] == [8, 8]
    assert "general questions after step 2: 0.000 are right" in done.out
