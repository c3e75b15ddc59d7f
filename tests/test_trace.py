"""`oncurve trace` on a small record of two passes with a KL term, whose numbers are worked out by hand."""

import argparse
import json
import math
from pathlib import Path

import pytest

from oncurve.cli import trace
from oncurve.config.base import Section
from oncurve.config.schema import GrpoObjective, KlConfig, ModelConfig, SftConfig, SftStage, TrainConfig
from oncurve.errors import RunError
from oncurve.record.reader import RunReader
from oncurve.record.schema import AnswerRecord
from oncurve.record.writer import RunWriter

LN2, LN1_5 = math.log(2), math.log(1.5)
BETA = 0.1
CONFIG = TrainConfig(objective=GrpoObjective(kl=KlConfig(beta=BETA), passes=2))
# reference = old - ln 2 everywhere. Pass 0: logp = old, d = -ln 2; pass 1: logp = old + ln 1.5, d = -ln 3.
KL = (0.5 + LN2 - 1, 1 / 3 + math.log(3) - 1)
# A = +1: -1, then -1.2 (clipped); A = -1: +1, then +1.5 (min takes the worse, unclipped one)
GOOD = tuple(-term + BETA * kl for term, kl in zip((1.0, 1.2), KL, strict=True))
BAD = tuple(term + BETA * kl for term, kl in zip((1.0, 1.5), KL, strict=True))
# group 0: a bad answer of one token, a good one of two; group 1: a bad one with one token untrained, a failed one
PASSES = tuple((good + bad) / 3 + bad / 3 for good, bad in zip(GOOD, BAD, strict=True))


def _row(group: int, answer: int, advantage: float, *, mask: list[bool], text: str, **changes: object) -> AnswerRecord:
    old = [-1.0 - n for n in range(len(mask))]
    fields = {
        "step": 3,
        "group": group,
        "answer": answer,
        "index": answer,
        "task_id": f"scenes:train/{group}",
        "kind": "grounding",
        "prompt": "box [bold]the cat[/bold]",
        "images": ["ab" * 32],
        "model_image_sizes": [[64, 64]],
        "truth": '{"box": [0.2, 0.3, 0.6, 0.7]}',
        "text": text,
        "tokens": list(range(len(mask))),
        "token_texts": [f"[{n}]" for n in range(len(mask))],
        "mask": mask,
        "stop": "end",
        "temperature": 1.0,
        "seed": 0,
        "policy_version": 2,
        "fingerprint": f"f{group}",
        "status": "scored",
        "value": 0.5 + advantage / 2,
        "correct": advantage > 0,
        "parts": json.dumps({"iou": 0.5 + advantage / 2}),
        "extracted": "[0.2, 0.3, 0.6, 0.7]",
        "evidence": "IoU",
        "reason": "",
        "verifier": "grounding/1",
        "advantage": advantage,
        "weight": 1 / (3 * sum(mask)),
        "sampler_logps": old,
        "old_logps": old,
        "reference_logps": [logp - LN2 for logp in old],
        "pass_logps": [old, [logp + LN1_5 for logp in old]],
        "trained": True,
    }
    return AnswerRecord(**(fields | changes))


ERROR = {"status": "error", "value": math.nan, "reason": "deadline", "weight": 0.0, "trained": False}
EMPTY = {
    "old_logps": [],
    "reference_logps": None,
    "pass_logps": [],
    "parts": "{}",
    "extracted": "null",
    "correct": None,
}
ROWS = [
    _row(0, 0, -1.0, mask=[True], text="<box>bad</box>"),
    _row(0, 1, +1.0, mask=[True, True], text="<box>good</box>"),
    _row(1, 0, -1.0, mask=[True, False], text="<box>bad</box>"),
    _row(1, 1, 0.0, mask=[True], text="", **ERROR | EMPTY),
]
LOGGED = {"policy/loss": sum(PASSES) / 2, "policy/loss/pass/0": PASSES[0], "policy/loss/pass/1": PASSES[1]}


def _run(folder: Path, logged: dict[str, float], rows: list[AnswerRecord] = ROWS, config: Section = CONFIG) -> Path:
    writer = RunWriter.create(folder / "run", config, "oncurve train")
    writer.metrics(2, {"policy/loss": 99.0})
    writer.step(3, rows)
    writer.metrics(3, logged)
    writer.metrics(3, {"eval/mean_iou/mean": 0.5})
    return writer.folder


def _call(*words: object) -> int:
    parser = argparse.ArgumentParser()
    trace.add_arguments(parser)
    return trace.run(parser.parse_args([str(word) for word in words]))


def test_the_terms_and_sums_are_those_worked_out_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert _call(_run(tmp_path, LOGGED), "--step", 3, "--json") == 0
    traced = json.loads(capsys.readouterr().out)

    assert traced["objective"]["kl"].items() >= {"beta": BETA, "estimator": "k3", "place": "loss"}.items()
    assert traced["logged_loss"] == LOGGED["policy/loss"]
    assert traced["sum_of_answers"] == pytest.approx(sum(PASSES) / 2, rel=1e-12)
    assert traced["relative_difference"] < 1e-12
    assert [one["pass"] for one in traced["passes"]] == [0, 1]
    assert [one["sum_of_answers"] for one in traced["passes"]] == pytest.approx(PASSES, rel=1e-12)
    absolute = sum(-good + 2 * bad for good, bad in zip(GOOD, BAD, strict=True)) / 6
    assert traced["sum_of_absolute_terms"] == pytest.approx(absolute, rel=1e-12)

    first, second = traced["groups"]
    assert (first["group"], first["task_id"], first["fingerprint"]) == (0, "scenes:train/0", "f0")
    assert first["truth"] == {"box": [0.2, 0.3, 0.6, 0.7]}
    assert (first["reward_mean"], first["reward_std"]) == pytest.approx((0.5, math.sqrt(0.5)))
    bad, good = first["answers"]
    assert (bad["reward"], bad["advantage"], bad["parts"], bad["correct"]) == (0.0, -1.0, {"iou": 0.0}, False)
    assert (bad["loss"], good["loss"]) == pytest.approx((sum(BAD) / 6, sum(GOOD) / 6), rel=1e-12)
    token = good["tokens"][1]
    assert (token["text"], token["trained"], token["sampler_logp"]) == ("[1]", True, -2.0)
    assert token["passes"] == [
        pytest.approx(
            {"logp": -2, "ratio": 1, "kl": KL[0], "policy_term": -1, "loss": GOOD[0], "weighted_loss": GOOD[0] / 6}
        ),
        pytest.approx(
            {
                "logp": -2 + LN1_5,
                "ratio": 1.5,
                "kl": KL[1],
                "policy_term": -1.2,
                "loss": GOOD[1],
                "weighted_loss": GOOD[1] / 6,
            }
        ),
    ]

    cut, failed = second["answers"]
    assert [token["trained"] for token in cut["tokens"]] == [True, False]
    assert [one["weighted_loss"] for one in cut["tokens"][1]["passes"]] == [0, 0]
    assert (failed["status"], failed["reward"], failed["loss"]) == ("error", None, 0)
    assert failed["tokens"][0]["passes"] == []
    assert second["reward_mean"] == 0


@pytest.mark.parametrize("name", LOGGED)
def test_a_sum_that_misses_the_logged_loss_is_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str):
    scale = trace.trace(RunReader(_run(tmp_path, LOGGED)), 3)["sum_of_absolute_terms"]
    for off, status in ((1e-6, 0), (1e-4, 1), (-1e-4, 1)):
        folder = _run(tmp_path / str(off), LOGGED | {name: LOGGED[name] + off * scale})
        assert _call(folder, "--step", 3) == status
        assert ("✗" in capsys.readouterr().out) == (status == 1)


@pytest.mark.parametrize("logged", [{}, dict.fromkeys(LOGGED, math.nan)])
def test_a_step_without_a_logged_loss_is_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], logged: dict[str, float]
):
    folder = _run(tmp_path, logged)
    assert _call(folder, "--step", 3, "--json") == 1
    assert json.loads(capsys.readouterr().out)["logged_loss"] is None
    assert _call(folder, "--step", 3) == 1
    assert "no finite policy/loss for this step" in capsys.readouterr().out


def test_kl_in_the_reward_is_shown_but_no_part_of_the_loss(tmp_path: Path):
    objective = GrpoObjective(kl=KlConfig(beta=BETA, estimator="k1", place="reward"), passes=2)
    folder = _run(tmp_path, LOGGED, config=TrainConfig(objective=objective))
    terms = trace.trace(RunReader(folder), 3)["groups"][0]["answers"][1]["tokens"][0]["passes"]
    assert [one["kl"] for one in terms] == pytest.approx([LN2, math.log(3)])
    assert [one["loss"] for one in terms] == pytest.approx([-1, -1.2])


def test_a_group_limits_what_is_shown_and_not_the_sums(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = _run(tmp_path, LOGGED)
    assert _call(folder, "--step", 3, "--group", 1, "--json") == 0
    traced = json.loads(capsys.readouterr().out)
    assert [group["group"] for group in traced["groups"]] == [1]
    assert traced["sum_of_answers"] == pytest.approx(LOGGED["policy/loss"])
    with pytest.raises(RunError, match="has no group 2; it has groups 0 to 1"):
        _call(folder, "--step", 3, "--group", 2)


def test_the_terminal_shows_every_answer_best_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert _call(_run(tmp_path, LOGGED), "--step", 3) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100
    assert shown.index("<box>good</box>") < shown.index("<box>bad</box>")
    for words in ("box [bold]the cat[/bold]", "0.2 0.3 0.6 0.7", "error: deadline", "[1]", "1.50000", "-1.20000", "✓"):
        assert words in shown


def test_a_step_whose_terms_are_all_0(tmp_path: Path):
    rows = [_row(0, answer, 0.0, mask=[True], text="", pass_logps=[[-1.0]]) for answer in range(2)]
    folder = _run(tmp_path, {"policy/loss": 0.0, "policy/loss/pass/0": 0.0}, rows, TrainConfig())
    traced = trace.trace(RunReader(folder), 3)
    assert (traced["sum_of_absolute_terms"], traced["relative_difference"]) == (0, 0)
    assert _call(folder, "--step", 3) == 0


def test_what_can_not_be_traced(tmp_path: Path):
    with pytest.raises(RunError, match="has no step 4; it has step 3"):
        _call(_run(tmp_path, LOGGED), "--step", 4)
    sft = SftConfig(model=ModelConfig(), stages=(SftStage(name="one", num_updates=1),))
    with pytest.raises(RunError, match="is no GRPO run"):
        _call(_run(tmp_path / "sft", LOGGED, config=sft), "--step", 3)
