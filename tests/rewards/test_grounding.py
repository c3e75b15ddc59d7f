"""The grounding verifier and its grader: gate, grade, floor; and a fault of the verifier is no wrong answer."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.config.rewards import GroundingRules
from oncurve.geometry.boxes import iou
from oncurve.rewards import grounding
from oncurve.rewards.grader import LocalGrader
from oncurve.truths import BoxTruth

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
