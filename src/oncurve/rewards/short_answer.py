"""The short answer verifier: average normalised Levenshtein similarity, ANLS (arXiv 1905.13648, equation 1)."""

import unicodedata

from rapidfuzz.distance import Levenshtein

from oncurve.config.rewards import ShortAnswerRules
from oncurve.parsing import MalformedAnswer, not_empty
from oncurve.rewards.final import encodable
from oncurve.rewards.scores import invalid
from oncurve.truths import AnswersTruth
from oncurve.types import Rollout, Score, Task

VERIFIER = "short_answer/1"
SHOWN_CHARACTERS = 500


class Verifier:
    version = VERIFIER

    def check(self, task: Task, rules: ShortAnswerRules) -> None:
        """Answers that say something are whole once they are made."""

    def grade(self, task: Task, answer: Rollout, rules: ShortAnswerRules) -> Score:
        return grade(task.truth, answer.text, rules)


def grade(truth: AnswersTruth, text: str, rules: ShortAnswerRules) -> Score:
    """The best ANLS over the truth's answers, 0 below `rules.threshold`. Parts: `format`, `anls`."""
    try:
        said = encodable(not_empty(text))
    except MalformedAnswer as fault:
        return invalid(fault, rules.floor, VERIFIER)
    best, nearest = max((anls(said, answer, rules.threshold), answer) for answer in truth.answers)
    correct = best > 0
    return Score(
        status="scored",
        value=best,
        correct=correct,
        parts={"format": 1.0, "anls": best},
        extracted=said[:SHOWN_CHARACTERS],
        evidence=f"ANLS {best:.2f}" + (f" with {nearest!r}" if best else ", near none of the answers"),
        verifier=VERIFIER,
    )


def anls(said: str, truth: str, threshold: float = 0.5) -> float:
    """1 less the edit distance over the longer length, both normalised first; 0 where that is below `threshold`."""
    return Levenshtein.normalized_similarity(normalised(said), normalised(truth), score_cutoff=threshold)


def normalised(text: str) -> str:
    """NFKC, case folded, white space as single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
