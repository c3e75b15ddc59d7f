"""The OCR verifier: one minus the edit distance relative to the longer text; character and word error rates."""

import unicodedata
from collections.abc import Sequence

from rapidfuzz.distance import Levenshtein

from oncurve.config.rewards import OcrRules
from oncurve.parsing import MalformedAnswer, not_empty
from oncurve.rewards.final import encodable
from oncurve.rewards.scores import invalid
from oncurve.truths import TextTruth
from oncurve.types import Rollout, Score, Task

VERIFIER = "ocr/1"
MAX_LENGTH_RATIO = 2  # of the answer to the truth
SPARE_CHARACTERS = 10  # on top, for short truths
SHOWN_CHARACTERS = 500


class Verifier:
    version = VERIFIER

    def check(self, task: Task, rules: OcrRules) -> None:
        """A text that says something is whole once it is made."""

    def grade(self, task: Task, answer: Rollout, rules: OcrRules) -> Score:
        return grade(task.truth, answer.text, rules)


def grade(truth: TextTruth, text: str, rules: OcrRules) -> Score:
    """`1 - distance / longer length`, both in NFC and without white space around; correct where nothing differs.

    An answer of more than twice the truth's length and ten characters gets 0: reading a page is not listing all that could stand
    there. Parts: `format`, `cer` (characters to change over the truth's length; of an answer that is too long, those too
    many).
    """
    try:
        read = nfc(encodable(not_empty(text)))
    except MalformedAnswer as fault:
        return invalid(fault, rules.floor, VERIFIER)
    right = nfc(truth.text)
    too_long = len(read) > MAX_LENGTH_RATIO * len(right) + SPARE_CHARACTERS
    distance = len(read) - len(right) if too_long else Levenshtein.distance(read, right)
    words = (
        f"{len(read)} characters read where the truth has {len(right)}"
        if too_long
        else f"{distance} of {len(right)} characters to change"
    )
    return Score(
        status="scored",
        value=0.0 if too_long else 1 - distance / max(len(read), len(right)),
        correct=distance == 0,
        parts={"format": 1.0, "cer": distance / len(right)},
        extracted=read[:SHOWN_CHARACTERS],
        evidence=f"{words}; CER {distance / len(right):.3f}",
        verifier=VERIFIER,
    )


def nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip()


def cer(pairs: Sequence[tuple[str, str]]) -> float:
    """Character error rate over (read, truth) pairs: all edits over all of the truths' characters."""
    return _rate([(nfc(read), nfc(truth)) for read, truth in pairs])


def wer(pairs: Sequence[tuple[str, str]]) -> float:
    """Word error rate over (read, truth) pairs: all edits of words over all of the truths' words."""
    return _rate([(nfc(read).split(), nfc(truth).split()) for read, truth in pairs])


def _rate(pairs: Sequence[tuple[Sequence, Sequence]]) -> float:
    edits = sum(Levenshtein.distance(read, truth) for read, truth in pairs)
    return edits / sum(len(truth) for _, truth in pairs)
