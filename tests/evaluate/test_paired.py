"""Two evaluations side by side: means, verdicts, and the tasks that changed sides."""

import pytest

from oncurve.errors import DataError
from oncurve.evaluate import Evaluation
from oncurve.evaluate.paired import paired
from oncurve.types import Score

RIGHT, WRONG = Score("scored", 0.81, True, {"iou": 0.9}), Score("scored", 0.04, False, {"iou": 0.2})
FAILED = Score("error", float("nan"))


@pytest.fixture
def evaluation(text_task, rollout):
    def make(name: str, *scores: Score, first: int = 0) -> Evaluation:
        asked = tuple(text_task(f"t{i + first}", text=f"box thing {i}") for i in range(len(scores)))
        return Evaluation(asked, tuple(rollout(task.id, text=f"{name} {task.id}") for task in asked), scores)

    return make


def test_means_and_the_tasks_that_changed_sides(evaluation):
    a = evaluation("A", RIGHT, WRONG, WRONG, RIGHT, WRONG)
    b = evaluation("B", RIGHT, RIGHT, RIGHT, WRONG, FAILED)
    found = paired(a, b)
    assert found.num_tasks == 4
    accuracy, value, iou = (found.differences[name] for name in ("accuracy", "mean_value", "mean_iou"))
    assert (accuracy.a_mean, accuracy.b_mean, accuracy.difference) == (0.5, 0.75, 0.25)
    assert (value.a_mean, value.b_mean) == (
        pytest.approx((2 * 0.81 + 2 * 0.04) / 4),
        pytest.approx((3 * 0.81 + 0.04) / 4),
    )
    assert iou.difference == pytest.approx(0.7 / 4)
    assert [one.a.task.id for one in found.gained] == ["t1", "t2"]
    assert [one.a.task.id for one in found.lost] == ["t3"]
    assert found.lost[0].row() == {
        "id": "t3",
        "kind": "grounding",
        "question": "box thing 3",
        "truth": {"box": (0.2, 0.2, 0.6, 0.6)},
        "a": "A t3",
        "b": "B t3",
        "a_value": 0.81,
        "b_value": 0.04,
    }
    assert accuracy.verdict == "can't tell"


def test_other_tasks_or_none_graded_can_not_be_paired(evaluation):
    with pytest.raises(DataError, match="different tasks"):
        paired(evaluation("A", RIGHT), evaluation("B", RIGHT, first=1))
    with pytest.raises(DataError, match="no task was graded for both"):
        paired(evaluation("A", FAILED), evaluation("B", RIGHT))


def test_what_no_verifier_calls_correct_is_compared_by_value(evaluation):
    low, high = Score("scored", 0.1, None), Score("scored", 0.6, None)
    found = paired(evaluation("A", low, low), evaluation("B", high, high))
    assert list(found.differences) == ["mean_value", "mean_iou"]
    assert found.differences["mean_value"].difference == pytest.approx(0.5)
    assert found.gained == found.lost == ()
