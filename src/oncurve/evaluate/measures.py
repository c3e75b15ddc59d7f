"""What graded answers say, in the measures of each kind's field. Every function here is pure.

A score of status `error` is the verifier's fault and is left out by the caller; an invalid answer counts as wrong.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from oncurve.evaluate.statistics import Measure, mean, pass_at_k, ratio, share
from oncurve.geometry.boxes import ROUNDING
from oncurve.geometry.dialects import Found
from oncurve.types import Rollout, Score, Task

IOU_THRESHOLDS = (0.5, 0.75, 0.95)
NUM_LENGTH_BINS = 4


class Graded(NamedTuple):
    """One answer and what its verifier said."""

    task: Task
    rollout: Rollout
    score: Score


Measures = dict[str, Measure]


def measures_of(graded: Sequence[Graded]) -> Measures:
    """The common ones; where all tasks are of one kind, that kind's own too. Nothing for no answers.

    `accuracy` (share correct, of the answers whose verifier says what is correct), `valid_format` (share that parses),
    `mean_value` (of the score); then those of `OWN`.
    """
    if not graded:
        return {}
    found = {"accuracy": share(judged)} if (judged := correct(graded)) else {}
    found["valid_format"] = share([one.score.status == "scored" for one in graded])
    found["mean_value"] = mean([one.score.value for one in graded])
    kinds = {one.task.kind for one in graded}
    return found | (OWN[kinds.pop()](graded) if len(kinds) == 1 and kinds <= OWN.keys() else {})


def by_kind(graded: Sequence[Graded]) -> dict[str, Measures]:
    """The measures of each kind that there is, in the order in which the kinds come."""
    kinds = dict.fromkeys(one.task.kind for one in graded)
    return {kind: measures_of([one for one in graded if one.task.kind == kind]) for kind in kinds}


def by_category(graded: Sequence[Graded]) -> dict[str, tuple[int, Measures]]:
    """Number of tasks and common measures of each category, the largest first; nothing where tasks have none, or one."""
    named: dict[str, list[Graded]] = {}
    for one in graded:
        named.setdefault(one.task.category or "(none)", []).append(one)
    if len(named) < 2:
        return {}
    ordered = sorted(named.items(), key=lambda item: (-len(item[1]), item[0]))
    return {name: (len(some), measures_of(some)) for name, some in ordered}


class LengthBin(NamedTuple):
    """Answers of `low` to `high` tokens, both included."""

    low: int
    high: int
    num: int
    accuracy: Measure


def by_length(graded: Sequence[Graded]) -> list[LengthBin]:
    """Accuracy over answers of similar length, in at most four bins of about equal size; equal lengths share a bin."""
    judged = [one for one in graded if one.score.correct is not None]
    if not judged:
        return []
    lengths = np.array([len(one.rollout.tokens) for one in judged])
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, NUM_LENGTH_BINS + 1)[1:], method="lower"))
    place = np.searchsorted(edges, lengths)
    hits = np.array(correct(judged))
    return [
        LengthBin(int(lengths[mine].min()), int(lengths[mine].max()), int(mine.sum()), share(hits[mine]))
        for mine in (place == i for i in range(len(edges)))
    ]


def correct(graded: Sequence[Graded]) -> list[bool]:
    return [one.score.correct for one in graded if one.score.correct is not None]


def ious(graded: Sequence[Graded]) -> np.ndarray:
    """IoU of each grounding answer with its truth; 0 where it does not parse."""
    return np.array([one.score.parts.get("iou", 0.0) for one in graded])


def _grounding(graded: Sequence[Graded]) -> Measures:
    """Acc@t counts an IoU of t as a hit; `acc>0.5` does not, as some papers have it."""
    overlaps = ious(graded)
    return {
        "mean_iou": mean(overlaps),
        **{f"acc@{t}": share(overlaps >= t - ROUNDING) for t in IOU_THRESHOLDS},
        "acc>0.5": share(overlaps > 0.5 + ROUNDING),
    }


def _detection(graded: Sequence[Graded]) -> Measures:
    """COCO's average precision has no interval here: it is one number over the whole set."""
    from oncurve.geometry.average_precision import average_precision

    answers = [
        [Found(tuple(thing["box"]), thing.get("label")) for thing in one.score.extracted or ()] for one in graded
    ]
    precision = average_precision(answers, [one.task.truth for one in graded])
    names = {"map": "coco_ap", "map_50": "coco_ap50", "map_75": "coco_ap75"}
    return {
        "mean_f1": mean([one.score.parts.get("f1", 0.0) for one in graded]),
        **{names[name]: Measure(value) for name, value in precision.items() if np.isfinite(value)},
    }


def _counting(graded: Sequence[Graded]) -> Measures:
    """The mean absolute error is over the answers that are a number."""
    off = [abs(one.score.extracted - one.task.truth.count) for one in graded if one.score.extracted is not None]
    return {"exact_match": share(correct(graded))} | ({"mae": mean(off)} if off else {})


def _ocr(graded: Sequence[Graded]) -> Measures:
    """Edits over the truths' lengths, of the whole set; an answer that does not parse was not read at all."""
    from rapidfuzz.distance import Levenshtein

    from oncurve.rewards.ocr import nfc

    read = [nfc(one.rollout.text) if one.score.status == "scored" else "" for one in graded]
    right = [nfc(one.task.truth.text) for one in graded]
    units: Mapping[str, Callable] = {"cer": list, "wer": str.split}
    return {
        name: ratio(
            [Levenshtein.distance(split(a), split(b)) for a, b in zip(read, right, strict=True)],
            [len(split(b)) for b in right],
        )
        for name, split in units.items()
    }


OWN: Mapping[str, Callable[[Sequence[Graded]], Measures]] = {
    "grounding": _grounding,
    "detection": _detection,
    "pointing": lambda graded: {"click_accuracy": share(correct(graded))},
    "counting": _counting,
    "ocr": _ocr,
    "short_answer": lambda graded: {"anls": mean([one.score.value for one in graded])},
    "sql": lambda graded: {"execution_accuracy": share(correct(graded))},
    "code": lambda graded: {"execution_accuracy": share(correct(graded))},
}
"""The measures that a kind has of its own."""


def sampled_measures(graded_T: Sequence[Sequence[Graded]]) -> Measures:
    """Of several answers to each task, intervals by a bootstrap over tasks; nothing where no verifier says what is correct.

    With K answers: `avg@K` the mean share that is correct; `pass@k` for k = 1, 2, 4 … K, unbiased; `maj@K` whether the
    answer that most of them give is correct. A task with fewer graded answers than k is no part of pass@k.
    """
    judged_T = [[one for one in some if one.score.correct is not None] for some in graded_T]
    judged_T = [some for some in judged_T if some]
    if not judged_T:
        return {}
    counts = [(len(some), sum(correct(some))) for some in judged_T]
    most = max(n for n, _ in counts)
    found = {f"avg@{most}": mean([c / n for n, c in counts])}
    for k in sorted({most} | {2**i for i in range(most.bit_length()) if 2**i <= most}):
        found[f"pass@{k}"] = mean([pass_at_k(n, c, k) for n, c in counts if n >= k])
    return found | {f"maj@{most}": mean([majority(some) for some in judged_T])}


def majority(graded: Sequence[Graded]) -> float:
    """Whether the answer given most often is correct; of answers tied for it, the share that is. 0 where none parses.

    Answers are the same where their extracted forms are; what does not parse has no vote (self-consistency, arXiv 2203.11171).
    """
    votes: dict[str, list[bool]] = {}
    for one in graded:
        if one.score.status == "scored":
            votes.setdefault(json.dumps(one.score.extracted, sort_keys=True), []).append(one.score.correct)
    most = max(map(len, votes.values()), default=0)
    return float(np.mean([np.mean(hits) for hits in votes.values() if len(hits) == most])) if votes else 0.0
