"""How data sets write the boxes that become truths. The file's form is declared by its name, never guessed."""

from typing import Literal

from oncurve.geometry.spaces import Numbers, Order, Size, Space, from_unit, to_unit
from oncurve.truths import Box

DataSetForm = Literal["coco", "refer", "yolo", "voc", "vlm_r1", "screenspot", "screenspot_hf"]
FORMS: dict[DataSetForm, tuple[Space, Order]] = {
    "coco": ("pixel_original", "xywh"),
    "refer": ("pixel_original", "xywh"),  # RefCOCO, RefCOCO+ and RefCOCOg: boxes of COCO's instances
    "yolo": ("unit", "cxcywh"),
    "voc": ("pixel_original", "xyxy"),  # corners are numbers of pixels that belong to the box, counted from 1
    "vlm_r1": ("pixel_original", "xyxy"),
    "screenspot": ("pixel_original", "xywh"),  # SeeClick's own files
    "screenspot_hf": ("unit", "xyxy"),  # as repacked on the Hugging Face hub
}


def to_box(numbers: Numbers, form: DataSetForm, size: Size) -> Box:
    """A box as the data set has it, in 0..1 of an image of `size` (width, height) in pixels; not checked.

    Example: VOC's `(1, 1, 32, 48)` in an image of 64 x 48 is its left half, `(0, 0, 0.5, 1)`.
    """
    if form == "voc":
        x1, y1, x2, y2 = numbers
        numbers = x1 - 1, y1 - 1, x2, y2
    return to_unit(numbers, *FORMS[form], size)


def from_box(box: Box, form: DataSetForm, size: Size) -> Numbers:
    """`to_box` undone."""
    numbers = from_unit(box, *FORMS[form], size)
    if form == "voc":
        x1, y1, x2, y2 = numbers
        return x1 + 1, y1 + 1, x2, y2
    return numbers


def parse_yolo_line(line: str) -> tuple[int, Numbers]:
    """Class number and `cx, cy, w, h` of one line of a YOLO label file. Raises `ValueError` that shows the line."""
    try:
        number, cx, cy, w, h = line.split()
        return int(number), (float(cx), float(cy), float(w), float(h))
    except ValueError:
        raise ValueError(f"{line.strip()[:80]!r}: a class number and cx cy w h are expected") from None
