"""The measures of each kind by hand, breakdowns, and answers sampled several times."""

from math import nan

import pytest

from oncurve.config.rewards import KindsRules
from oncurve.evaluate.measures import Graded, by_category, by_kind, by_length, majority, measures_of, sampled_measures
from oncurve.evaluate.statistics import Measure, bootstrap, wilson
from oncurve.rewards.answers import text_answer
from oncurve.rewards.grader import LocalGrader
from oncurve.truths import parse_truth
from oncurve.types import Message, Score, Task

GRADER = LocalGrader(KindsRules(type="kinds"))


def graded(kind: str, *answers: tuple[dict, str], category: str = "") -> list[Graded]:
    """(truth, answer) pairs as their kind's verifier grades them."""
    message = (Message("user", "?"),)
    tasks = [Task(f"t{i}", kind, message, parse_truth(kind, t), category=category) for i, (t, _) in enumerate(answers)]
    rollouts = [text_answer(task, text) for task, (_, text) in zip(tasks, answers, strict=True)]
    return list(map(Graded, tasks, rollouts, GRADER.grade(list(zip(tasks, rollouts, strict=True)))))


def values(found: list[Graded]) -> dict[str, float]:
    return {name: one.value for name, one in measures_of(found).items()}


def test_grounding_at_the_threshold():
    """IoU 1, exactly 0.5, 0 and one that does not parse."""
    truth = {"box": [0.0, 0.0, 0.5, 0.5]}
    boxes = ("0,0,0.5,0.5", "0,0,0.5,0.25", "0.6,0.6,0.9,0.9")
    found = graded("grounding", *((truth, f"<box>{box}</box>") for box in boxes), (truth, "a box"))
    assert values(found) == pytest.approx(
        {
            "accuracy": 0.5,
            "valid_format": 0.75,
            "mean_value": 1.25 / 4,
            "mean_iou": 1.5 / 4,
            "acc@0.5": 0.5,
            "acc@0.75": 0.25,
            "acc@0.95": 0.25,
            "acc>0.5": 0.25,
        }
    )
    assert measures_of(found)["acc>0.5"].interval == wilson(0.25, 4)
    assert measures_of(found)["mean_iou"].interval == bootstrap([1.0, 0.5, 0.0, 0.0])


def test_detection_by_average_precision():
    truth, hit, miss = {"boxes": [[0.0, 0.0, 0.5, 0.5]]}, "<box>0,0,0.5,0.5</box>", "<box>0.6,0.6,0.9,0.9</box>"
    found = values(graded("detection", (truth, hit), (truth, miss)))
    assert found["mean_f1"] == 0.5
    # precision 1 at the 51 recalls 0, 0.01 … 0.5 of COCO's 101, and 0 beyond; the hit is exact, so at every threshold
    assert found["coco_ap"] == found["coco_ap50"] == found["coco_ap75"] == pytest.approx(51 / 101)
    assert measures_of(graded("detection", (truth, hit)))["coco_ap"] == Measure(pytest.approx(1.0))


def test_pointing_counting_and_execution():
    box = {"box": [0.2, 0.2, 0.6, 0.6]}
    found = values(graded("pointing", (box, "<point>0.3,0.3</point>"), (box, "<point>0.9,0.3</point>")))
    assert found["click_accuracy"] == found["accuracy"] == 0.5
    found = values(
        graded("counting", ({"count": 3}, "3"), ({"count": 3}, "7"), ({"count": 2}, "1"), ({"count": 2}, "two"))
    )
    assert found["exact_match"] == 0.25
    assert found["mae"] == pytest.approx((0 + 4 + 1) / 3)  # over the answers that are a number
    assert "mae" not in values(graded("counting", ({"count": 3}, "many")))


def test_ocr_counts_edits_over_the_whole_set():
    found = values(
        graded("ocr", ({"text": "stop"}, "stop"), ({"text": "no entry here"}, "no entri"), ({"text": "exit"}, ""))
    )
    assert found["cer"] == pytest.approx((0 + 6 + 4) / (4 + 13 + 4))
    assert found["wer"] == pytest.approx((0 + 2 + 1) / (1 + 3 + 1))


def test_short_answer_by_anls():
    truth = {"answers": ["Paris", "the city of Paris"]}
    found = values(graded("short_answer", (truth, "paris"), (truth, "Pariz"), (truth, "London")))
    assert found["anls"] == pytest.approx((1 + 0.8 + 0) / 3)
    assert found["accuracy"] == pytest.approx(2 / 3)


def test_kinds_apart_and_together():
    counting = graded("counting", ({"count": 3}, "3"), ({"count": 3}, "4"))
    choice = graded("choice", ({"choice": "B"}, "B"))
    together = measures_of([*counting, *choice])
    assert set(together) == {"accuracy", "valid_format", "mean_value"}
    assert together["accuracy"].value == pytest.approx(2 / 3)
    kinds = by_kind([*counting, *choice])
    assert list(kinds) == ["counting", "choice"]
    assert kinds["counting"]["mae"].value == 0.5
    assert measures_of([]) == {}


def test_what_no_verifier_calls_correct_has_no_accuracy(text_task, rollout):
    found = [Graded(text_task("t"), rollout("t"), Score("scored", 0.4, None))]
    assert "accuracy" not in measures_of(found)
    assert by_length(found) == []


def test_categories_the_largest_first():
    cats = graded("counting", ({"count": 1}, "1"), ({"count": 1}, "2"), category="cats")
    none = graded("counting", ({"count": 1}, "1"))
    found = by_category([*none, *cats])
    assert [(name, n, own["accuracy"].value) for name, (n, own) in found.items()] == [
        ("cats", 2, 0.5),
        ("(none)", 1, 1.0),
    ]
    assert by_category(cats) == {}


def test_accuracy_against_length_in_quarters(text_task, rollout):
    """Eight answers of 1 to 8 tokens; those up to 4 are right."""
    found = [
        Graded(text_task(f"t{n}"), rollout(f"t{n}", tokens=tuple(range(n))), Score("scored", 0.0, n <= 4))
        for n in (3, 1, 2, 8, 7, 4, 5, 6)
    ]
    bins = by_length(found)
    assert sum(one.num for one in bins) == 8
    assert [(one.low, one.high) for one in bins] == [(1, 2), (3, 4), (5, 6), (7, 8)]
    assert [one.accuracy.value for one in bins] == [1.0, 1.0, 0.0, 0.0]
    alike = [one._replace(rollout=rollout("t", tokens=(1, 2))) for one in found]
    assert [(one.low, one.high, one.num) for one in by_length(alike)] == [(2, 2, 8)]


def answered(task, rollout, *outcomes) -> list[Graded]:
    """Answers to one task by (extracted, correct); None for what does not parse."""
    scores = [
        Score("invalid", 0.0, False) if outcome is None else Score("scored", 0.0, outcome[1], extracted=outcome[0])
        for outcome in outcomes
    ]
    return [Graded(task, rollout(task.id, i), score) for i, score in enumerate(scores)]


def test_the_majority_by_hand(text_task, rollout):
    task, right, wrong, other = text_task("t"), ("4", True), ("5", False), ("6", False)
    assert majority(answered(task, rollout, right, right, wrong, other)) == 1.0
    assert majority(answered(task, rollout, right, wrong, wrong)) == 0.0
    assert majority(answered(task, rollout, right, wrong)) == 0.5  # a tie: as good as drawing one of the two
    assert majority(answered(task, rollout, right, None, None)) == 1.0  # what does not parse has no vote
    assert majority(answered(task, rollout, None, None)) == 0.0


def test_sampled_answers_by_hand(text_task, rollout):
    right, wrong = ("4", True), ("5", False)
    some = [
        answered(text_task("a"), rollout, right, wrong, wrong, wrong),
        answered(text_task("b"), rollout, right, right, right, None),
    ]
    found = {name: one.value for name, one in sampled_measures(some).items()}
    assert found == pytest.approx({"avg@4": 0.5, "pass@1": 0.5, "pass@2": 0.75, "pass@4": 1.0, "maj@4": 0.5})
    assert sampled_measures(some)["avg@4"].interval == (0.25, 0.75)
    fewer = sampled_measures([some[0], some[1][:2]])  # the verifier failed on two of b's
    assert fewer["pass@4"].value == 1.0  # of a alone
    assert fewer["pass@2"].value == pytest.approx((0.5 + 1) / 2)
    assert sampled_measures([[Graded(text_task("c"), rollout("c"), Score("scored", nan, None))]]) == {}
