"""The grounding verifier: the format is a gate, then the box is graded. A pure function of (truth, text)."""

from oncurve.config.rewards import GroundingRules
from oncurve.geometry.boxes import SIMILARITIES, iou
from oncurve.geometry.dialects import parse_box01
from oncurve.parsing import MalformedAnswer
from oncurve.rewards.scores import invalid
from oncurve.truths import BoxTruth
from oncurve.types import Rollout, Score, Task

VERIFIER = "grounding/1"
CORRECT_IOU = 0.5


class Verifier:
    version = VERIFIER

    def check(self, task: Task, rules: GroundingRules) -> None:
        """A box truth is whole once it is made."""

    def grade(self, task: Task, answer: Rollout, rules: GroundingRules) -> Score:
        return grade(task.truth, answer.text, rules)


def grade(truth: BoxTruth, text: str, rules: GroundingRules) -> Score:
    """Score one answer.

    A text that is not exactly one box in the declared dialect is `invalid` and gets `rules.floor`; nothing is searched
    for inside a longer text. A box gets `similarity ** power` (or 1 and 0 around `threshold`) plus `format_bonus`. Parts:
    `format` (0 or 1), `iou`, and `similarity` as graded.
    """
    try:
        box = parse_box01(text)
    except MalformedAnswer as fault:
        return invalid(fault, rules.floor, VERIFIER)
    overlap = iou(box, truth.box)
    similarity = SIMILARITIES[rules.similarity](box, truth.box)
    graded = similarity**rules.power if rules.threshold is None else float(similarity >= rules.threshold)
    return Score(
        status="scored",
        value=graded + rules.format_bonus,
        correct=overlap >= CORRECT_IOU,
        parts={"format": 1.0, "iou": overlap, "similarity": graded},
        extracted=list(box),
        evidence=f"IoU {overlap:.2f} with the truth",
        verifier=VERIFIER,
    )
