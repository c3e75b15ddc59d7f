"""What `oncurve check` concludes from what it measured, by hand; the measuring itself on a few scenes."""

import json
from dataclasses import replace

import pytest

from oncurve.check import (
    Baseline,
    DryRun,
    Duration,
    Prompts,
    baseline_of,
    duration_of,
    guide_of,
    measure_prompts,
    reasons_of,
)
from oncurve.config.rewards import MathRules
from oncurve.config.schema import EvaluateConfig, PpoObjective, SamplingConfig, ScenesData, TasksData, TrainConfig
from oncurve.errors import DataError
from oncurve.groups.assemble import Member, make_group
from oncurve.rewards.audit.finding import Finding
from oncurve.rewards.grader import LocalGrader
from oncurve.tasks.sets import load_tasks
from oncurve.types import Score

PROMPTS = Prompts(100, 100, 0, 70, 75.0, 80, 4096, (), ())
BASELINE = Baseline(16, 128, 0.4, 0.1, 0.9, 0.0, 0.0, 0.25, {"all_wrong": 0.25}, {"num_tasks": 32})
DRY_RUN = DryRun(80, 16, True, 2**30, 2**34)
DURATION = Duration(1.0, 0.0, 1.0, 1800, 2, 0.0, 3600.0)
ANSWERS = [("whole", "42"), ("broken", "\\frac{1}{")]
SOUND = [Finding("constant", "grounding", "", "")]
BROKEN = [*SOUND, Finding("giant_box", "grounding", "", "", ok=False)]


def reasons(prompts=PROMPTS, findings=SOUND, baseline=BASELINE, dry_run=DRY_RUN, duration=DURATION, max_hours=24.0):
    return {one.reason: one.words for one in reasons_of(prompts, findings, baseline, dry_run, duration, max_hours)}


def guide(findings=SOUND, prompts=PROMPTS, baseline=BASELINE, duration=DURATION, max_hours=24.0, config=None):
    return guide_of(config or TrainConfig(), findings, prompts, baseline, duration, max_hours)


def test_a_sound_configuration_is_ready():
    assert reasons() == {}
    found = guide()
    assert (found.verifiable, found.rewards_discriminate, found.sampling_affordable) == (True, True, True)
    assert found.method == "grpo"
    assert guide(config=TrainConfig(objective=PpoObjective(type="ppo"))).method == "ppo"


def test_each_reason_alone():
    assert reasons(replace(PROMPTS, beyond_context=("t",) * 5)) == {}
    assert list(reasons(replace(PROMPTS, beyond_context=("t",) * 6))) == ["prompts_beyond_context"]
    assert list(reasons(replace(PROMPTS, broken_truths=("t: no",)))) == ["broken_truths"]
    assert "giant_box" in reasons(findings=BROKEN)["reward_broken"]
    assert list(reasons(baseline=replace(BASELINE, verifier_errors=0.01))) == ["verifier_errors"]
    assert list(reasons(baseline=replace(BASELINE, valid_format=0.05))) == ["format_unknown"]
    assert list(reasons(dry_run=replace(DRY_RUN, fits=False))) == ["out_of_memory"]
    assert reasons(max_hours=1.0) == {}
    assert list(reasons(max_hours=0.9)) == ["too_long"]


def test_groups_without_signal_say_what_to_do():
    hard = replace(BASELINE, no_signal=0.87, causes={"all_wrong": 0.8, "identical": 0.07})
    assert reasons(baseline=hard) == {"no_signal": "87% of groups have no signal: warm up first, or take easier tasks"}
    assert guide(baseline=hard).method == "sft_then_grpo"
    easy = replace(hard, causes={"all_right": 0.8, "identical": 0.07})
    assert "harder" in reasons(baseline=easy)["no_signal"]
    assert (guide(baseline=easy).method, guide(baseline=easy).rewards_discriminate) == ("grpo", False)
    assert "harder" in guide(baseline=easy).advice
    alike = replace(hard, no_signal=0.6, causes={"identical": 0.6})
    assert reasons(baseline=alike) == {}
    assert "temperature" in guide(baseline=alike).advice


def test_the_guide_asks_in_order():
    assert guide(findings=BROKEN).method == "sft"
    assert guide(findings=BROKEN, max_hours=0.1).method == "sft"
    assert guide(baseline=replace(BASELINE, valid_format=0.0)).method == "sft_then_grpo"
    assert guide(max_hours=0.1).method == "ppo"


def test_the_run_is_its_steps_and_its_evaluations():
    config = TrainConfig(num_steps=100, evaluate=EvaluateConfig(every_steps=30, num_tasks=50))
    found = duration_of(config, sample_s=1.0, grade_s=0.25, update_s=0.75, per_task_s=0.1, num_heldout=20)
    assert (found.num_evaluations, found.evaluation_s) == (5, 2.0)  # before, after 30, 60, 90 and 100
    assert found.run_s == pytest.approx(100 * 2.0 + 5 * 2.0)
    twice = TrainConfig(num_steps=100, evaluate=EvaluateConfig(every_steps=0))
    assert duration_of(twice, 1.0, 0.0, 0.0, 0.0, 20).num_evaluations == 2


def test_the_baseline_by_hand(text_task, rollout):
    right, wrong, invalid = Score("scored", 1.0, True), Score("scored", 0.0, False), Score("invalid", 0.0, False)

    def group(name: str, *scores: Score):
        answers = [rollout(name, i, text=f"{i}", stop="length" if i else "end") for i in range(len(scores))]
        task = text_task(name)
        return make_group([Member(task, one, score, "rules") for one, score in zip(answers, scores, strict=True)])

    found = baseline_of([group("a", right, wrong), group("b", wrong, wrong), group("c", invalid, invalid)], {})
    assert (found.num_groups, found.num_answers) == (3, 6)
    assert found.reward == pytest.approx(1 / 6)
    assert found.std_in_group == pytest.approx(0.5**0.5 / 3)
    assert found.valid_format == pytest.approx(4 / 6)
    assert found.truncated == 0.5
    assert found.no_signal == pytest.approx(2 / 3)
    assert found.causes == {"all_wrong": pytest.approx(1 / 3), "all_invalid": pytest.approx(1 / 3)}


def test_every_prompt_is_measured(policy):
    config = TrainConfig(data=ScenesData(num_scenes=6), sampling=SamplingConfig(prompts_per_step=2))
    tasks, grader = load_tasks(config.data), LocalGrader(config.reward)
    lengths = [len(policy.encode(tasks[i])) for i in range(6)]
    found, longest, fitting = measure_prompts(policy, tasks, range(6), config, grader)
    assert (found.num_measured, found.shortest, found.longest) == (6, min(lengths), max(lengths))
    assert sorted(lengths[i] for i in longest) == sorted(lengths)[-2:]
    assert fitting == list(range(6))


def test_a_truth_that_can_not_be_graded_is_named(policy, tmp_path):
    rows = [
        {"id": name, "kind": "math", "prompt": "how many?", "truth": {"answer": answer}} for name, answer in ANSWERS
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = TrainConfig(reward=MathRules(type="math"), data=TasksData(type="tasks", path=str(tmp_path / "rows.jsonl")))
    tasks = load_tasks(config.data)
    found, _, _ = measure_prompts(policy, tasks, range(2), config, LocalGrader(config.reward))
    assert len(found.broken_truths) == 1
    assert found.broken_truths[0].startswith("broken: ")


def test_prompts_beyond_the_context_are_named(policy):
    tasks = load_tasks(ScenesData(num_scenes=6))
    lengths = [len(policy.encode(tasks[i])) for i in range(6)]
    assert len(set(lengths)) > 1
    room = policy.context_tokens - min(lengths)
    config = TrainConfig(
        data=ScenesData(num_scenes=6), sampling=SamplingConfig(prompts_per_step=2, max_new_tokens=room)
    )
    found, longest, fitting = measure_prompts(policy, tasks, range(6), config, LocalGrader(config.reward))
    assert found.beyond_context == tuple(f"scenes:train/{i}" for i in range(6) if lengths[i] > min(lengths))
    assert {lengths[i] for i in [*longest, *fitting]} == {min(lengths)}
    longer = TrainConfig(sampling=SamplingConfig(max_new_tokens=room + 1))
    with pytest.raises(DataError, match="no prompt fits"):
        measure_prompts(policy, tasks, range(6), longer, LocalGrader(config.reward))
