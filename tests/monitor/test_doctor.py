"""The answers of a record that show a verdict."""

import json
from dataclasses import asdict

import pytest

from oncurve.cli.main import main
from oncurve.config.health import HealthConfig
from oncurve.monitor.doctor import answers_that_show
from oncurve.monitor.watch import Verdict
from oncurve.record.reader import RunReader
from oncurve.record.schema import AnswerRecord
from oncurve.record.writer import RunWriter


def answer(step: int, number: int, text: str, value: float, status: str = "scored") -> AnswerRecord:
    return AnswerRecord(
        step=step, group=0, answer=number, index=number, task_id="t", kind="grounding", prompt="p", images=[],
        model_image_sizes=[], truth="{}", text=text, tokens=[1] * len(text), token_texts=["a"] * len(text),
        mask=[True] * len(text), stop="end", temperature=1.0, seed=0, policy_version=step, fingerprint="f", status=status,
        value=value, correct=None, parts="{}", extracted="null", evidence="", reason="", verifier="v/1", advantage=0.0,
        weight=0.0, sampler_logps=[-1.0] * len(text), old_logps=[], reference_logps=None, pass_logps=[], trained=False,
    )  # fmt: skip


@pytest.fixture
def run(tmp_path) -> RunReader:
    writer = RunWriter.create(tmp_path / "run", HealthConfig(), "oncurve train")
    for step in range(1, 61):
        hacked = step > 30
        texts = [f"{'I am sure: ' if hacked and i < 2 else ''}answer {step} {i}" for i in range(4)]
        writer.step(step, [answer(step, i, text, 1.0 if "sure" in text else 0.3) for i, text in enumerate(texts)])
        writer.metrics(step, {"reward/total/mean": 0.3, "answers/truncated/share": 0.4 if hacked else 0.0})
    return RunReader(tmp_path / "run")


def test_best_paid_answers_share_a_prefix(run):
    shown = answers_that_show(run, Verdict("reward_hacking", "critical", 31, 50, "the reward rose"))
    assert shown.what.startswith('the 20 best-paid answers since step 31 all begin with "I am sure: answer ')
    assert len(shown.answers) == 20
    assert all(step > 30 and number < 2 for step, _, number in shown.answers)


def test_a_verdict_that_no_answer_shows_has_none(run):
    assert answers_that_show(run, Verdict("mismatch", "warning", 31, 50, "KL")) is None
    assert answers_that_show(run, Verdict("format", "warning", 31, 50, "invalid")) is None


def test_the_command_reads_a_run_and_links_to_its_answers(run, capsys):
    assert main(["doctor", str(run.folder), "--json"]) == 3
    (found, _) = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["onset_step"]) == ("cap_hit", 31)
    assert "answers" not in found  # no recorded answer was cut off
    assert asdict(Verdict("cap_hit", "info", 1, 2, "")).keys() == found.keys()
