"""The counting verifier: one whole number, or one point an object."""

import re

from oncurve.config.rewards import CountingRules
from oncurve.parsing import MAX_NUMBER_CHARACTERS, NUMBER, MalformedAnswer
from oncurve.rewards.final import final_answer
from oncurve.rewards.scores import invalid
from oncurve.truths import CountTruth
from oncurve.types import Rollout, Score, Task

VERIFIER = "counting/1"
_COUNT = re.compile(rf"[0-9]{{1,{MAX_NUMBER_CHARACTERS}}}")
_POINT = re.compile(rf"\s*<point>({NUMBER},{NUMBER})</point>\s*")
MAX_POINTS = 10_000


class Verifier:
    version = VERIFIER

    def check(self, task: Task, rules: CountingRules) -> None:
        """A count is whole once it is made."""

    def grade(self, task: Task, answer: Rollout, rules: CountingRules) -> Score:
        return grade(task.truth, answer.text, rules)


def grade(truth: CountTruth, text: str, rules: CountingRules) -> Score:
    """1 within `rules.band` of the truth, 0 beyond; `correct` where equal. Parts: `format`, `difference` (absolute)."""
    try:
        final = final_answer(text, "plain" if rules.format == "points" else rules.format)
        count = points(final.inner) if rules.format == "points" else whole_number(final.inner)
    except MalformedAnswer as fault:
        return invalid(fault, rules.floor, VERIFIER)
    difference = abs(count - truth.count)
    return Score(
        status="scored",
        value=float(difference <= rules.band),
        correct=difference == 0,
        parts={"format": float(final.reasoned), "difference": float(difference)},
        extracted=count,
        evidence=f"counted {count}, {difference} off the truth" if difference else f"counted {count}, as the truth",
        verifier=VERIFIER,
    )


def whole_number(text: str) -> int:
    """Digits alone, at most 20. Raises with reason `number` or, for several numbers, `multi_answer`."""
    if _COUNT.fullmatch(text):
        return int(text)
    if len(re.findall(r"[0-9]+", text[:1000])) > 1 and re.search(r"[\s,;/]|or", text[:1000]):
        raise MalformedAnswer("multi_answer", f"{text[:40]!r} is more than one number")
    raise MalformedAnswer("number", f"{text[:40]!r} is no count: digits alone, at most {MAX_NUMBER_CHARACTERS}")


def points(text: str) -> int:
    """How many `<point>x,y</point>` the text is, all different; `none` is 0.

    Raises with reason `syntax`, `duplicate_point` or `too_many`.
    """
    if text == "none":
        return 0
    found, at = [], 0
    while at < len(text):
        if not (point := _POINT.match(text, at)):
            raise MalformedAnswer("syntax", f"not <point>x,y</point> for each thing, or none: {text[at : at + 40]!r}")
        found.append(tuple(map(float, point[1].split(","))))
        at = point.end()
        if len(found) > MAX_POINTS:
            raise MalformedAnswer("too_many", f"more than {MAX_POINTS} points")
    if len(set(found)) < len(found):
        raise MalformedAnswer("duplicate_point", "a point stands there twice")
    return len(found)
