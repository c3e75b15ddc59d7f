"""Health rules in a run: verdicts said and recorded, and what they lead to: a pause, a stop, a way back."""

from pathlib import Path

import pytest

from oncurve.record.files import numbered
from oncurve.record.reader import RunReader

FAILING = """
calls = 0
def score(task, text):
    global calls
    calls += 1
    if calls > 72:
        raise OSError("the disk")
    return 1.0
"""
SICK = """
name = "sick"
num_steps = 50
data = { type = "scenes", num_scenes = 2, max_things = 1 }
heldout = { type = "scenes", split = "heldout", num_scenes = 4 }
sampling = { prompts_per_step = 2, answers_per_prompt = 2, max_new_tokens = 1 }
evaluate = { every_steps = 0, num_tasks = 1, num_probes = 0 }
checkpoint = { every_steps = 3, keep_last = 50 }
reward = { type = "python", function = "FILE:score", workers = 1 }
"""


@pytest.fixture(scope="module")
def sick(oncurve, tmp_path_factory):
    """`sick(health)`: a run whose reward function begins to fail at about its twelfth step, and its folder."""

    def run(health: str = ""):
        here = tmp_path_factory.mktemp("sick")
        (here / "reward.py").write_text(FAILING)
        (here / "sick.toml").write_text(SICK.replace("FILE", str(here / "reward.py")) + health)
        options = [f"--runs_folder={here}", "--model.path=builtin:untrained", "--no-audit"]
        return oncurve("train", here / "sick.toml", *options), here / "sick"

    return run


def events(run: Path, kind: str) -> list[dict]:
    return [event for event in RunReader(run).events() if event["kind"] == kind]


def test_without_an_action_a_verdict_is_said_and_recorded(sick, oncurve):
    done, run = sick()
    assert done.status == 0
    (verdict,) = [event for event in events(run, "health") if event["verdict"] == "verifier_broken"]
    assert (verdict["severity"], verdict["cleared_step"]) == ("critical", None)
    assert verdict["onset_step"] <= verdict["detected_step"] == verdict["step"]
    assert "CRITICAL verifier_broken" in " ".join(done.out.split())
    assert events(run, "health_action") == []
    assert oncurve("doctor", run, "--json").status == 3


def test_a_pause_saves_and_can_be_gone_on_with(sick, oncurve):
    done, run = sick('[health]\nactions = { verifier_broken = "pause" }\n')
    (action,) = events(run, "health_action")
    assert done.status == 3
    assert "health.actions says pause for verifier_broken" in done.err
    assert f"oncurve train --resume {run}" in done.err
    assert (action["action"], action["step"]) == ("pause", max(numbered(run / "checkpoints")))
    assert action["step"] < 50
    assert oncurve("train", "--resume", run).status == 0
    assert RunReader(run).steps()[-1] == 50


def test_a_stop_leaves_the_last_checkpoint_as_it_is(sick):
    done, run = sick('[health]\nactions = { verifier_broken = "stop" }\n')
    (action,) = events(run, "health_action")
    last = max(numbered(run / "checkpoints"))
    assert done.status == 3
    assert "the last checkpoint stays as it is" in done.err
    assert action["step"] == RunReader(run).steps()[-1]
    assert action["step"] - 3 <= last < 50


def test_a_way_back_with_another_setting(sick):
    options = 'rollback_with = ["sampling.temperature=0.5"]\n'
    done, run = sick(f'[health]\nactions = {{ verifier_broken = "rollback" }}\n{options}')
    fork = run.with_name("sick-fork-1")
    (action,) = events(run, "health_action")
    origin = RunReader(fork).info["forked_from"]
    onset = next(event["onset_step"] for event in events(run, "health") if event["verdict"] == "verifier_broken")
    assert done.status == 0
    assert action["action"] == "rollback"
    assert (origin["run"], origin["num_rollbacks"]) == (str(run), 1)
    assert origin["step"] == max(step for step in numbered(run / "checkpoints") if step < onset)
    assert RunReader(fork).config["sampling"]["temperature"] == 0.5
    assert RunReader(fork).steps() == list(range(origin["step"] + 1, 51))
    assert {row.temperature for row in RunReader(fork).step(50)} == {0.5}
    assert RunReader(run).steps()[-1] == action["step"]


def test_what_a_way_back_changes_is_checked_before_the_run(sick):
    done, run = sick('[health]\nactions = { drift = "rollback" }\nrollback_with = ["optimizer.rate=1"]\n')
    assert done.status == 2
    assert "override 'optimizer.rate=1'" in done.err
    assert not run.exists()
