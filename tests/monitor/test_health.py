"""The health rules: the proof on synthetic runs, each rule's own condition, and what a watch does with findings."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from oncurve.config.health import VERDICTS, HealthConfig
from oncurve.monitor.doctor import ADVICE, diagnose, exit_status
from oncurve.monitor.synthetic import FLAWS, Generator, healthy, planted
from oncurve.monitor.watch import Verdict, Watch, decide, line

CONFIG = HealthConfig()


def steady(num: int = 120, **changes) -> list[dict]:
    """Rows of a run in which nothing happens; `changes` maps a metric (`__` for `/`) to a function of the step."""
    rng = np.random.default_rng(0)
    rows = []
    for step in range(1, num + 1):
        row = {"step": step, "reward/total/mean": 0.4 + 0.01 * rng.standard_normal(), "prompts/num": 32}
        row |= {name.replace("__", "/"): value for name, at in changes.items() if (value := at(step)) is not None}
        rows.append(row)
    return rows


def verdicts(rows: list[dict], config: HealthConfig = CONFIG) -> dict[str, Verdict]:
    return {verdict.verdict: verdict for verdict in diagnose(rows, config) if verdict.verdict != "insufficient_data"}


# -- the proof -----------------------------------------------------------------------------------------------------


def test_of_40_healthy_runs_one_at_most_is_warned_of():
    alarms = {seed: found for seed in range(40) if (found := [v for v in diagnose(healthy(seed), CONFIG) if v.rank])}
    assert len(alarms) <= 1, alarms


def test_of_40_hacks_that_begin_in_mid_run_36_are_found_within_200_steps():
    delays = []
    for seed in range(40):
        rows, onset = planted("reward_hacking", seed)
        found = verdicts([row for row in rows if row["step"] <= onset + 200]).get("reward_hacking")
        if found and onset <= found.detected_step:
            delays.append(found.detected_step - onset)
    assert len(delays) >= 36


@pytest.mark.parametrize("flaw", [flaw for flaw in FLAWS if flaw != "reward_hacking"])
def test_every_flaw_is_found(flaw):
    """Four of five at the least here; 36 of 40 in `make health-study`."""
    num = 0
    for seed in range(5):
        rows, onset = planted(flaw, seed)
        found = verdicts([row for row in rows if row["step"] <= onset + 200]).get(flaw)
        num += bool(found) and onset <= found.detected_step
    assert num >= 4


def test_the_generator_repeats_itself_and_covers_every_verdict():
    assert healthy(3) == healthy(3) != healthy(4)
    assert {*FLAWS} == {*VERDICTS} - {"insufficient_data"} == {*ADVICE} - {"insufficient_data"}


def test_rows_one_by_one_give_what_all_at_once_give():
    rows, _ = planted("reward_hacking", 1)
    watch, changes = Watch(CONFIG), []
    for row in rows:
        changes += watch.observe([row])
    assert watch.verdicts == Watch(CONFIG).observe(rows)
    assert changes[0].verdict == "reward_hacking"
    assert "reward_hacking" in line(changes[0])


@pytest.mark.parametrize("kept", ["reward/total/mean", "eval/accuracy/mean", "policy/entropy/mean"])
def test_missing_metrics_only_silence_their_rules(kept):
    rows = [{name: value for name, value in row.items() if name in ("step", kept)} for row in healthy(5)]
    assert verdicts(rows) == {}


NAMES = sorted({name for seed in range(8) for row in healthy(seed)[:2] for name in row} - {"step"})


@pytest.mark.filterwarnings("error")
@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 1e-9, 1.0, 1e9, math.nan]), st.floats(0, 1), st.integers(1, 30))
def test_no_row_breaks_a_rule(seed, scale, present, every):
    """Constants, huge and negative values, NaN, gaps, repeated steps: verdicts come out, and no warning."""
    rng = np.random.default_rng(seed)
    rows = []
    for step in sorted(rng.integers(-5, 150, 120).tolist()):
        names = [
            name for name in NAMES if rng.random() < present and (step % every == 0 or not name.startswith("eval/"))
        ]
        rows.append(
            {"step": step} | {name: float(rng.choice([0.0, 1.0, -1.0, rng.normal()]) * scale) for name in names}
        )
    for verdict in diagnose(rows, CONFIG):
        assert verdict.onset_step <= verdict.detected_step


# -- reward hacking ------------------------------------------------------------------------------------------------


def learning(num: int, reward, accuracy, every: int = 20, noise: float = 0.01) -> list[dict]:
    rng = np.random.default_rng(4)
    rows = [{"step": 0, "eval/accuracy/mean": accuracy(0)}]
    for step in range(1, num + 1):
        rows.append({"step": step, "reward/total/mean": reward(step) + noise * rng.standard_normal()})
        if step % every == 0:
            rows.append({"step": step, "eval/accuracy/mean": accuracy(step) + noise * rng.standard_normal()})
    return rows


def test_a_hack_from_the_start_is_found():
    assert "reward_hacking" in verdicts(learning(200, lambda t: 0.2 + 0.002 * t, lambda t: 0.3))


def test_reward_and_accuracy_that_rise_together_are_no_hack():
    assert verdicts(learning(300, lambda t: 0.2 + 0.002 * t, lambda t: 0.3 + 0.0015 * t)) == {}


def test_accuracy_at_its_ceiling_does_not_speak_of_a_hack():
    assert verdicts(learning(300, lambda t: 0.35 + 0.001 * t, lambda t: 0.97)) == {}


def test_where_the_mean_iou_rises_with_the_reward_it_is_no_hack():
    rows = learning(300, lambda t: 0.2 + 0.002 * t, lambda t: 0.3)
    assert "reward_hacking" in verdicts(rows)
    rows = [
        row | ({"eval/mean_iou/mean": 0.3 + 0.001 * row["step"]} if "eval/accuracy/mean" in row else {}) for row in rows
    ]
    assert "reward_hacking" not in verdicts(rows)


def test_accuracy_that_is_lost_while_the_reward_stays_at_its_ceiling_is_a_hack():
    def lost(i: int) -> float:
        return 0.9 - 0.8 * min(1.0, i / 100)

    assert verdicts(learning(200, lambda i: 0.95, lost))["reward_hacking"].severity == "critical"
    assert "reward_hacking" not in verdicts(learning(200, lost, lost))  # the reward is lost with it
    assert "reward_hacking" not in verdicts(learning(200, lambda i: 0.95, lambda i: 0.9 - 0.2 * min(1.0, i / 100)))


def test_the_onset_is_near_the_true_one():
    def reward(t):
        return 0.3 + 0.0005 * t + 0.3 * min(1, max(0, t - 200) / 60)

    found = verdicts(learning(400, reward, lambda t: 0.3 + 0.0005 * min(t, 200)))["reward_hacking"]
    assert abs(found.onset_step - 200) <= 40
    assert found.severity == "critical"


# -- the other rules -----------------------------------------------------------------------------------------------


def test_a_gradient_that_is_not_finite_is_critical_at_once():
    for rows in (
        steady(60, policy__grad_norm__before_clip=lambda t: math.nan if t == 30 else 1.0),
        steady(60, policy__skipped_updates__count=lambda t: int(t == 30)),
        steady(60, nonfinite=lambda t: {"policy/loss": "nan"} if t == 30 else None),
    ):
        found = verdicts(rows)["gradient_spike"]
        assert (found.severity, found.onset_step, found.detected_step) == ("critical", 30, 30)


def test_three_spikes_in_fifty_steps_and_not_two():
    def norm(spikes):
        return lambda t: 50.0 if t in spikes else 1.0 + 0.05 * math.sin(t)

    found = verdicts(steady(120, policy__grad_norm__before_clip=norm({60, 70, 80})))["gradient_spike"]
    assert (found.severity, found.onset_step, found.detected_step) == ("warning", 60, 80)
    assert found.cleared_step is not None
    assert verdicts(steady(120, policy__grad_norm__before_clip=norm({60, 70}))) == {}


def test_a_canary_that_flips_is_critical_at_once():
    found = verdicts(steady(60, verifier__canary__flips=lambda t: int(t == 33)))["verifier_broken"]
    assert (found.severity, found.detected_step) == ("critical", 33)


def test_a_share_over_its_second_limit_is_critical():
    found = verdicts(steady(answers__truncated__share=lambda t: 0.02 if t < 60 else 0.3))["cap_hit"]
    assert found.severity == "critical"
    assert found.onset_step == 60
    assert found.detected_step < 100


def test_with_few_prompts_a_share_must_lie_further_over_its_limit():
    def rows(prompts):
        return [row | {"prompts/num": prompts} for row in steady(answers__truncated__share=lambda t: 0.08)]

    assert verdicts(rows(2)) == {}
    assert "cap_hit" in verdicts(rows(200))


def test_a_verdict_ends_when_its_condition_has_gone_and_begins_anew():
    rows = steady(300, answers__truncated__share=lambda t: 0.3 if 50 < t < 110 or t > 220 else 0.0)
    found = [verdict for verdict in diagnose(rows, CONFIG) if verdict.verdict == "cap_hit"]
    assert len(found) == 2
    assert 110 < found[0].cleared_step < 200 < found[1].detected_step
    assert found[1].cleared_step is None
    assert "has gone" in line(found[0])


def test_a_broken_format_counts_only_after_the_warm_up_and_while_it_does_not_mend():
    assert verdicts(steady(120, answers__invalid__share=lambda t: 0.5 * math.exp(-t / 25))) == {}
    assert "format" in verdicts(steady(120, answers__invalid__share=lambda t: 0.2))


def test_no_signal_is_named_by_its_cause():
    def cause(**shares):
        found = verdicts(steady(groups__no_signal__share=lambda t: 0.6, groups__size__mean=lambda t: 8, **shares))
        return {name: verdict.severity for name, verdict in found.items()}

    assert cause(groups__no_signal__all_right__share=lambda t: 0.5) == {"too_easy": "warning"}
    assert cause(groups__no_signal__all_invalid__share=lambda t: 0.6) == {"too_hard": "warning"}
    assert cause(groups__no_signal__identical__share=lambda t: 0.4) == {"duplicates": "warning"}
    assert cause(reward__total__mean=lambda t: 0.95) == {"too_easy": "warning"}
    assert cause(reward__total__mean=lambda t: 0.03) == {"too_hard": "warning"}


def test_too_few_signals_are_no_alarm_while_the_reward_still_rises():
    rows = steady(200, groups__no_signal__share=lambda t: 0.6, reward__total__mean=lambda t: 0.05 + 0.002 * t)
    assert {v.severity for v in verdicts(rows).values()} == {"info"}


def test_ratios_that_float32_does_not_explain():
    exact = steady(policy__ratio__first_pass_max_deviation=lambda t: 1e-5 if t < 60 else 0.02)
    assert verdicts(exact)["stale_logprobs"].severity == "warning"
    assert verdicts(exact)["stale_logprobs"].onset_step == 60
    half = steady(policy__ratio__first_pass_max_deviation=lambda t: 0.02 + 0.001 * math.sin(t))
    assert verdicts(half)["stale_logprobs"].severity == "info"  # bfloat16 from the start, or stale from the start
    rose = steady(policy__ratio__first_pass_max_deviation=lambda t: (0.02 if t < 60 else 0.2) + 0.001 * math.sin(t))
    assert verdicts(rose)["stale_logprobs"].severity == "warning"


def test_entropy_that_falls_while_the_reward_rises_is_learning():
    def fall(t):
        return 1.5 * math.exp(-t / 30) + 0.02

    assert "entropy_collapse" in verdicts(steady(200, policy__entropy__mean=fall))
    rises = steady(200, policy__entropy__mean=fall, reward__total__mean=lambda t: 0.3 + 0.4 * (1 - math.exp(-t / 60)))
    assert verdicts(rises) == {}


def test_uneven_clips_warn_only_where_they_bind_at_all():
    uneven = steady(policy__clip_low__share=lambda t: 0.12, policy__clip_high__share=lambda t: 0.02)
    assert "step_too_big" in verdicts(uneven)
    few = steady(policy__clip_low__share=lambda t: 0.012, policy__clip_high__share=lambda t: 0.002)
    assert verdicts(few) == {}


def test_insufficient_data_is_info_and_says_what_is_missing():
    found = diagnose(steady(10), CONFIG)
    assert [(v.verdict, v.severity) for v in found] == [("insufficient_data", "info")]
    assert "10 steps" in found[0].evidence
    assert diagnose([], CONFIG)[0].verdict == "insufficient_data"


# -- actions -------------------------------------------------------------------------------------------------------


def hack(severity: str = "critical", **changes) -> Verdict:
    return Verdict("reward_hacking", severity, 140, 190, "the reward rose", **changes)


def test_actions_wait_for_their_severity():
    config = HealthConfig(actions={"reward_hacking": "stop"})
    assert decide([hack("warning")], config).action == "warn"
    assert decide([hack()], config).action == "stop"
    assert (
        decide([hack("warning")], HealthConfig(actions={"reward_hacking": "stop"}, act_at="warning")).action == "stop"
    )
    assert decide([hack("info"), hack(cleared_step=250)], config) is None


def test_a_rollback_goes_before_the_onset_with_a_change_or_pauses():
    config = HealthConfig(actions={"reward_hacking": "rollback"}, rollback_with=("optimizer.learning_rate=1e-4",))
    found = decide([hack()], config, checkpoints=(50, 100, 150))
    assert (found.action, found.to_step, found.overrides) == ("rollback", 100, ("optimizer.learning_rate=1e-4",))
    assert decide([hack()], config, checkpoints=(150,)).action == "pause"
    assert decide([hack()], config, checkpoints=(100,), num_rollbacks=1).action == "pause"


def test_the_hardest_action_wins():
    config = HealthConfig(actions={"reward_hacking": "pause", "cap_hit": "stop"})
    both = [hack(), Verdict("cap_hit", "critical", 10, 40, "cut off")]
    assert decide(both, config).verdict.verdict == "cap_hit"


def test_a_config_is_checked():
    with pytest.raises(ValidationError, match="rollback_with"):
        HealthConfig(actions={"reward_hacking": "rollback"})
    with pytest.raises(ValidationError, match="milder limit"):
        HealthConfig(truncated_share=[0.2, 0.1])
    with pytest.raises(ValidationError, match="reward_hakcing"):
        HealthConfig(actions={"reward_hakcing": "stop"})


def test_exit_status_goes_by_the_worst():
    assert exit_status([]) == exit_status([hack("info")]) == 0
    assert exit_status([hack("info"), hack("warning")]) == 1
    assert exit_status([hack("warning"), hack()]) == 3


def test_a_verdict_is_plain_json():
    from dataclasses import asdict

    assert json.loads(json.dumps(asdict(hack())))["verdict"] == "reward_hacking"


def test_spacing_of_rows_does_not_matter():
    run = Generator(12)
    run.spacing = 10
    assert not [v for v in diagnose(run.rows(), CONFIG) if v.rank]
