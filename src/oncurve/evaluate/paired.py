"""Two models on the same tasks: which one is better, how sure that is, and which tasks changed sides."""

from dataclasses import dataclass

from oncurve.errors import DataError
from oncurve.evaluate import Evaluation
from oncurve.evaluate.measures import Graded, ious
from oncurve.evaluate.statistics import Difference, paired_difference
from oncurve.truths import truth_json


@dataclass(frozen=True, slots=True)
class Changed:
    """A task that one of the two got right and the other did not."""

    a: Graded
    b: Graded

    def row(self) -> dict:
        task = self.a.task
        return {
            "id": task.id,
            "kind": task.kind,
            "question": task.messages[-1].text,
            "truth": truth_json(task.truth),
            "a": self.a.rollout.text,
            "b": self.b.rollout.text,
            "a_value": self.a.score.value,
            "b_value": self.b.score.value,
        }


@dataclass(frozen=True, slots=True)
class Paired:
    """By metric what B has over A; `gained` are the tasks that B alone got right, `lost` those that A alone did."""

    num_tasks: int
    differences: dict[str, Difference]
    gained: tuple[Changed, ...]
    lost: tuple[Changed, ...]


def paired(a: Evaluation, b: Evaluation) -> Paired:
    """Compare two evaluations of the same tasks, over those that both verifiers could grade.

    `accuracy` is over the tasks whose verifier says what is correct, `mean_iou` there where all tasks ask for one box.
    Raises `DataError` where the tasks differ or none was graded twice.
    """
    if [task.id for task in a.tasks] != [task.id for task in b.tasks]:
        raise DataError("the two evaluations are of different tasks, so their answers can't be paired")
    pairs = [
        (x, y)
        for x, y in zip(
            map(Graded, a.tasks, a.rollouts, a.scores), map(Graded, b.tasks, b.rollouts, b.scores), strict=True
        )
        if "error" not in (x.score.status, y.score.status)
    ]
    if not pairs:
        raise DataError("no task was graded for both: the verifier failed on every answer")
    judged = [(x, y) for x, y in pairs if None not in (x.score.correct, y.score.correct)]
    found = {}
    if judged:
        found["accuracy"] = paired_difference(
            *([one.score.correct for one in side] for side in zip(*judged, strict=True))
        )
    found["mean_value"] = paired_difference(*([one.score.value for one in side] for side in zip(*pairs, strict=True)))
    if a.boxed:
        found["mean_iou"] = paired_difference(*(ious(side) for side in zip(*pairs, strict=True)))
    changed = [Changed(x, y) for x, y in judged if x.score.correct != y.score.correct]
    return Paired(
        len(pairs),
        found,
        tuple(one for one in changed if one.b.score.correct),
        tuple(one for one in changed if one.a.score.correct),
    )
