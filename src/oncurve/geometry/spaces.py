"""The spaces and orders that boxes are written in, both ways. Oncurve's own is `unit` and `xyxy`."""

from typing import Literal

from oncurve.truths import Box, Point

Space = Literal["unit", "thousand", "percent", "pixel_original", "pixel_model", "loc1024", "bin1000"]
Order = Literal["xyxy", "xywh", "cxcywh", "yxyx", "xy"]  # xy: of a point
Size = tuple[int, int]
Numbers = tuple[float, float, float, float]

SIDES = {"unit": 1, "thousand": 1000, "percent": 100, "loc1024": 1024, "bin1000": 1000}
"""What the image's side counts in each space that does not depend on its size; in the pixel spaces it is the size."""
LAST_BINS = {"loc1024": 1023, "bin1000": 999}


def to_unit(numbers: Numbers, space: Space, order: Order, size: Size = (1, 1)) -> Box:
    """Four numbers in a declared space and order as a box in 0..1 of an image of `size` (width, height) in pixels.

    `size` is that of the file for `pixel_original`, that of the resized image for `pixel_model`, and not looked at
    elsewhere. A bin of `bin1000` stands for its middle, one of `loc1024` for its lower edge. The result is not checked:
    see `oncurve.geometry.boxes.is_valid`.
    """
    a, b, c, d = numbers
    if order == "xywh":
        a, b, c, d = a, b, a + c, b + d
    elif order == "cxcywh":
        a, b, c, d = a - c / 2, b - d / 2, a + c / 2, b + d / 2
    elif order == "yxyx":
        a, b, c, d = b, a, d, c
    return *point_to_unit((a, b), space, size), *point_to_unit((c, d), space, size)


def point_to_unit(point: Point, space: Space, size: Size = (1, 1)) -> Point:
    """`to_unit` of a point x, y."""
    x, y = point
    if space == "bin1000":
        return (x + 0.5) / 1000, (y + 0.5) / 1000
    width, height = _sides(space, size)
    return x / width, y / height


def from_unit(box: Box, space: Space, order: Order, size: Size = (1, 1)) -> Numbers:
    """`to_unit` undone: exactly, but that bins are whole numbers: `bin1000` rounds down, `loc1024` to the nearest."""
    (x1, y1), (x2, y2) = point_from_unit(box[:2], space, size), point_from_unit(box[2:], space, size)
    return {
        "xyxy": (x1, y1, x2, y2),
        "xywh": (x1, y1, x2 - x1, y2 - y1),
        "cxcywh": ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1),
        "yxyx": (y1, x1, y2, x2),
    }[order]


def point_from_unit(point: Point, space: Space, size: Size = (1, 1)) -> Point:
    """`point_to_unit` undone."""
    width, height = _sides(space, size)
    x, y = point[0] * width, point[1] * height
    if last := LAST_BINS.get(space):
        to_bin = int if space == "bin1000" else round
        return min(to_bin(x), last), min(to_bin(y), last)
    return x, y


def _sides(space: Space, size: Size) -> Size:
    return (SIDES[space], SIDES[space]) if space in SIDES else size
