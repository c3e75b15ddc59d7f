"""Labels for supervised training that are less exact than the truth."""

import random

from oncurve.types import Box


def loosen(box: Box, looseness: float, key: str) -> Box:
    """`box` (0..1) as a quick annotator draws it: around the thing, with room to spare.

    Each side moves outwards by a share of the box's own width or height, uniform in 0..`looseness`, and stops at the
    picture's edge. The same `key` gives the same label.
    """
    rng = random.Random(key)
    x1, y1, x2, y2 = box
    left, top, right, bottom = (rng.uniform(0, looseness) for _ in range(4))
    width, height = x2 - x1, y2 - y1
    return (
        max(0.0, x1 - left * width),
        max(0.0, y1 - top * height),
        min(1.0, x2 + right * width),
        min(1.0, y2 + bottom * height),
    )
