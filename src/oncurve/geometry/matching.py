"""One-to-one matching of two sets of boxes."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from oncurve.truths import Box


def iou_matrix(boxes: Sequence[Box], others: Sequence[Box]) -> np.ndarray:
    """The IoU of each of n boxes with each of m others, (n, m)."""
    a, b = np.array(boxes, float).reshape(-1, 1, 4), np.array(others, float).reshape(1, -1, 4)
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    intersection = np.maximum(sides, 0).prod(-1)
    return intersection / ((a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - intersection)


def match(
    boxes: Sequence[Box], truths: Sequence[Box], least_iou: float, allowed: np.ndarray | None = None
) -> list[tuple[int, int, float]]:
    """The one-to-one pairs (box, truth, IoU), in order of the boxes, whose IoUs add up to the most.

    A pair needs an IoU of `least_iou` (above 0) or more and, where `allowed` (n, m) is given, its leave. Found by
    SciPy's `linear_sum_assignment`.
    """
    if not boxes or not truths:
        return []
    ious = iou_matrix(boxes, truths)
    ious[ious < least_iou] = 0
    if allowed is not None:
        ious[~allowed] = 0
    rows, columns = linear_sum_assignment(ious, maximize=True)
    pairs = zip(rows.tolist(), columns.tolist(), ious[rows, columns].tolist(), strict=True)
    return [(row, column, overlap) for row, column, overlap in pairs if overlap > 0]
