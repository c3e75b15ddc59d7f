"""Similarities of two boxes `x1, y1, x2, y2`, all in one space with x2 > x1 and y2 > y1. Plain float64."""

import math
from collections.abc import Callable

from oncurve.truths import Box


def is_valid(box: Box) -> bool:
    """Finite, inside 0..1, corners in order, with an area."""
    x1, y1, x2, y2 = box
    return all(math.isfinite(corner) for corner in box) and 0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1


def area(box: Box) -> float:
    x1, y1, x2, y2 = box
    return (x2 - x1) * (y2 - y1)


def intersection_and_union(a: Box, b: Box) -> tuple[float, float]:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    intersection = max(0.0, width) * max(0.0, height)
    return intersection, area(a) + area(b) - intersection


def iou(a: Box, b: Box) -> float:
    """Intersection over union, 0..1."""
    intersection, union = intersection_and_union(a, b)
    return intersection / union


def giou(a: Box, b: Box) -> float:
    """IoU less the share of the enclosing box that neither covers, -1..1 (arXiv 1902.09630, algorithm 1)."""
    intersection, union = intersection_and_union(a, b)
    hull = area(_hull(a, b))
    return intersection / union - (hull - union) / hull


def diou(a: Box, b: Box) -> float:
    """IoU less the squared distance of the centres over the hull's squared diagonal, -1..1 (arXiv 1911.08287, eq. 7)."""
    hull = _hull(a, b)
    (ax, ay), (bx, by) = _center(a), _center(b)
    diagonal = (hull[2] - hull[0]) ** 2 + (hull[3] - hull[1]) ** 2
    return iou(a, b) - ((ax - bx) ** 2 + (ay - by) ** 2) / diagonal


def ciou(a: Box, b: Box) -> float:
    """DIoU less a term for unlike aspect ratios (arXiv 1911.08287, eq. 8 to 11). Not bounded below by -1."""
    overlap = iou(a, b)
    unlike = 4 / math.pi**2 * (_aspect(b) - _aspect(a)) ** 2
    weight = unlike / (1 - overlap + unlike) if unlike else 0.0
    return diou(a, b) - weight * unlike


SIMILARITIES: dict[str, Callable[[Box, Box], float]] = {
    "iou": iou,
    "giou": lambda a, b: (giou(a, b) + 1) / 2,
    "diou": lambda a, b: (diou(a, b) + 1) / 2,
    "ciou": lambda a, b: min(1.0, max(0.0, ciou(a, b))),
}
"""Each similarity brought to 0..1 before a power is taken, since the square of a negative one would reward disjoint boxes.

A box that overlaps by a sliver can still score below a disjoint one under `giou` and `diou`: that is how they are defined.
"""


def _hull(a: Box, b: Box) -> Box:
    return min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])


def _center(box: Box) -> tuple[float, float]:
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


def _aspect(box: Box) -> float:
    return math.atan((box[2] - box[0]) / (box[3] - box[1]))
