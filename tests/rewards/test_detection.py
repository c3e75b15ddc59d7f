"""The detection verifier: one-to-one matches, labels, the empty set, and the known attacks on it."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.config.rewards import DetectionRules
from oncurve.errors import BrokenTruth
from oncurve.geometry.dialects import MAX_BOXES, Found, print_boxes
from oncurve.rewards.kinds import rules_for, verifier_of
from oncurve.truths import BoxesTruth
from oncurve.types import Message, Rollout, Task

CAT, DOG = (0.2, 0.3, 0.6, 0.7), (0.7, 0.4, 0.9, 0.8)
TIGHT = (0.21, 0.31, 0.59, 0.69)  # IoU 0.9025 with the cat
GRID = [(x / 12, y / 12, (x + 1) / 12, (y + 1) / 12) for x in range(12) for y in range(12)]


def grade(truth, text: str, labels=None, sizes=(), **options):
    task = Task("t", "detection", (Message("user", "box all"),), BoxesTruth(tuple(truth), labels), options)
    rules, verifier = rules_for(task, DetectionRules(type="detection")), verifier_of("detection")
    verifier.check(task, rules)
    answer = Rollout("t", 0, (), text, "end", 0, 1.0, 0, sizes)
    score = verifier.grade(task, answer, rules)
    json.dumps(score.extracted, allow_nan=False)
    return score


def boxes(*found) -> str:
    return print_boxes([Found(box) for box in found], "boxes01")


def labelled(*pairs) -> str:
    return print_boxes([Found(box, label) for box, label in pairs], "qwen3_vl")


@pytest.mark.parametrize(
    ("truth", "found", "f1", "mean_iou"),
    [
        ([CAT, DOG], [DOG, CAT], 1, 1),  # in any order
        ([CAT, DOG], [TIGHT, DOG], 1, (0.9025 + 1) / 2),
        ([CAT, DOG], [CAT], 2 / 3, 1),
        ([CAT], [CAT, DOG], 2 / 3, 1),
        ([CAT], [TIGHT] * 10, 2 / 11, 0.9025),  # duplicate_boxes: nine are extra
        ([CAT], [DOG], 0, 0),
        ([CAT], [(0, 0, 1, 1)], 0, 0),  # giant_box: an IoU of 0.16
        ([], [CAT], 0, 0),
        ([CAT, DOG], [], 0, 0),  # empty_set
        ([], [], 1, 1),
    ],
)
def test_values_by_hand(truth, found, f1, mean_iou):
    score = grade(truth, boxes(*found))
    assert score.status == "scored"
    assert score.value == pytest.approx(f1 * mean_iou)
    assert score.parts["f1"] == pytest.approx(f1)
    assert score.parts["mean_iou"] == pytest.approx(mean_iou)
    assert score.correct is (f1 == 1)


def test_a_score_in_full():
    score = grade([DOG, CAT], boxes(TIGHT, (0, 0, 0.1, 0.1)))
    assert score.verifier == "detection/1"
    assert score.parts == pytest.approx({"format": 1, "f1": 0.5, "precision": 0.5, "recall": 0.5, "mean_iou": 0.9025})
    assert score.extracted == [{"box": list(TIGHT)}, {"box": [0, 0, 0.1, 0.1]}]
    assert score.evidence == "IoU 0.90 with truth 2; 1 missed; 1 extra box"
    assert grade([], "none").evidence == "no box, and there is none"
    many = [(x / 10, 0, (x + 1) / 10, 1) for x in range(6)]
    assert grade(many, boxes(*many)).evidence.endswith("with truth 3; 3 more matched")
    assert grade([CAT], boxes(DOG, DOG)).evidence == "1 missed; 2 extra boxes"


def test_a_grid_of_144_boxes():
    truth = (GRID[0][0], GRID[0][1], GRID[0][2], GRID[0][3] * 1.5)  # an IoU of 2/3 with one cell
    text = "\n".join(f"<box>{','.join(f'{n:.6f}' for n in box)}</box>" for box in GRID)
    score = grade([truth], text)
    assert score.parts["f1"] == pytest.approx(2 / 145)
    assert score.parts["mean_iou"] == pytest.approx(2 / 3, abs=1e-4)
    assert score.value == pytest.approx(0.0092, abs=1e-4)


def test_match_iou():
    half = (0.2, 0.3, 0.4, 0.7)
    assert grade([CAT], boxes(half)).correct  # an IoU of 0.5 is one
    assert grade([CAT], boxes(half)).value == pytest.approx(0.5)
    assert grade([CAT], boxes(half), match_iou=0.51).value == 0
    assert grade([CAT], boxes(TIGHT), match_iou=0.9025).correct


def test_labels_count_where_the_truth_has_them():
    truth, options = [CAT, DOG], {"labels": ("cat", "Dog"), "dialect": "qwen3_vl"}
    assert grade(truth, labelled((CAT, "CAT"), (DOG, "dog")), **options).correct
    swapped = grade(truth, labelled((CAT, "dog"), (DOG, "cat")), **options)
    assert (swapped.value, swapped.evidence) == (0, "2 missed; 2 extra boxes")
    assert grade(truth, labelled((CAT, "cat"), (DOG, "horse")), **options).value == pytest.approx(0.5)
    assert grade(truth, labelled((CAT, "x"), (DOG, "y")), dialect="qwen3_vl").correct  # the truth has none


def test_the_label_decides_between_boxes_in_one_place():
    score = grade([CAT, CAT], labelled((TIGHT, "pet"), (CAT, "cat")), labels=("cat", "pet"), dialect="qwen3_vl")
    assert score.correct
    assert score.value == pytest.approx((1 + 0.9025) / 2)


@pytest.mark.parametrize(
    "dialect", ["boxes01", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "internvl", "paligemma", "gemini", "florence2"]
)
def test_the_truth_is_right_in_every_dialect(dialect):
    size = (1000, 1000)
    labels = None if dialect == "boxes01" else ("cat", "dog")
    options = {"model_size": list(size)} if dialect == "qwen2_5_vl" else {}
    text = print_boxes([Found(CAT, "cat"), Found(DOG, "dog")], dialect, size)
    score = grade([CAT, DOG], text, labels=labels, dialect=dialect, **options)
    assert score.correct
    assert score.value > 0.98
    nothing = "[]" if dialect in ("qwen2_5_vl", "qwen3_vl", "gemini") else "none"
    assert grade([], nothing, dialect=dialect, **options).value == 1
    assert grade([CAT], nothing, dialect=dialect, **options).value == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("<box></box>", "syntax"),
        ("None", "syntax"),
        ("[]", "syntax"),
        ("<box>nan,0,1,1</box>", "syntax"),
        ("<box>0,0,1,1e999</box>", "syntax"),
        ("<box>-0.0,0,1,1</box>", "number"),
        (f"<box>0.{'1' * 10_000},0,1,1</box>", "number"),
        ("<box>0.6,0.3,0.2,0.7</box>", "swapped_corners"),
        ("<box>0.2,0.7,0.6,0.3</box>", "swapped_corners"),
        ("<box>0.2,0.3,0.2,0.7</box>", "no_area"),
        ("<box>0.2,0.3,0.6,1.7</box>", "outside"),
        ("<box>\uff10,0,1,1</box>", "syntax"),
        ("<box>\u0660,0,1,1</box>", "syntax"),
        (f"{boxes(CAT)} {boxes(DOG)} and so on", "text_around"),
        (f"<think>{boxes(CAT)}</think>{boxes(CAT)}", "text_around"),
        ("__import__('os').system('true')", "syntax"),
        (boxes(CAT) + " cat" * 5000, "text_around"),
        ("\n".join([boxes(CAT)] * (MAX_BOXES + 1)), "too_many"),
        ("\n".join([boxes(CAT)] * 50_000), "too_long"),
    ],
)
def test_the_gate(text, reason):
    score = grade([CAT], text, floor=-1.0)
    assert (score.status, score.value, score.correct, score.reason) == ("invalid", -1, False, reason)
    assert score.evidence


@pytest.mark.parametrize(
    "text",
    [
        '[{"bbox_2d": [0, 0, 9, 9], "bbox_2d": [200, 300, 600, 700], "label": "cat"}]',
        '[{"bbox_2d": [200, 300, 600, NaN], "label": "cat"}]',
        '[{"bbox_2d": [200, 300, 600, Infinity], "label": "cat"}]',
        '[{"bbox_2d": [200, 300, 600, 700], "label": "cat"},]',
        '[{"bbox_2d": [200, 300, 600, 700], "label": "cat", "sure": 1}]',
        '[{"bbox_2d": [200, 300, 600, 700], "label": "cat"}] [{"bbox_2d": [200, 300, 600, 700], "label": "cat"}]',
    ],
)
def test_traps_of_json(text):
    assert grade([CAT], text, dialect="qwen3_vl").status == "invalid"


def test_the_models_pixels():
    text = '[{"bbox_2d": [280, 140, 840, 280], "label": "cat"}]'
    truth = (0.2, 0.25, 0.6, 0.5)
    assert grade([truth], text, dialect="qwen2_5_vl", model_size=[1400, 560]).value == pytest.approx(1)
    with pytest.raises(BrokenTruth, match=r"set options.model_size = \[width, height\]"):
        grade([truth], text, dialect="qwen2_5_vl")
    assert grade([truth], text, dialect="qwen2_5_vl", model_size=[839, 560]).reason == "outside"


@pytest.mark.parametrize(
    ("truth", "labels", "options", "words"),
    [
        ([CAT], ("a <b>",), {"dialect": "internvl"}, "can say 'a <b>'"),
        ([CAT] * (MAX_BOXES + 1), None, {}, "501 boxes"),
        ([CAT], None, {"dialect": "box01"}, "options.dialect"),
        ([CAT], None, {"match_iou": 0.0}, "options.match_iou"),
        ([CAT], None, {"floor": 0.1}, "set floor to 0 or less"),
        ([CAT], None, {"image_size": [0, 9]}, "options.image_size"),
    ],
)
def test_broken_truths_and_options(truth, labels, options, words):
    with pytest.raises(BrokenTruth, match=words):
        grade(truth, "none", labels=labels, **options)


def test_labels_do_not_count_in_a_dialect_that_has_none():
    assert grade([CAT, DOG], boxes(DOG, CAT), labels=("cat", "dog")).correct
    assert grade([], "none", labels=()).value == 1


numbers = st.integers(0, 10).map(lambda n: f"{n / 10:.1f}")
texts = st.lists(st.tuples(numbers, numbers, numbers, numbers).map(lambda n: f"<box>{','.join(n)}</box>"), max_size=5)


@given(texts.map("".join))
@settings(deadline=None, max_examples=50)
def test_any_answer_gets_0_to_1_and_nothing_beats_the_truth(text):
    score = grade([CAT, DOG], text)
    assert score.status in ("scored", "invalid")
    assert 0 <= score.value <= 1
