"""Points against boxes and discs, in 0..1 of the image."""

import math

from oncurve.geometry.boxes import ROUNDING
from oncurve.truths import Box, Point


def in_box(point: Point, box: Box) -> bool:
    """Edges belong to the box."""
    x, y = point
    return box[0] - ROUNDING <= x <= box[2] + ROUNDING and box[1] - ROUNDING <= y <= box[3] + ROUNDING


def in_disc(point: Point, middle: Point, radius: float) -> bool:
    """The edge belongs to the disc, which is round in unit coordinates."""
    return distance(point, middle) <= radius + ROUNDING


def distance(a: Point, b: Point) -> float:
    """Euclidean in unit coordinates, so that both sides of the image count 1: 0 to the square root of 2."""
    return math.dist(a, b)
