"""The grounding verifier: the format is a gate, then the box is graded. A pure function of (truth, text)."""

from oncurve.config.rewards import BoxRules, GroundingRules
from oncurve.errors import BrokenTruth
from oncurve.geometry.boxes import SIMILARITIES, iou
from oncurve.geometry.dialects import parse_box
from oncurve.geometry.spaces import Size
from oncurve.geometry.written import BOX_DIALECTS
from oncurve.parsing import MalformedAnswer
from oncurve.rewards.scores import invalid
from oncurve.truths import BoxTruth
from oncurve.types import Rollout, Score, Task

VERIFIER = "grounding/1"
CORRECT_IOU = 0.5


class Verifier:
    version = VERIFIER

    def check(self, task: Task, rules: GroundingRules) -> None:
        """A box truth is whole once it is made; what a dialect in the model's pixels needs is `check_model_size`."""
        check_model_size(task, rules)

    def grade(self, task: Task, answer: Rollout, rules: GroundingRules) -> Score:
        return grade(task.truth, answer.text, rules, model_size_of(answer, rules))


def grade(truth: BoxTruth, text: str, rules: GroundingRules, model_size: Size | None = None) -> Score:
    """Score one answer.

    A text that is not exactly one box in the declared dialect is `invalid` and gets `rules.floor`; nothing is searched
    for inside a longer text. A box gets `similarity ** power` (or 1 and 0 around `threshold`) plus `format_bonus`. Parts:
    `format` (0 or 1), `iou`, and `similarity` as graded. `model_size` is the image's in the dialect's pixels.
    """
    try:
        box = parse_box(text, rules.dialect, model_size)
    except MalformedAnswer as fault:
        return invalid(fault, rules.floor, VERIFIER)
    overlap = iou(box, truth.box)
    similarity = overlap if rules.similarity == "iou" else SIMILARITIES[rules.similarity](box, truth.box)
    graded = similarity**rules.power if rules.threshold is None else float(similarity >= rules.threshold)
    return Score(
        "scored",
        graded + rules.format_bonus,
        overlap >= CORRECT_IOU,
        {"format": 1.0, "iou": overlap, "similarity": graded},
        list(box),
        f"IoU {overlap:.2f} with the truth",
        "",
        VERIFIER,
    )


def check_model_size(task: Task, rules: BoxRules) -> None:
    """Raises `BrokenTruth` where the dialect counts pixels of the image as the model sees it and no one says how many.

    A task with an image needs nothing: the sampler says with every answer what its model saw.
    """
    if BOX_DIALECTS[rules.dialect].space == "pixel_model" and not rules.model_size and not task.images:
        raise _unknown_size(rules)


def model_size_of(answer: Rollout, rules: BoxRules) -> Size | None:
    """Width and height of the first image in the dialect's pixels; None where the dialect does not count them."""
    if BOX_DIALECTS[rules.dialect].space != "pixel_model":
        return None
    if rules.model_size:
        return rules.model_size
    if answer.model_image_sizes:
        return answer.model_image_sizes[0]
    raise _unknown_size(rules)


def _unknown_size(rules: BoxRules) -> BrokenTruth:
    return BrokenTruth(
        f"dialect {rules.dialect} counts pixels of the image as the model saw it, and its size is not known; "
        "set options.model_size = [width, height]"
    )
