"""A whole GRPO run from the command line: what its folder holds, and that the numbers in it agree with one another."""

import json
import math
from statistics import fmean, stdev

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText, AutoProcessor

from oncurve.record.reader import RunReader
from oncurve.tasks.scenes import draw_scene, make_scene

EACH_STEP = [
    "reward/total/mean",
    "reward/total/std_in_group",
    "reward/part/format/mean",
    "groups/no_signal/share",
    "groups/size/mean",
    "groups/duplicate_answers/share",
    "prompts/num",
    "groups/num",
    "answers/num",
    "answers/length_tokens/mean",
    "answers/length_tokens/p50",
    "answers/length_tokens/p90",
    "answers/truncated/share",
    "answers/invalid/share",
    "answers/repetition/share",
    "policy/loss",
    "policy/kl_reference/mean",
    "policy/entropy/mean",
    "policy/ratio/mean",
    "policy/ratio/first_pass_max_deviation",
    "policy/clip_low/share",
    "policy/clip_high/share",
    "sampler/mismatch_kl/mean",
    "sampler/importance/mean",
    "sampler/effective_sample/share",
    "verifier/error/share",
    "tokens/distinct_share",
    "throughput/tokens_per_s",
    "memory/peak_bytes",
    "time/plan_s",
    "time/sample_s",
    "time/grade_s",
    "time/assemble_s",
    "time/record_s",
]
EACH_UPDATE = [
    "policy/grad_norm/before_clip",
    "policy/grad_norm/after_clip",
    "policy/learning_rate",
    "policy/skipped_updates/count",
    "sampler/policy_lag/max",
    "time/update_s",
    "time/sync_s",
]
EACH_EVALUATION = [
    "eval/accuracy/mean",
    "eval/accuracy/num_tasks",
    "eval/mean_iou/mean",
    "eval/heldout/valid_format",
    "eval/heldout/acc@0.75",
    "eval/heldout/acc@0.95",
    "time/evaluate_s",
]


@pytest.fixture(scope="module")
def reader(run_folder):
    return RunReader(run_folder)


@pytest.fixture(scope="module")
def step_rows(reader):
    """The metrics of each step, without those of the evaluations."""
    return {row["step"]: row for row in reader.metrics() if "answers/num" in row}


def test_the_configuration_is_kept_in_full(reader, warmed):
    config = reader.config
    assert config["model"]["path"] == str(warmed)
    assert config["model"]["dtype"] == "float32"  # a default, written out
    assert config["objective"]["kl"].items() >= {"beta": 0.05, "estimator": "k3", "place": "loss"}.items()
    assert config["sampling"]["max_new_tokens"] == 16


def test_every_metric_is_there(reader, step_rows):
    assert sorted(step_rows) == [1, 2, 3, 4]
    for step, row in step_rows.items():
        assert set(EACH_STEP) <= row.keys()
        assert (set(EACH_UPDATE) <= row.keys()) == (step % 2 == 0)
        assert "nonfinite" not in row
    evaluations = [row for row in reader.metrics() if "eval/mean_iou/mean" in row]
    assert [row["step"] for row in evaluations] == [0, 2, 4]
    assert all(set(EACH_EVALUATION) <= row.keys() for row in evaluations)


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_metrics_agree_with_the_recorded_answers(reader, step_rows, step):
    rows, metrics = reader.step(step), step_rows[step]
    assert (metrics["prompts/num"], metrics["groups/num"], metrics["answers/num"]) == (2, 2, 8)
    assert len(rows) == 8
    assert metrics["reward/total/mean"] == pytest.approx(fmean(row.value for row in rows))
    assert metrics["answers/length_tokens/mean"] == pytest.approx(fmean(len(row.tokens) for row in rows))
    assert metrics["answers/invalid/share"] == fmean(row.status == "invalid" for row in rows)
    logps = [(p, old) for row in rows for logps in row.pass_logps for p, old in zip(logps, row.old_logps, strict=True)]
    assert metrics["policy/ratio/mean"] == pytest.approx(fmean(math.exp(p - old) for p, old in logps))
    groups = [[row for row in rows if row.group == group] for group in range(2)]
    deviations = [stdev(row.value for row in group) for group in groups]
    assert metrics["reward/total/std_in_group"] == pytest.approx(fmean(deviations))
    assert metrics["groups/no_signal/share"] == fmean(deviation == 0 for deviation in deviations)
    for group, deviation in zip(groups, deviations, strict=True):
        mean = fmean(row.value for row in group)
        for row in group:
            assert row.advantage == pytest.approx((row.value - mean) / (deviation + 1e-4), abs=1e-6)
            assert row.weight == pytest.approx(1 / 16 / len(row.tokens))  # 16 answers an update
            assert row.old_logps == row.pass_logps[0]
            assert row.policy_version == (0 if step <= 2 else 2)
            assert row.fingerprint == group[0].fingerprint


def test_the_sampler_and_the_trainer_agree(step_rows):
    for row in step_rows.values():
        assert row["policy/ratio/first_pass_max_deviation"] < 1e-4
        assert row["sampler/effective_sample/share"] == pytest.approx(1)
    assert [step_rows[step]["sampler/policy_lag/max"] for step in (2, 4)] == [0, 0]


def test_pictures_and_probes(reader, run_folder):
    scenes = {f"scenes:train/{i}": make_scene("train", i, max_things=1) for i in range(2)}
    for row in reader.step(1):
        scene = scenes[row.task_id]
        assert reader.image(row.images[0]).tobytes() == draw_scene(scene).tobytes()
        assert json.loads(row.truth) == {"box": list(scene.box)}
        assert f"box {scene.phrase}" in row.prompt
    probes = reader.probes()
    assert list(probes) == [0, 2, 4]
    for rows in probes.values():
        assert [row["task_id"] for row in rows] == ["scenes:heldout/0", "scenes:heldout/1"]
        assert all((run_folder / "images" / f"{image}.png").exists() for row in rows for image in row["images"])
    assert [event["kind"] for event in reader.events()] == ["canaries"]


def test_checkpoints_load_with_transformers_alone(run_folder, warmed):
    folders = sorted((run_folder / "checkpoints").iterdir())
    assert [folder.name for folder in folders] == ["step-000002", "step-000004"]
    model = AutoModelForImageTextToText.from_pretrained(folders[-1] / "model")
    saved = load_file(folders[-1] / "model" / "model.safetensors")
    assert all(torch.equal(tensor, saved[name]) for name, tensor in model.state_dict().items())
    before = load_file(warmed / "checkpoints" / "step-000040" / "model" / "model.safetensors")
    assert all(not torch.equal(saved[name], before[name]) for name in saved if "lm_head" in name)
    tokenizer = AutoProcessor.from_pretrained(folders[-1] / "model").tokenizer
    assert len(tokenizer("<box>0.10,0.20,0.30,0.40</box>").input_ids) == 9


def test_plain_lines_where_there_is_no_terminal(trained, run_folder):
    assert trained.err == ""
    assert "\x1b" not in trained.out
    assert "\r" not in trained.out
    lines = trained.out.splitlines()
    first_words = [line.split()[0] for line in lines if line.strip()]
    assert [word for word in first_words if word.endswith("/4")] == ["1/4", "2/4", "3/4", "4/4"]
    assert first_words.count("held") == 3
    assert any("mean IoU" in line and line.startswith("│") for line in lines)
    assert any(line.endswith(f"oncurve trace {run_folder} --step 4") for line in lines)
    heading, steps = next(line for line in lines if line.startswith("step ")), [li for li in lines if "/4 " in li]
    assert "no signal" in heading
    assert {len(line) for line in steps} == {len(heading)}


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_trace_adds_up(oncurve, run_folder, step_rows, step):
    done = oncurve("trace", run_folder, "--step", step, "--json")
    traced = json.loads(done.out)
    assert (done.status, done.err) == (0, "")
    terms = [
        [token["passes"][number] for group in traced["groups"] for a in group["answers"] for token in a["tokens"]]
        for number in range(2)
    ]
    summed = fmean(math.fsum(term["weighted_loss"] for term in one) for one in terms)
    absolute = fmean(math.fsum(abs(term["weighted_loss"]) for term in one) for one in terms)
    assert absolute > 0.01
    assert abs(summed - step_rows[step]["policy/loss"]) < 1e-5 * absolute
    assert any(abs(term["ratio"] - 1) > 1e-3 for term in terms[1])
    assert any(term["kl"] > 1e-6 for term in terms[1])
    answers = [answer for group in traced["groups"] for answer in group["answers"]]
    assert math.fsum(answer["loss"] for answer in answers) == pytest.approx(summed, abs=1e-9)


def test_bfloat16(oncurve, folder, warmed):
    overrides = (f"--runs_folder={folder}", f"--model.path={warmed}", "--name=bf16", "--num_steps=2")
    assert oncurve("train", folder / "train.toml", *overrides, "--model.dtype=bfloat16").status == 0
    rows = [row for row in RunReader(folder / "bf16").metrics() if "answers/num" in row]
    assert [row["step"] for row in rows] == [1, 2]
    assert not any("nonfinite" in row for row in rows)
    assert 0 < rows[0]["policy/ratio/first_pass_max_deviation"] < 0.5  # the sampler rounds otherwise than the trainer
    saved = load_file(folder / "bf16" / "checkpoints" / "step-000002" / "model" / "model.safetensors")
    assert {tensor.dtype for tensor in saved.values()} == {torch.float32}
    before = load_file(warmed / "checkpoints" / "step-000040" / "model" / "model.safetensors")
    assert any(not torch.equal(saved[name], before[name]) for name in saved)
