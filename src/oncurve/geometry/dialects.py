"""How boxes are written. A dialect is declared, never guessed: `[0, 0, 1, 1]` is valid in every space."""

import re

from oncurve.geometry.boxes import is_valid
from oncurve.parsing import MAX_NUMBER_CHARACTERS, NUMBER, MalformedAnswer
from oncurve.truths import Box

BOX01 = re.compile(rf"[ \t\r\n]*<box>({NUMBER}),({NUMBER}),({NUMBER}),({NUMBER})</box>[ \t\r\n]*")


def parse_box01(text: str) -> Box:
    """The box of `<box>x1,y1,x2,y2</box>`: exactly one, in 0..1, nothing around it but white space.

    Raises `MalformedAnswer` with reason `empty`, `repeated_tags`, `text_around`, `syntax`, `number`, `outside`,
    `swapped_corners` or `no_area`.
    """
    if not text.strip():
        raise MalformedAnswer("empty", "the answer is empty")
    match = BOX01.fullmatch(text)
    if match is None:
        if text.count("<box>") > 1 or text.count("</box>") > 1:
            raise MalformedAnswer("repeated_tags", "more than one box tag; exactly one box is asked for")
        if BOX01.search(text):
            raise MalformedAnswer("text_around", "text before or behind the box")
        raise MalformedAnswer("syntax", "not of the form <box>x1,y1,x2,y2</box> with four plain numbers")
    if any(
        len(number) > MAX_NUMBER_CHARACTERS or (number.startswith("-") and not float(number))
        for number in match.groups()
    ):
        raise MalformedAnswer("number", f"a number of more than {MAX_NUMBER_CHARACTERS} characters, or a negative zero")
    x1, y1, x2, y2 = box = tuple(map(float, match.groups()))
    if min(box) < 0 or max(box) > 1:
        raise MalformedAnswer("outside", f"{_plain(box)} reaches outside the image (0..1)")
    if x2 < x1 or y2 < y1:
        raise MalformedAnswer("swapped_corners", f"{_plain(box)} has x2 < x1 or y2 < y1")
    if not is_valid(box):
        raise MalformedAnswer("no_area", f"{_plain(box)} has no area")
    return box


def print_box01(box: Box) -> str:
    """`<box>0.20,0.30,0.60,0.70</box>`: two decimals, as in the worked example."""
    return f"<box>{','.join(f'{corner:.2f}' for corner in box)}</box>"


def to_unit(numbers: tuple[float, float, float, float], space: str, order: str, size: tuple[int, int]) -> Box:
    """Four numbers in a declared space and order as a box in 0..1 of an image of `size` (width, height) in pixels.

    Spaces: `unit`, `thousand`, `percent`, `pixel_original`. Orders: `xyxy`, `xywh`, `cxcywh`, `yxyx`. The result is not
    checked: see `oncurve.geometry.boxes.is_valid`.
    """
    a, b, c, d = numbers
    x1, y1, x2, y2 = {
        "xyxy": (a, b, c, d),
        "xywh": (a, b, a + c, b + d),
        "cxcywh": (a - c / 2, b - d / 2, a + c / 2, b + d / 2),
        "yxyx": (b, a, d, c),
    }[order]
    width, height = {"unit": (1, 1), "thousand": (1000, 1000), "percent": (100, 100), "pixel_original": size}[space]
    return x1 / width, y1 / height, x2 / width, y2 / height


def _plain(box: tuple[float, ...]) -> str:
    return "[" + ", ".join(f"{corner:g}" for corner in box) + "]"
