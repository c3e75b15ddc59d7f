"""Evaluation: intervals against known values, the summary by hand, and greedy answers in order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.config.rewards import EvidenceRules
from oncurve.config.schema import FiguresData
from oncurve.evaluate import Evaluation, bootstrap, evaluate, wilson
from oncurve.tasks.sets import load_tasks
from oncurve.truths import parse_truth
from oncurve.types import Message, Score, Task


def scored(iou: float) -> Score:
    return Score("scored", iou**2, iou >= 0.5, {"iou": iou})


INVALID = Score("invalid", 0.0, False, {"format": 0.0}, reason="syntax")


@pytest.fixture
def evaluation(text_task, rollout):
    def make(*scores: Score) -> Evaluation:
        asked = tuple(text_task(f"t{i}", text=f"box thing {i}") for i in range(len(scores)))
        return Evaluation(asked, tuple(rollout(task.id, text=f"text {task.id}") for task in asked), scores)

    return make


@pytest.mark.parametrize(
    ("share", "n", "expected"),
    [
        (0.5, 10, (0.2366, 0.7634)),  # R. Newcombe's and textbook values, to four digits
        (0.0, 10, (0.0, 0.2775)),
        (1.0, 10, (0.7225, 1.0)),
        (81 / 263, 263, (0.2553, 0.3662)),  # R. Newcombe, 1998, table I
        (15 / 148, 148, (0.0624, 0.1605)),
        (1 / 29, 29, (0.0061, 0.1718)),
    ],
)
def test_wilson_against_known_values(share, n, expected):
    assert wilson(share, n) == pytest.approx(expected, abs=6e-5)


@given(n=st.integers(1, 2000), data=st.data())
@settings(deadline=None, max_examples=50)
def test_wilson_holds_the_share_and_is_symmetric(n, data):
    share = data.draw(st.integers(0, n)) / n
    low, high = wilson(share, n)
    assert 0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1
    assert wilson(1 - share, n) == pytest.approx((1 - high, 1 - low), abs=1e-12)


def test_bootstrap_of_equal_values_is_that_value():
    assert bootstrap([0.3] * 20) == pytest.approx((0.3, 0.3))


def test_bootstrap_is_near_the_normal_interval_and_repeats():
    values = np.random.default_rng(1).random(400)
    half = 1.96 * values.std() / 20
    low, high = bootstrap(values)
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.15 * half)
    assert bootstrap(values) == (low, high)
    assert bootstrap(values, seed=1) != (low, high)


def test_bootstrap_of_two_values_by_hand():
    """A mean of 0, 1/2 or 1 with probabilities 1/4, 1/2, 1/4: both tails are beyond 2.5 %."""
    assert bootstrap([0.0, 1.0]) == (0.0, 1.0)


def test_the_summary_by_hand(evaluation):
    found = evaluation(scored(1.0), scored(0.75), scored(0.5), scored(0.2), INVALID)
    assert found.summary == pytest.approx(
        {"mean_iou": 0.49, "acc@0.5": 0.6, "acc@0.75": 0.4, "acc@0.95": 0.2, "valid_format": 0.8, "num_tasks": 5}
    )
    assert found.metrics == pytest.approx(
        {
            "eval/accuracy/mean": 0.6,
            "eval/accuracy/num_tasks": 5,
            "eval/mean_iou/mean": 0.49,
            "eval/heldout/acc@0.75": 0.4,
            "eval/heldout/acc@0.95": 0.2,
            "eval/heldout/valid_format": 0.8,
        }
    )
    assert found.intervals == {
        "mean_iou": bootstrap([1.0, 0.75, 0.5, 0.2, 0.0]),
        "acc@0.5": wilson(0.6, 5),
        "acc@0.75": wilson(0.4, 5),
        "acc@0.95": wilson(0.2, 5),
        "valid_format": wilson(0.8, 5),
    }


def test_a_verifiers_fault_counts_nowhere(evaluation, failed):
    with_fault = evaluation(scored(1.0), failed, INVALID)
    assert with_fault.summary == evaluation(scored(1.0), INVALID).summary
    assert with_fault.intervals == evaluation(scored(1.0), INVALID).intervals


def test_probes_are_the_first_tasks(evaluation):
    found = evaluation(scored(1.0), INVALID, scored(0.2)).probes(2)
    assert [probe["task_id"] for probe in found] == ["t0", "t1"]
    assert found[1]["question"] == "box thing 1"
    assert found[1]["text"] == "text t1"
    assert found[1]["truth"] == {"box": (0.2, 0.2, 0.6, 0.6)}
    assert found[1]["score"]["reason"] == "syntax"


class Counted:
    """A task set that notes what was asked of it."""

    name = "counted"

    def __init__(self, tasks):
        self.tasks, self.asked = tasks, []

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int):
        self.asked.append(index)
        return self.tasks[index]


@pytest.mark.parametrize(("num_tasks", "count"), [(5, 5), (100, 6)])
def test_the_first_tasks_are_answered_greedily_in_batches(policy, tasks, num_tasks, count):
    data = Counted(tasks)
    found = evaluate(policy, data, num_tasks=num_tasks, batch_size=2, max_new_tokens=4)
    assert data.asked == list(range(count))
    assert found.tasks == tuple(tasks[:count])
    assert [r.task_id for r in found.rollouts] == [task.id for task in tasks[:count]]
    assert {r.temperature for r in found.rollouts} == {0.0}
    assert len(found.scores) == count
    whole = evaluate(policy, data, num_tasks=num_tasks, batch_size=64, max_new_tokens=4)
    assert [r.tokens for r in whole.rollouts] == [r.tokens for r in found.rollouts]


def test_other_kinds_are_summed_up_by_value_and_by_what_is_correct(rollout):
    truth, message = parse_truth("counting", {"count": 3}), Message("user", "how many?")
    asked = tuple(Task(f"t{i}", "counting", (message,), truth) for i in range(5))
    failed = Score("error", float("nan"))
    scores = (Score("scored", 1.0, True), Score("scored", 0.5, False), Score("scored", 0.7, None), INVALID, failed)
    found = Evaluation(asked, tuple(rollout(task.id) for task in asked), scores)
    assert found.summary == {"mean_value": pytest.approx(0.55), "accuracy": 0.25, "valid_format": 0.75, "num_tasks": 4}
    assert found.intervals["accuracy"] == wilson(0.25, 4)
    assert found.metrics == {
        "eval/value/mean": pytest.approx(0.55),
        "eval/accuracy/mean": 0.25,
        "eval/accuracy/num_tasks": 4,
        "eval/heldout/valid_format": 0.75,
    }


def test_other_kinds_are_graded_by_the_rules_of_the_run(policy):
    tasks = load_tasks(FiguresData(type="figures", size_px=64, prompt="box", num_figures=2))
    rules = EvidenceRules(type="evidence", floor=-1.0)
    found = evaluate(policy, tasks, num_tasks=2, batch_size=2, max_new_tokens=2, rules=rules)
    assert [(score.status, score.value, score.verifier) for score in found.scores] == [
        ("invalid", -1.0, "evidence/1")
    ] * 2
    assert found.summary["mean_value"] == -1.0
