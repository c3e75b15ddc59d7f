"""Evaluation: the summary by hand, whose rules grade, greedy and sampled answers in order."""

import pytest

from oncurve.config.rewards import ComposeRules, CountingRules, EvidenceRules, KindsRules, RewardPart, TextRules
from oncurve.config.schema import FiguresData
from oncurve.evaluate import Evaluation, evaluate, evaluate_sampled, grade
from oncurve.evaluate.statistics import bootstrap, wilson
from oncurve.rewards.answers import text_answer
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


def test_the_summary_by_hand(evaluation):
    found = evaluation(scored(1.0), scored(0.75), scored(0.5), scored(0.2), INVALID)
    shares = {"acc@0.5": 0.6, "acc@0.75": 0.4, "acc@0.95": 0.2, "acc>0.5": 0.4}
    value = (1 + 0.75**2 + 0.5**2 + 0.2**2) / 5
    common = {"accuracy": 0.6, "valid_format": 0.8, "mean_value": value}
    assert found.summary == pytest.approx({**common, "mean_iou": 0.49, **shares, "num_tasks": 5})
    assert found.metrics == pytest.approx(
        {
            "eval/accuracy/mean": 0.6,
            "eval/accuracy/num_tasks": 5,
            "eval/mean_iou/mean": 0.49,
            "eval/value/mean": value,
            "eval/heldout/valid_format": 0.8,
            **{f"eval/heldout/{name}": at for name, at in shares.items()},
        }
    )
    assert found.intervals["mean_iou"] == bootstrap([1.0, 0.75, 0.5, 0.2, 0.0])
    assert found.intervals["acc@0.75"] == wilson(0.4, 5)
    assert found.intervals.keys() == found.summary.keys() - {"num_tasks"}


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
    accuracy = 1 / 3  # of the three answers that the verifier calls right or wrong
    assert found.summary["mean_value"] == pytest.approx(0.55)
    assert (found.summary["accuracy"], found.summary["num_tasks"]) == (pytest.approx(accuracy), 4)
    assert found.intervals["accuracy"] == pytest.approx(wilson(accuracy, 3))
    assert found.metrics == {
        "eval/value/mean": pytest.approx(0.55),
        "eval/accuracy/mean": pytest.approx(accuracy),
        "eval/heldout/exact_match": pytest.approx(accuracy),
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


def counted(rules, *answers: str):
    message, truth = Message("user", "how many?"), parse_truth("counting", {"count": 3})
    tasks = [Task(f"t{i}", "counting", (message,), truth) for i in range(len(answers))]
    return grade([(task, text_answer(task, text)) for task, text in zip(tasks, answers, strict=True)], rules)


def test_the_rules_of_the_kind_grade_wherever_they_stand_in_the_reward():
    tag = CountingRules(type="counting", format="tag")
    text = RewardPart(name="length", rules=TextRules(type="text"), clamp=(0.0, 1.0), weight=5.0)
    composed = ComposeRules(type="compose", parts=(text, RewardPart(name="count", rules=tag)))
    for rules in (tag, KindsRules(type="kinds", counting=tag), composed):
        right, wrong, plain = counted(rules, "<answer>3</answer>", "<answer>4</answer>", "3")
        assert [(s.status, s.value, s.correct) for s in (right, wrong)] == [
            ("scored", 1.0, True),
            ("scored", 0.0, False),
        ]
        assert (plain.status, plain.verifier) == ("invalid", "counting/1")
    for rules in (None, TextRules(type="text")):  # no rules of the kind: its defaults
        assert [score.correct for score in counted(rules, "3", "<answer>3</answer>")] == [True, False]


def test_a_text_task_has_nothing_but_the_reward(tmp_path, monkeypatch):
    (tmp_path / "half.py").write_text("def half(task, text):\n    return 0.5\n")
    monkeypatch.chdir(tmp_path)
    from oncurve.config.rewards import PythonRules

    text = Task("a", "text", (Message("user", "say hi"),), parse_truth("text", {}))
    count = Task("b", "counting", (Message("user", "how many?"),), parse_truth("counting", {"count": 3}))
    pairs = [(text, text_answer(text, "hi")), (count, text_answer(count, "3")), (text, text_answer(text, "ho"))]
    scores = grade(pairs, PythonRules(type="python", function="half.py:half", workers=1))
    assert [(score.value, score.verifier.split("/")[0]) for score in scores][1] == (1.0, "counting")
    assert [scores[0].value, scores[2].value] == [0.5, 0.5]


def test_several_kinds_are_named_apart(rollout):
    message = Message("user", "?")
    count = Task("a", "counting", (message,), parse_truth("counting", {"count": 3}))
    choice = Task("b", "choice", (message,), parse_truth("choice", {"choice": "B"}))
    rollouts = (text_answer(count, "5"), text_answer(choice, "B"))
    found = Evaluation((count, choice), rollouts, tuple(grade([(count, rollouts[0]), (choice, rollouts[1])]))).metrics
    assert (found["eval/accuracy/mean"], found["eval/counting/mae"], found["eval/choice/accuracy"]) == (0.5, 2.0, 1.0)
    assert "eval/heldout/mae" not in found


def test_sampled_answers_are_drawn_apart_and_repeat(policy, tasks):
    settings = {"num_tasks": 3, "num_samples": 4, "temperature": 1.0, "max_new_tokens": 4}
    found = evaluate_sampled(policy, Counted(tasks), batch_size=4, **settings)
    assert [len(some) for some in found.rollouts_T] == [4, 4, 4]
    assert [len(some) for some in found.scores_T] == [4, 4, 4]
    assert {r.temperature for some in found.rollouts_T for r in some} == {1.0}
    assert len({r.tokens for r in found.rollouts_T[0]}) > 1
    again = evaluate_sampled(policy, Counted(tasks), batch_size=64, **settings)
    assert [[r.tokens for r in some] for some in again.rollouts_T] == [
        [r.tokens for r in some] for some in found.rollouts_T
    ]
