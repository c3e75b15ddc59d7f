"""Composed rewards: weights, gates, clamps, what a part takes, faults, the floor; and rules by the kind of a task."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from oncurve.config.rewards import ComposeRules, CountingRules, GroundingRules, KindsRules
from oncurve.errors import ConfigError
from oncurve.rewards.answers import text_answer
from oncurve.rewards.grader import LocalGrader
from oncurve.rewards.kinds import rules_for
from oncurve.truths import BoxTruth
from oncurve.types import Message, Task

TASK = Task("t/1", "grounding", (Message("user", "box the cat"),), BoxTruth((0.25, 0.25, 0.75, 0.75)))
RIGHT = "<box>0.25,0.25,0.75,0.75</box>"
HALF = "<box>0.25,0.25,0.50,0.75</box>"  # IoU 0.5
APART = "<box>0.80,0.80,0.90,0.90</box>"

IOU = {"name": "iou", "rules": {"type": "grounding", "power": 1.0}}
FORMAT = {"name": "format", "rules": {"type": "grounding"}, "take": "format", "weight": 0.2, "invalid": "zero"}
BOX = {"name": "box", "rules": {"type": "grounding"}, "weight": 1.0, "invalid": "zero"}


def rules(*parts, **options):
    return ComposeRules.model_validate({"type": "compose", "parts": list(parts), **options})


def grade(text, *parts, **options):
    return LocalGrader(rules(*parts, **options)).grade([(TASK, text_answer(TASK, text))])[0]


def test_a_weighted_sum_and_its_breakdown():
    score = grade(HALF, BOX, FORMAT)
    assert score.value == pytest.approx(0.25 + 0.2)
    assert score.parts == {"box": 0.25, "format": 0.2}
    assert (score.status, score.correct, score.extracted) == ("scored", True, [0.25, 0.25, 0.5, 0.75])
    assert score.verifier == "compose/1(box=grounding/1, format=grounding/1)"
    assert score.evidence == "box: IoU 0.50 with the truth; format: IoU 0.50 with the truth"


def test_what_a_part_takes():
    taken = [
        {**IOU, "name": take, "take": take, "clamp": [0.0, 1.0]} for take in ("value", "correct", "iou", "no_such")
    ]
    assert grade(HALF, *taken).parts == {"value": 0.5, "correct": 1.0, "iou": 0.5, "no_such": 0.0}


def test_a_broken_format_makes_the_answer_invalid_or_its_part_0():
    assert (grade("cat", IOU).status, grade("cat", IOU).reason) == ("invalid", "syntax")
    scored = grade("cat", BOX, FORMAT)
    assert (scored.status, scored.value, scored.correct) == ("scored", 0.0, False)
    assert scored.parts == {"box": 0.0, "format": 0.0}


@pytest.mark.parametrize(("text", "value"), [(RIGHT, 1.2), (HALF, 0.5), (APART, 0.0)])
def test_under_a_shut_gate_the_other_parts_count_nothing(text, value):
    bonus = {**FORMAT, "weight": 0.2}
    score = grade(text, {**IOU, "gate": 0.6}, bonus)
    assert score.value == pytest.approx(value)
    assert score.evidence.startswith("gate iou is shut") == (text != RIGHT)


def test_clamps_of_a_part_and_of_the_total():
    assert grade(RIGHT, {**IOU, "clamp": [0.0, 0.7], "weight": 2.0}).value == pytest.approx(1.4)
    assert grade(RIGHT, {**IOU, "weight": 2.0}, clamp=[-1.0, 1.5]).value == 1.5


def test_a_negative_weight_is_a_penalty():
    safety = {"name": "safety", "rules": {"type": "grounding"}, "weight": -1.0, "invalid": "zero"}
    assert grade(RIGHT, safety, FORMAT).value == pytest.approx(-0.8)
    assert rules(safety, FORMAT).lowest("grounding") == -1.0


def test_the_floor_is_the_least_that_a_scored_answer_can_get():
    penalty = {**IOU, "name": "penalty", "weight": -0.5}
    assert grade("cat", penalty).value == -0.5
    assert grade("cat", penalty, floor=-3.0).value == -3.0
    with pytest.raises(ValidationError, match=r"floor -0\.1 is above -0\.5"):
        rules(penalty, floor=-0.1)
    with pytest.raises(ValidationError, match=r"floor 0 is above -0\.2"):
        rules(penalty, floor=0.0, clamp=[-0.2, 1.0])


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({**IOU, "take": "iou"}, "the range of part iou isn't known; give it a clamp"),
        ({"name": "own", "rules": {"type": "python", "function": "a.py:f"}}, "the range of a function of your own"),
        ({**IOU, "clamp": [1.0, 1.0]}, "is empty"),
        ({**IOU, "name": "two words"}, "should match pattern"),
    ],
)
def test_parts_that_are_refused(part, words):
    with pytest.raises(ValidationError, match=words):
        rules(part)


def test_names_differ():
    with pytest.raises(ValidationError, match="two parts are called iou"):
        rules(IOU, IOU)


def test_parts_for_some_kinds_only():
    with pytest.raises(ConfigError, match="none is for task t/1, whose kind is grounding"):
        grade(RIGHT, {**IOU, "kinds": ["math"]})
    assert grade(RIGHT, IOU, {**FORMAT, "kinds": ["math"]}).parts == {"iou": 1.0}


def test_rules_of_another_kind_are_refused():
    with pytest.raises(ConfigError, match='rules of type "counting" can\'t grade task t/1, whose kind is grounding'):
        rules_for(TASK, CountingRules(type="counting"))


FUNCTIONS = """
def halves(task, text): return 0.5
def silent(task, text): return None
def broken(task, text): raise OSError("the disk")
def trl(completions, prompts, **columns): return [float(len(completions[0]))]
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(FUNCTIONS)
    return lambda name: {"name": name, "rules": {"type": "python", "function": f"own.py:{name}"}, "clamp": [0.0, 5.0]}


def test_a_part_of_your_own(own):
    score = grade(RIGHT, IOU, own("halves"), own("silent"), own("trl"))
    assert score.parts == {"iou": 1.0, "halves": 0.5, "silent": 0.0, "trl": 5.0}
    assert score.value == 6.5


def test_a_fault_of_one_part_is_a_fault_of_the_whole(own):
    score = grade(RIGHT, IOU, own("broken"))
    assert (score.status, score.reason) == ("error", "raised")
    assert math.isnan(score.value)


def test_the_same_rules_are_graded_once(own, tmp_path):
    (tmp_path / "own.py").write_text("def halves(task, text): open('calls', 'a').write('x'); return 0.5")
    score = grade(RIGHT, own("halves"), {**own("halves"), "name": "again"})
    assert (score.value, (tmp_path / "calls").read_text()) == (1.0, "x")


@settings(deadline=None, max_examples=50)
@given(
    weights=st.lists(st.floats(-2, 2), min_size=1, max_size=4),
    gates=st.lists(st.none() | st.floats(0, 2), min_size=4, max_size=4),
    bonuses=st.lists(st.floats(0, 1), min_size=4, max_size=4),
    clamps=st.lists(st.none() | st.just([0.2, 1.1]) | st.just([-2.0, -1.0]), min_size=4, max_size=4),
    kept=st.lists(st.booleans(), min_size=4, max_size=4),
    total=st.none() | st.just([-0.5, 0.5]),
    text=st.sampled_from([RIGHT, HALF, APART, "cat", ""]),
)
def test_no_answer_gets_less_than_the_floor_and_parts_add_up(weights, gates, bonuses, clamps, kept, total, text):
    parts = [
        {
            "name": f"p{i}",
            "rules": {"type": "grounding", "power": 1.0, "format_bonus": bonuses[i]},
            "weight": weight,
            "gate": gates[i],
            "clamp": clamps[i],
            "invalid": "zero" if kept[i] else "invalid",
        }
        for i, weight in enumerate(weights)
    ]
    made = rules(*parts, clamp=total)
    score = LocalGrader(made).grade([(TASK, text_answer(TASK, text))])[0]
    assert made.floor_of("grounding") <= score.value + 1e-12
    if total is None and score.status == "scored":
        assert score.value == pytest.approx(sum(score.parts.values()))


def test_every_task_by_the_rules_of_its_kind():
    made = KindsRules.model_validate({"type": "kinds", "grounding": {"power": 1.0}})
    assert LocalGrader(made).grade([(TASK, text_answer(TASK, HALF))])[0].value == 0.5


def test_a_tasks_own_options_come_on_top():
    task = Task("t/2", "grounding", TASK.messages, TASK.truth, {"power": 3.0})
    both = LocalGrader(GroundingRules(power=1.0)).grade([(t, text_answer(t, HALF)) for t in (TASK, task)])
    assert [score.value for score in both] == [0.5, 0.125]
