"""The pointing verifier: one point, inside the truth's box or disc or not. A pure function of (truth, text)."""

import math

from oncurve.config.rewards import PointingRules
from oncurve.geometry.boxes import center_of
from oncurve.geometry.dialects import parse_point
from oncurve.geometry.points import distance, in_box
from oncurve.parsing import MalformedAnswer
from oncurve.rewards.scores import invalid
from oncurve.truths import BoxTruth, DiscTruth
from oncurve.types import Rollout, Score, Task

VERIFIER = "pointing/1"


class Verifier:
    version = VERIFIER

    def check(self, task: Task, rules: PointingRules) -> None:
        """A box or disc truth is whole once it is made."""

    def grade(self, task: Task, answer: Rollout, rules: PointingRules) -> Score:
        return grade(task.truth, answer.text, rules)


def grade(truth: BoxTruth | DiscTruth, text: str, rules: PointingRules) -> Score:
    """Score one answer: 1 inside, edges included, and 0 outside; a text that is not exactly one point is `invalid`.

    `distance` is that to the middle of the box or disc, Euclidean in 0..1 of the image. With `rules.closeness` the value
    is the mean of inside and `1 - distance / sqrt(2)`, so that no point outside gets as much as one inside.
    """
    try:
        point = parse_point(text, rules.dialect)
    except MalformedAnswer as fault:
        return invalid(fault, rules.floor, VERIFIER)
    if isinstance(truth, BoxTruth):
        inside, away, what = in_box(point, truth.box), distance(point, center_of(truth.box)), "box"
    else:
        away, what = distance(point, truth.point), "disc"
        inside = away <= truth.radius
    closeness = 1 - away / math.sqrt(2)
    return Score(
        status="scored",
        value=(inside + closeness) / 2 if rules.closeness else float(inside),
        correct=inside,
        parts={"format": 1.0, "inside": float(inside), "distance": away},
        extracted=list(point),
        evidence=f"{'inside' if inside else 'outside'} the truth's {what}, {away:.2f} from its middle",
        verifier=VERIFIER,
    )
