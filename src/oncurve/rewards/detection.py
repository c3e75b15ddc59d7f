"""The detection verifier: all boxes of what is asked for, matched with the truth's one to one."""

import numpy as np

from oncurve.config.rewards import DetectionRules
from oncurve.errors import BrokenTruth
from oncurve.geometry.dialects import MAX_BOXES, Found, carries, parse_boxes, same_label
from oncurve.geometry.matching import match
from oncurve.geometry.spaces import Size
from oncurve.parsing import MalformedAnswer
from oncurve.rewards.grounding import check_model_size, model_size_of
from oncurve.rewards.scores import invalid
from oncurve.truths import BoxesTruth
from oncurve.types import Rollout, Score, Task

VERIFIER = "detection/1"
NUM_SHOWN = 3  # matches in the evidence


class Verifier:
    version = VERIFIER

    def check(self, task: Task, rules: DetectionRules) -> None:
        """Raises `BrokenTruth` for labels that the dialect can't carry, and for more boxes than an answer may have."""
        check_model_size(task, rules)
        truth: BoxesTruth = task.truth
        if len(truth.boxes) > MAX_BOXES:
            raise BrokenTruth(f"truth.boxes: {len(truth.boxes)} boxes; an answer may have {MAX_BOXES}")
        if lost := [label for label in truth.labels or () if not carries(rules.dialect, label)]:
            raise BrokenTruth(
                f"truth.labels: no answer in dialect {rules.dialect} can say {lost[0]!r}; leave the labels out or set "
                'options.dialect to one that carries them, such as "qwen3_vl"'
            )

    def grade(self, task: Task, answer: Rollout, rules: DetectionRules) -> Score:
        return grade(task.truth, answer.text, rules, model_size_of(answer, rules))


def grade(truth: BoxesTruth, text: str, rules: DetectionRules, model_size: Size | None = None) -> Score:
    """Score one answer: F1 of the matches times their mean IoU; 1 where answer and truth both have no box.

    Matches are the one-to-one pairs of an IoU of `match_iou` or more, and of the same label where the truth has labels,
    whose IoUs add up to the most. With n boxes, m truths and k matches F1 is 2 k / (n + m). A text that is not in the
    declared dialect is `invalid`.
    """
    try:
        found = parse_boxes(text, rules.dialect, model_size)
    except MalformedAnswer as fault:
        return invalid(fault, rules.floor, VERIFIER)
    boxes = [box for box, _ in found]
    pairs = match(boxes, truth.boxes, rules.match_iou, _same_labels(found, truth.labels) if truth.labels else None)
    n, m, k = len(boxes), len(truth.boxes), len(pairs)
    if n == m == 0:
        f1 = precision = recall = mean_iou = 1.0
    else:
        f1, precision, recall = 2 * k / (n + m), k / max(n, 1), k / max(m, 1)
        mean_iou = sum(overlap for _, _, overlap in pairs) / max(k, 1)
    return Score(
        status="scored",
        value=f1 * mean_iou,
        correct=f1 == 1,
        parts={"format": 1.0, "f1": f1, "precision": precision, "recall": recall, "mean_iou": mean_iou},
        extracted=[{"box": list(box)} | ({"label": label} if label else {}) for box, label in found],
        evidence=_evidence(pairs, extra=n - k, missed=m - k),
        verifier=VERIFIER,
    )


def _same_labels(found: list[Found], labels: tuple[str, ...]) -> np.ndarray:
    """Which box (rows) may match which truth (columns)."""
    said = np.array([same_label(label or "") for _, label in found], dtype=object)
    return said[:, None] == np.array([same_label(label) for label in labels], dtype=object)


def _evidence(pairs: list[tuple[int, int, float]], *, extra: int, missed: int) -> str:
    """Example: `IoU 0.41 with truth 2; 1 extra box`; truths are counted from 1."""
    words = [f"IoU {overlap:.2f} with truth {truth + 1}" for _, truth, overlap in pairs[:NUM_SHOWN]]
    if len(pairs) > NUM_SHOWN:
        words.append(f"{len(pairs) - NUM_SHOWN} more matched")
    words += [f"{missed} missed"] if missed else []
    words += [f"{extra} extra box{'es' if extra > 1 else ''}"] if extra else []
    return "; ".join(words) or "no box, and there is none"
