"""Canaries: answers whose verdict is known, graded again at every step, so that a verifier that changes is seen."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from oncurve.config.rewards import KIND_RULES, KindRules, RewardConfig
from oncurve.rewards.audit.run import answer, by_kind, rules_of, spellings
from oncurve.rewards.audit.written import right_answer, wrong_answers
from oncurve.rewards.kinds import rules_for
from oncurve.types import Grader, Score, Task, TaskSet

Row = Mapping[str, Any]


class Canaries:
    """The truth and a plainly wrong answer of the first task of each kind, graded at the start and at every step.

    `first` has a row for each, plain JSON: `task_id`, `answer`, `status`, `correct`, `value`. A run that goes on takes it
    over. Raises what `grader.grade` raises.
    """

    def __init__(self, grader: Grader, reward: RewardConfig, tasks: TaskSet, first: Sequence[Row] | None = None):
        self._grader = grader
        sole = reward.type if isinstance(reward, KindRules) else None
        known = {task.id: task for (task,) in by_kind(tasks, 1, sole).values()}
        if first is None:
            texts = [(task, text) for task in known.values() for text in _texts(grader, reward, task)]
        else:
            first = [row for row in first if row["task_id"] in known]
            texts = [(known[row["task_id"]], row["answer"]) for row in first]
        self._pairs = [(task, answer(task, text)) for task, text in texts]
        self.first = self._graded() if first is None else first

    def flipped(self) -> list[dict[str, Any]]:
        """Grade them again: the rows of those whose verdict is another than at first, which is `then`.

        A verdict is `right`, `wrong` or `invalid`; an error is none. Where the verifier does not say what is correct, right
        is what gets at least the mean of what the task's canaries got at first.
        """
        found = []
        for then, now in zip(self.first, self._graded(), strict=True):
            if "error" in (then["status"], now["status"]):
                continue
            own = [row for row in self.first if row["task_id"] == then["task_id"] and row["status"] != "error"]
            mean = fmean(row["value"] for row in own)
            before, after = _verdict(then, mean), _verdict(now, mean)
            if before != after:
                found.append({**now, "verdict": after, "then": before})
        return found

    def _graded(self) -> list[dict[str, Any]]:
        return [
            {"task_id": task.id, "answer": said.text, "status": s.status, "correct": s.correct, "value": s.value}
            for (task, said), s in zip(self._pairs, self._grader.grade(self._pairs), strict=True)
        ]


def _verdict(row: Row, mean: float) -> str:
    if row["status"] == "invalid":
        return "invalid"
    right = row["value"] >= mean if row["correct"] is None else row["correct"]
    return "right" if right else "wrong"


def _texts(grader: Grader, reward: RewardConfig, task: Task) -> tuple[str, ...]:
    """A right and a wrong answer; to a function of the user's own in the spelling that it pays most."""
    base = rules_of(reward, task.kind)
    rules = rules_for(task, base or KIND_RULES[task.kind](type=task.kind))
    if base is None:
        rules = max(spellings(rules), key=lambda some: _pays(grader, task, right_answer(task, some)))
    return right_answer(task, rules), *wrong_answers(task, rules)[:1]


def _pays(grader: Grader, task: Task, text: str) -> float:
    score: Score = grader.grade([(task, answer(task, text))])[0]
    return score.value if score.status == "scored" else float("-inf")
