"""Canaries: what they are for each kind of task, what is a flip and what is none."""

import json
from dataclasses import replace

import pytest

from oncurve.config.rewards import KIND_RULES, GroundingRules, PythonRules
from oncurve.config.schema import ScenesData
from oncurve.rewards.canary import Canaries
from oncurve.rewards.grader import LocalGrader
from oncurve.tasks.sets import load_tasks
from oncurve.truths import NoTruth, parse_truth
from oncurve.types import Message, Score, Task


@pytest.fixture(scope="module")
def scenes():
    return load_tasks(ScenesData(num_scenes=3))


class Said:
    """A grader that says what it is told, in order."""

    rules = "said/1"

    def __init__(self, *rounds: list[Score]):
        self.rounds = list(rounds)

    def grade(self, pairs):
        scores = self.rounds.pop(0)
        assert len(scores) == len(pairs)
        return scores


RIGHT, WRONG = Score("scored", 1.0, True), Score("scored", 0.0, False)
INVALID, ERROR = Score("invalid", 0.0, False, reason="syntax"), Score("error", float("nan"), reason="verifier")


def flips(scenes, first: list[Score], then: list[Score]) -> list[tuple[str, str]]:
    canaries = Canaries(Said(first, then), GroundingRules(), scenes)
    return [(row["then"], row["verdict"]) for row in canaries.flipped()]


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        ([RIGHT, WRONG], []),
        ([WRONG, WRONG], [("right", "wrong")]),
        ([WRONG, RIGHT], [("right", "wrong"), ("wrong", "right")]),
        ([INVALID, WRONG], [("right", "invalid")]),
        ([replace(RIGHT, value=0.7), WRONG], []),
        ([ERROR, ERROR], []),
    ],
)
def test_a_flip_is_another_verdict_than_at_first(scenes, then, expected):
    assert flips(scenes, [RIGHT, WRONG], then) == expected


def test_an_error_at_first_is_no_verdict(scenes):
    assert flips(scenes, [ERROR, WRONG], [RIGHT, WRONG]) == []


@pytest.mark.parametrize(
    ("values", "expected"),
    [((0.9, 0.1), []), ((0.6, 0.4), []), ((0.4, 0.1), [("right", "wrong")]), ((0.9, 0.6), [("wrong", "right")])],
)
def test_a_value_alone_is_right_from_the_mean_of_both_on(scenes, values, expected):
    first = [Score("scored", 0.8), Score("scored", 0.2)]
    assert flips(scenes, first, [Score("scored", value) for value in values]) == expected


def test_the_box_of_the_truth_and_one_far_from_it(scenes):
    canaries = Canaries(LocalGrader(GroundingRules()), GroundingRules(), scenes)
    right, wrong = canaries.first
    sides = [f"{side:.2f}" for side in scenes[0].truth.box]
    assert right["answer"] == f"<box>{','.join(sides)}</box>"
    assert right["task_id"] == wrong["task_id"] == scenes[0].id
    assert (right["correct"], wrong["correct"], wrong["value"]) == (True, False, 0.0)
    assert canaries.flipped() == []


def test_a_run_that_goes_on_keeps_its_first_verdicts(scenes):
    first = json.loads(json.dumps(Canaries(Said([RIGHT, WRONG]), GroundingRules(), scenes).first))
    assert [row["then"] for row in Canaries(Said([WRONG, WRONG]), GroundingRules(), scenes, first).flipped()] == [
        "right"
    ]
    others = load_tasks(ScenesData(split="heldout", num_scenes=3))
    assert Canaries(Said([]), GroundingRules(), others, first).flipped() == []


SETUP = "CREATE TABLE cats (name TEXT, age INTEGER); INSERT INTO cats VALUES "
SEEN = {"region": [0.3, 0.1, 0.5, 0.3], "type": "face_region", "description": "the head is down", "confidence": 0.9}
TASKS = {
    "grounding": ({"box": [0.2, 0.2, 0.6, 0.6]}, {"dialect": "qwen3_vl"}),
    "detection": ({"boxes": [[0.1, 0.1, 0.3, 0.4], [0.5, 0.5, 0.9, 0.8]]}, {}),
    "pointing": ({"point": [0.8, 0.2], "radius": 0.05}, {}),
    "counting": ({"count": 3}, {"format": "tag"}),
    "ocr": ({"text": "STOP HERE"}, {}),
    "choice": ({"choice": "left"}, {"choices": ["left", "right"]}),
    "short_answer": ({"answers": ["a red bus"]}, {}),
    "math": ({"answer": "42"}, {}),
    "code": ({"stdin_tests": [{"stdin": f"{word}\n", "stdout": f"{word}\n"} for word in ("cat", "dog")]}, {}),
    "sql": (
        {"sql": "SELECT name FROM cats WHERE age < 6"},
        {"setup": [SETUP + "('Tom', 3), ('Old', 12);", SETUP + "('Pip', 7), ('Zoe', 2);"]},
    ),
    "evidence": ({"regions": [{"region": [0.3, 0.1, 0.5, 0.3], "type": "arms", "attributes": ["arms crossed"]}]}, {}),
    "reply": ({"evidence": [SEEN]}, {}),
}


@pytest.mark.parametrize("kind", TASKS)
def test_each_kind_has_a_right_and_a_wrong_one(kind):
    truth, options = TASKS[kind]
    task = Task(kind, kind, (Message("user", "look"),), parse_truth(kind, truth), options)
    rules = KIND_RULES[kind](type=kind)
    canaries = Canaries(LocalGrader(rules), rules, [task])
    right, wrong = canaries.first
    assert right["value"] > wrong["value"]
    if right["correct"] is not None:
        assert (right["correct"], wrong["correct"]) == (True, False)
    assert canaries.flipped() == []


def test_a_text_without_truth_has_a_right_one_only():
    task = Task("t", "text", (Message("user", "describe it"),), NoTruth(), {"parts": [{"type": "repetition"}]})
    rules = KIND_RULES["text"](type="text")
    canaries = Canaries(LocalGrader(rules), rules, [task])
    assert len(canaries.first) == 1
    assert canaries.flipped() == []


def test_a_function_that_changes_its_mind(scenes, tmp_path):
    """It is shown the spelling that it reads; a file beside it makes it blind."""
    (tmp_path / "own.py").write_text(f"""
from pathlib import Path

def score(task, answer):
    seen = not Path({str(tmp_path / "blind")!r}).exists()
    return float(seen and "bbox_2d" in answer and '[0, 0' not in answer)
""")
    rules = PythonRules(type="python", function=f"{tmp_path}/own.py:score", timeout_s=5.0)
    canaries = Canaries(LocalGrader(rules), rules, scenes)
    right, wrong = canaries.first
    assert "bbox_2d" in right["answer"]
    assert (right["value"], wrong["value"]) == (1.0, 0.0)
    assert canaries.flipped() == []
    (tmp_path / "blind").touch()
    (flip,) = canaries.flipped()
    assert (flip["answer"], flip["then"], flip["verdict"]) == (right["answer"], "right", "wrong")
