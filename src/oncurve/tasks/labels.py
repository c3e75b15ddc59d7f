"""Written answers for supervised training, as exact as the truth or less so."""

import random
from dataclasses import replace

from oncurve.errors import DataError
from oncurve.geometry.dialects import print_box01
from oncurve.tasks.figures import report
from oncurve.truths import BoxTruth, EvidenceTruth
from oncurve.types import Box, Task


def written(task: Task, looseness: float = 0.0) -> str:
    """What an annotator would answer, every box drawn loosely by up to `looseness` of its sides."""
    match task.truth:
        case BoxTruth(box):
            return print_box01(loosen(box, looseness, task.id))
        case EvidenceTruth(regions):
            drawn = [
                replace(region, region=loosen(region.region, looseness, f"{task.id}/{i}"))
                for i, region in enumerate(regions)
            ]
            return report(EvidenceTruth(tuple(drawn)), task.options.get("language", "en"))
        case _:
            raise DataError(
                f"task {task.id}: a task of kind {task.kind} has no written answer to learn from; supervised training takes "
                "grounding tasks and the built-in figures"
            )


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
