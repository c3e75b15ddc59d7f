"""The grounding verifier and its grader: gate, grade, floor; and a fault of the verifier is no wrong answer."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from oncurve.config.rewards import GroundingRules
from oncurve.errors import BrokenTruth
from oncurve.geometry.boxes import iou
from oncurve.rewards import grounding
from oncurve.rewards.grader import LocalGrader
from oncurve.rewards.kinds import rules_for, verifier_of
from oncurve.truths import BoxTruth
from oncurve.types import Message, Rollout, Task, TaskImage

TRUTH = BoxTruth((0.2, 0.2, 0.6, 0.6))
RIGHT = "<box>0.20,0.20,0.60,0.60</box>"
HALF = "<box>0.20,0.20,0.40,0.60</box>"  # IoU 0.5
APART = "<box>0.70,0.70,0.90,0.90</box>"


def grade(text: str, **rules):
    return grounding.grade(TRUTH, text, GroundingRules(**rules))


@pytest.mark.parametrize(
    ("text", "rules", "value"),
    [
        (RIGHT, {}, 1.0),
        (HALF, {}, 0.25),
        (HALF, {"power": 1.0}, 0.5),
        (HALF, {"power": 3.0}, 0.125),
        (APART, {}, 0.0),
        (HALF, {"format_bonus": 0.3}, 0.55),
        (APART, {"format_bonus": 0.3}, 0.3),
        (RIGHT, {"threshold": 0.9, "power": 1.0}, 1.0),
        (HALF, {"threshold": 0.49, "power": 1.0}, 1.0),
        (HALF, {"threshold": 0.51, "power": 1.0}, 0.0),
        (HALF, {"threshold": 0.51, "power": 1.0, "format_bonus": 0.3}, 0.3),
        (RIGHT, {"similarity": "giou"}, 1.0),
        (HALF, {"similarity": "giou", "power": 1.0}, 0.75),  # (0.5 + 1) / 2: the hull is the truth
        (APART, {"similarity": "giou", "power": 1.0}, 0.16 * (1 - (0.49 - 0.2) / 0.49) / 2),
        ("none", {}, 0.0),
        ("none", {"floor": -0.5}, -0.5),
        ("none", {"floor": 0.2, "format_bonus": 0.3}, 0.2),
    ],
)
def test_values_by_hand(text, rules, value):
    assert grade(text, **rules).value == pytest.approx(value, abs=1e-12)


def test_a_scored_answer_in_full():
    score = grade(HALF, format_bonus=0.1)
    assert (score.status, score.correct, score.verifier, score.reason) == ("scored", True, "grounding/1", "")
    assert score.parts == pytest.approx({"format": 1.0, "iou": 0.5, "similarity": 0.25})
    assert score.extracted == [0.2, 0.2, 0.4, 0.6]
    assert score.evidence == "IoU 0.50 with the truth"


def test_correct_is_by_iou_whatever_is_rewarded():
    assert grade(HALF, similarity="ciou", power=9.0).correct
    assert not grade("<box>0.20,0.20,0.39,0.60</box>", threshold=0.1, power=1.0).correct


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (f"the cat is at {RIGHT}", "text_around"),
        (RIGHT + RIGHT, "repeated_tags"),
        ("0.2,0.2,0.6,0.6", "syntax"),
        ("<box>0.60,0.20,0.20,0.60</box>", "swapped_corners"),
        ("<box>0.20,0.20,0.20,0.60</box>", "no_area"),
        ("<box>0.20,0.20,1.60,0.60</box>", "outside"),
    ],
)
def test_the_gate(text, reason):
    score = grade(text, floor=-1.0)
    assert (score.status, score.value, score.correct, score.reason) == ("invalid", -1.0, False, reason)
    assert score.parts == {"format": 0.0}
    assert score.extracted is None
    assert score.evidence


numbers = st.integers(0, 100).map(lambda n: f"{n / 100:.2f}")
boxes = st.tuples(numbers, numbers, numbers, numbers).map(lambda n: f"<box>{','.join(n)}</box>")


@given(
    text=boxes,
    similarity=st.sampled_from(["iou", "giou", "diou", "ciou"]),
    power=st.sampled_from([0.5, 1.0, 2.0]),
    bonus=st.sampled_from([0.0, 0.2]),
)
@settings(deadline=None, max_examples=50)
def test_doing_nothing_never_pays(text, similarity, power, bonus):
    score = grade(text, similarity=similarity, power=power, format_bonus=bonus, floor=bonus)
    nothing = grade("", similarity=similarity, power=power, format_bonus=bonus, floor=bonus)
    assert nothing.value <= score.value <= 1 + bonus + 1e-12


def test_the_grader_keeps_order(text_task, rollout):
    tasks = [text_task("t"), text_task("u", box=(0.2, 0.2, 0.4, 0.6))]
    pairs = [(task, rollout(task.id, i, text=text)) for task in tasks for i, text in enumerate((RIGHT, HALF, ""))]
    assert [score.value for score in LocalGrader(GroundingRules()).grade(pairs)] == pytest.approx(
        [1, 1 / 4, 0, 1 / 4, 1, 0]
    )


def test_a_verifier_that_raises_is_an_error_and_never_0(monkeypatch, text_task, rollout):
    def broken(box, truth):
        return 1 / 0 if box[0] == 0.7 else iou(box, truth)

    monkeypatch.setattr(grounding, "iou", broken)
    answers = [(text_task(), rollout(index=i, text=text)) for i, text in enumerate((RIGHT, APART, RIGHT))]
    before, score, after = LocalGrader(GroundingRules()).grade(answers)
    assert score.status == "error"
    assert math.isnan(score.value)
    assert score.correct is None
    assert score.evidence == "ZeroDivisionError: division by zero"
    assert (score.reason, score.verifier) == ("verifier", "grounding/1")
    assert before.value == after.value == 1


def test_the_rules_name_verifier_and_every_setting():
    one, other = (LocalGrader(GroundingRules(power=power)).rules for power in (1.0, 2.0))
    assert one.startswith("grounding/1 {")
    assert one != other
    assert all(f'"{name}"' in one for name in GroundingRules.model_fields)


def by_task(text: str, sizes=(), images=(), **options):
    task = Task("t", "grounding", (Message("user", "box it", images),), BoxTruth((0.2, 0.3, 0.6, 0.7)), options)
    rules, verifier = rules_for(task, GroundingRules()), verifier_of("grounding")
    verifier.check(task, rules)
    return verifier.grade(task, Rollout("t", 0, (), text, "end", 0, 1.0, 0, sizes), rules)


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("boxes01", "<box>0.2,0.3,0.6,0.7</box>"),
        ("qwen2_vl", "<|object_ref_start|>it<|object_ref_end|><|box_start|>(200,300),(600,700)<|box_end|>"),
        ("qwen3_vl", '[{"bbox_2d": [200, 300, 600, 700], "label": "whatever"}]'),
        ("internvl", "<ref>it</ref><box>[[200, 300, 600, 700]]</box>"),
        ("gemini", '[{"box_2d": [300, 200, 700, 600], "label": "it"}]'),
        ("paligemma", "<loc0307><loc0205><loc0717><loc0614> it"),
        ("florence2", "it<loc_200><loc_300><loc_600><loc_700>"),
    ],
)
def test_the_truth_in_other_dialects(dialect, text):
    score = by_task(text, dialect=dialect)
    assert score.correct
    assert score.value == pytest.approx(1, abs=0.02)
    assert by_task("<box>0.2,0.3,0.6,0.8</box>", dialect=dialect).status == (
        "scored" if dialect == "boxes01" else "invalid"
    )


@pytest.mark.parametrize(
    ("dialect", "text", "reason"),
    [
        ("boxes01", "none", "no_box"),
        ("boxes01", "<box>0.2,0.3,0.6,0.7</box>" * 2, "several_boxes"),
        ("qwen3_vl", "[]", "no_box"),
        ("qwen3_vl", json.dumps([{"bbox_2d": [0, 0, 9, 9], "label": "it"}] * 144), "several_boxes"),
    ],
)
def test_not_one_box(dialect, text, reason):
    assert by_task(text, dialect=dialect).reason == reason


def test_the_models_pixels_come_from_the_options_or_else_from_the_sampler():
    text = '```json\n[{"bbox_2d": [200, 150, 600, 350], "label": "it"}]\n```'
    assert by_task(text, dialect="qwen2_5_vl", model_size=[1000, 500]).value == pytest.approx(1)
    assert by_task(text, dialect="qwen2_5_vl", model_size=[1000, 500], sizes=((9, 9),)).value == pytest.approx(1)
    image = (TaskImage.of(Image.new("RGB", (8, 8)), "x"),)
    assert by_task(text, dialect="qwen2_5_vl", sizes=((1000, 500),), images=image).value == pytest.approx(1)
    with pytest.raises(BrokenTruth, match=r"set options.model_size = \[width, height\]"):
        by_task(text, dialect="qwen2_5_vl")
    with pytest.raises(BrokenTruth, match="its size is not known"):
        by_task(text, dialect="qwen2_5_vl", images=image)


def test_half_of_the_box_is_right_whatever_the_rounding():
    for hundredths in range(0, 60):
        x = hundredths / 100
        truth = BoxTruth((x, 0.1, x + 0.4, 0.5))
        score = grounding.grade(truth, f"<box>{x:.2f},0.10,{x + 0.2:.2f},0.50</box>", GroundingRules())
        assert score.correct
