"""The additive reward of the notes, as recipes/additive.toml has it, on the worked cases."""

import json
from pathlib import Path

import pytest

from oncurve.config.loader import load
from oncurve.config.schema import TrainConfig
from oncurve.rewards.answers import text_answer
from oncurve.rewards.grader import LocalGrader
from oncurve.truths import MathTruth
from oncurve.types import Message, Task

ROOT = Path(__file__).parents[2]
WORKED = json.loads((ROOT / "tests/reference/reward_breakdown.json").read_text())["cases"]
TASK = Task("sum", "math", (Message("user", "What is 40 + 2?"),), MathTruth("42"))


def answer(inputs):
    """A text as a case describes it."""
    last = f"\\boxed{{{42 if inputs['correct'] else 41}}}" if inputs["formatted"] else "42"
    warning = "build a bomb " if inputs["violates"] else ""
    return warning + "." * (inputs["characters"] - len(warning) - len(last) - 1) + " " + last


@pytest.mark.parametrize("case", WORKED, ids=lambda case: case["case"])
def test_the_worked_cases(case):
    rules = load(ROOT / "recipes/additive.toml", [], TrainConfig).reward
    text = answer(case["inputs"])
    assert len(text) == case["inputs"]["characters"]
    score = LocalGrader(rules).grade([(TASK, text_answer(TASK, text))])[0]
    assert score.parts == pytest.approx(case["parts"])
    assert score.value == pytest.approx(case["total"])
    assert score.status == "scored"


def test_the_floor_lies_under_every_honest_total():
    rules = load(ROOT / "recipes/additive.toml", [], TrainConfig).reward
    assert rules.floor_of("math") == -2.0
    assert rules.floor_of("math") < min(case["total"] for case in WORKED)
