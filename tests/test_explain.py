import argparse
import json
import math
from pathlib import Path

import pytest

from oncurve.advantage import advantages
from oncurve.cli import explain
from oncurve.errors import ConfigError

REFERENCE = json.loads((Path(__file__).parent / "reference" / "worked_example.json").read_text())


def run(capsys: pytest.CaptureFixture, *arguments: str) -> str:
    parser = argparse.ArgumentParser()
    explain.add_arguments(parser)
    assert explain.run(parser.parse_args(arguments)) == 0
    return capsys.readouterr().out


def run_json(capsys: pytest.CaptureFixture, *arguments: str) -> dict:
    return json.loads(run(capsys, "--json", *arguments))


def assert_same(actual: object, expected: object, where: str = "") -> None:
    if isinstance(expected, dict):
        assert list(actual) == list(expected), where
        for key in expected:
            assert_same(actual[key], expected[key], f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(actual) == len(expected), where
        for i, (a, b) in enumerate(zip(actual, expected, strict=True)):
            assert_same(a, b, f"{where}[{i}]")
    elif isinstance(expected, int | float):
        assert math.isclose(actual, expected, rel_tol=0, abs_tol=1e-12), (where, actual, expected)
    else:
        assert actual == expected, where


def test_the_json_is_the_worked_example_leaf_by_leaf(capsys):
    assert_same(run_json(capsys), REFERENCE)


def test_own_boxes_meet_own_truth(capsys):
    own = ("--truth", "0.1,0.1,0.5,0.4", "--boxes", "0.1,0.1,0.5,0.4; 0.3,0.1,0.7,0.4", "--boxes", "0.5,0.5,0.6,0.6")
    grounding = run_json(capsys, *own)["grounding"]
    assert grounding["truth"] == [0.1, 0.1, 0.5, 0.4]
    assert list(grounding["boxes"]) == ["0", "1", "2"]
    assert [graded["iou"] for graded in grounding["boxes"].values()] == pytest.approx([1, 1 / 3, 0])
    assert [graded["iou_squared"] for graded in grounding["boxes"].values()] == pytest.approx([1, 1 / 9, 0])


def test_own_truth_alone_meets_the_boxes_of_the_example(capsys):
    example = run_json(capsys, "--truth", "0.7,0.4,0.9,0.8")
    ious = {name: graded["iou"] for name, graded in example["grounding"]["boxes"].items()}
    assert ious == pytest.approx({"tight": 0, "loose": 0, "dog": 1, "whole_image": 0.08, "exact": 0})
    assert_same(example["advantages"], REFERENCE["advantages"])
    assert_same(example["token_loss"], REFERENCE["token_loss"])


def test_own_rewards_make_one_group(capsys):
    example = run_json(capsys, "--rewards", "1,0,0.5")
    assert list(example["advantages"]) == ["own"]
    own = example["advantages"]["own"]
    assert list(own) == list(REFERENCE["advantages"]["mixed"])
    assert own["rewards"] == [1, 0, 0.5]
    assert own["as_noted"] is None
    assert own["sample_std_eps_1e-4"]["std"] == pytest.approx(0.5)
    assert own["sample_std_eps_1e-4"]["advantages"] == pytest.approx([0.5 / 0.5001, -0.5 / 0.5001, 0])
    assert own["population_std_eps_1e-6"]["std"] == pytest.approx(math.sqrt(1 / 6))


def test_own_token(capsys):
    losses = run_json(capsys, "--ratio", "1.5", "--advantage", "2", "--beta", "0.1", "--kl", "0.5", "--clip", "0.25")[
        "token_loss"
    ]
    own = {"ratio": 1.5, "advantage": 2, "policy_term": -2.5, "total": -2.45}
    assert_same(losses, {"beta": 0.1, "kl": 0.5, "kl_term": 0.05, "clip_epsilon": 0.25, "own": own})


def test_own_beta_alone_keeps_the_token_of_the_example(capsys):
    own = run_json(capsys, "--beta", "1")["token_loss"]["own"]
    assert_same(own, {"ratio": 1.15, "advantage": 1.63, "policy_term": -1.8745, "total": -1.8545})


def test_negative_numbers_after_an_equals_sign(capsys):
    example = run_json(capsys, "--rewards=-1,1", "--advantage=-1", "--ratio", "0.5")
    assert example["advantages"]["own"]["rewards"] == [-1, 1]
    assert example["token_loss"]["own"]["policy_term"] == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--truth=0.1,0.1,1.5,0.4", "--truth: .*outside the image"),
        ("--truth=0.1,0.1,0.5", "--truth: .*four plain numbers"),
        ("--truth=0.1,nan,0.5,0.4", "--truth: .*four plain numbers"),
        ("--truth=", "--truth: .*four plain numbers"),
        ("--boxes=0.1,0.1,0.5,0.4;0.5,0.1,0.1,0.4", "--boxes, box 1: .*x2 < x1.*for example"),
        ("--boxes=0.1,0.1,0.1,0.4", "--boxes, box 0: .*no area"),
        ("--boxes=0.1,0.1,0.5,0.4;", "--boxes, box 1: ''"),
        ("--rewards=1", "at least 2 rewards"),
        ("--rewards=1,,0", "--rewards: '1,,0'"),
        ("--rewards=1,nan", "--rewards: '1,nan'"),
        ("--rewards=1,1e999", "--rewards: '1,1e999'"),
        ("--ratio=0", "above 0"),
        ("--ratio=one", "--ratio: 'one'"),
        ("--advantage=inf", "--advantage: 'inf'"),
        ("--beta=-0.1", "0 or more"),
        ("--kl=1,2", "2 numbers; one is asked for"),
        ("--clip=1", "between 0 and 1"),
        ("--clip=0", "between 0 and 1"),
    ],
)
def test_bad_numbers_are_named(capsys, arguments, words):
    with pytest.raises(ConfigError, match=words):
        run(capsys, arguments)


@pytest.mark.parametrize("rewards", ["1e100,-1e100", "0,1e-300"])
def test_extreme_numbers_stay_json(capsys, rewards):
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    own = ("--json", "--rewards=" + rewards, "--ratio=1e100", "--advantage=-1e100", "--beta=1e100", "--kl=1e100")
    json.loads(run(capsys, *own), parse_constant=refuse)


def test_the_text_shows_the_formulas_with_their_numbers(capsys):
    text = run(capsys)
    for line in (
        "7 workers x 8 answers = 56 answers to 1 prompt",
        "= 0.1444 / 0.16 = 0.9025, reward = 0.9025² = 0.81451",
        "sample     = sqrt(0.77975 / 7) = 0.33376",
        "population = sqrt(0.77975 / 8) = 0.3122",
        "(0.85 - 0.3275) / (0.33376 + 0.0001) = +1.5650",
        "(0.85 - 0.3275) / (0.3122 + 0.0001) = +1.6731",
        "-min(1.15 x 1.63, 1.15 x 1.63) = -1.8745",
        "loss = -1.8745 + 0.0002 = -1.8743",
        "exp(0.2) - 0.2 - 1 = 0.021403",
        "1 / (112 x 10) = 0.000893",
    ):
        assert line in text
    rows = [line.split() for line in text.splitlines()]
    assert ["a", "step", "1", "56", "7"] in rows
    assert ["an", "update,", "2", "steps", "2", "112", "14"] in rows
    assert max(map(len, text.splitlines())) <= 100


def test_the_text_says_which_deviation_each_printed_number_fits(capsys):
    text = run(capsys)
    verdicts = {
        "+1.63": "neither",
        "+1.22": "neither",
        "+0.10": "both",
        "-1.02": "neither",
        "-1.64": "population",
        "+1.58": "sample",
    }
    rows = [line.split() for line in text.splitlines()]
    shown = {row[-5]: row[-2] for row in rows if len(row) >= 7 and row[-5] in verdicts}
    assert shown == verdicts
    for group in REFERENCE["advantages"].values():
        for reward, printed in (group["as_noted"] or {}).items():
            if reward != "mean":
                at = group["rewards"].index(float(reward))
                sample, population = (
                    round(advantages(group["rewards"], std=std)[at], 2) == printed for std in ("sample", "population")
                )
                verdict = {(1, 1): "both", (0, 0): "neither", (1, 0): "sample", (0, 1): "population"}
                assert verdicts[f"{printed:+.2f}"] == verdict[sample, population]


def test_the_text_follows_own_numbers(capsys):
    text = run(capsys, "--boxes", "0.2,0.3,0.6,0.5", "--rewards", "0.25,0.75", "--ratio", "0.5", "--advantage", "3")
    assert "box 0" in text
    assert "= 0.08 / 0.16 = 0.5, reward = 0.5² = 0.25" in text
    assert "mean       = (0.25 + 0.75) / 2 = 0.5" in text
    assert "-min(0.5 x 3, 0.8 x 3) = -1.5" in text
    assert "notes" not in text
