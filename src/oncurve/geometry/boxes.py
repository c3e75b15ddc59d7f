"""Similarities of two boxes `x1, y1, x2, y2`, all in one space with x2 > x1 and y2 > y1. Plain float64."""

import math
from collections.abc import Callable

from oncurve.truths import Box, Point


def is_valid(box: Box) -> bool:
    """Finite, inside 0..1, corners in order, with an area."""
    x1, y1, x2, y2 = box
    return all(math.isfinite(corner) for corner in box) and 0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1


def area(box: Box) -> float:
    x1, y1, x2, y2 = box
    return (x2 - x1) * (y2 - y1)


def intersection_and_union(a: Box, b: Box) -> tuple[float, float]:
    ax1, ay1, ax2, ay2 = a
    bx1, by1, bx2, by2 = b
    width = (ax2 if ax2 < bx2 else bx2) - (ax1 if ax1 > bx1 else bx1)
    height = (ay2 if ay2 < by2 else by2) - (ay1 if ay1 > by1 else by1)
    intersection = width * height if width > 0 and height > 0 else 0.0
    return intersection, (ax2 - ax1) * (ay2 - ay1) + (bx2 - bx1) * (by2 - by1) - intersection


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
    (ax, ay), (bx, by) = center_of(a), center_of(b)
    diagonal = (hull[2] - hull[0]) ** 2 + (hull[3] - hull[1]) ** 2
    return iou(a, b) - ((ax - bx) ** 2 + (ay - by) ** 2) / diagonal


def ciou(a: Box, b: Box) -> float:
    """DIoU less a term for unlike aspect ratios (arXiv 1911.08287, eq. 8 to 11). Not bounded below by -1."""
    overlap = iou(a, b)
    unlike = 4 / math.pi**2 * (_aspect(b) - _aspect(a)) ** 2
    weight = unlike / (1 - overlap + unlike) if unlike else 0.0
    return diou(a, b) - weight * unlike


def rewarded_giou(box: Box, truth: Box) -> float:
    """GIoU in 0..1: (s + 1) / 2 where the boxes overlap, and the truth's area times that where they don't.

    Both boxes lie in the unit square, so the hull's area is at most 1, and s > area(truth) - 1 for every overlapping
    box, while s <= 0 for every disjoint one: no disjoint box gets as much as any overlapping one.
    """
    mapped = (giou(box, truth) + 1) / 2
    return mapped if _overlap(box, truth) else area(truth) * mapped


def rewarded_diou(box: Box, truth: Box) -> float:
    """DIoU in 0..1: (s + 1) / 2 where the boxes overlap, and 3 / 4 of that where they don't.

    On each axis the centres of overlapping intervals are at most half the hull apart, so s > -1/4 for every overlapping
    box, while s < 0 for every disjoint one: no disjoint box gets as much as any overlapping one.
    """
    mapped = (diou(box, truth) + 1) / 2
    return mapped if _overlap(box, truth) else 0.75 * mapped


SIMILARITIES: dict[str, Callable[[Box, Box], float]] = {
    "iou": iou,
    "giou": rewarded_giou,
    "diou": rewarded_diou,
    "ciou": lambda box, truth: min(1.0, max(0.0, ciou(box, truth))),
}
"""Each similarity of a box to a truth, in 0..1 before a power is taken: the square of a negative one would pay misses."""


def _overlap(a: Box, b: Box) -> bool:
    return intersection_and_union(a, b)[0] > 0


def _hull(a: Box, b: Box) -> Box:
    return min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])


def center_of(box: Box) -> Point:
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


def _aspect(box: Box) -> float:
    return math.atan((box[2] - box[0]) / (box[3] - box[1]))
