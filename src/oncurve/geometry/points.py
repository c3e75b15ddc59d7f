"""Points against boxes and discs, in 0..1 of the image."""

import math

from oncurve.truths import Box, Point


def in_box(point: Point, box: Box) -> bool:
    """Edges belong to the box."""
    return box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]


def distance(a: Point, b: Point) -> float:
    """Euclidean in unit coordinates, so that both sides of the image count 1: 0 to the square root of 2."""
    return math.dist(a, b)
