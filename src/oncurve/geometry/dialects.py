"""How models write boxes and points, both ways. A dialect is declared, never guessed: `[0, 0, 1, 1]` is valid in every
space. Reading is strict and linear in time: the whole text is what the dialect says, or `MalformedAnswer` is raised.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple
from unicodedata import normalize

from oncurve.geometry.boxes import is_valid
from oncurve.geometry.spaces import Numbers, Size, from_unit, point_from_unit, point_to_unit, to_unit
from oncurve.geometry.written import BOX_DIALECTS, POINT_DIALECTS, Thing
from oncurve.parsing import MalformedAnswer, not_empty
from oncurve.truths import Box, Point

MAX_CHARACTERS = 100_000  # of an answer
MAX_BOXES = 1000
MAX_LABEL_CHARACTERS = 200
NONE = "none"
PLAIN_BOX01 = re.compile("<box>{0},{0},{0},{0}</box>".format(r"([01](?:\.[0-9]{1,18})?)"))


class Found(NamedTuple):
    """A box in 0..1 that an answer names, with its label where the dialect carries one."""

    box: Box
    label: str | None = None


def parse_boxes(text: str, dialect: str, model_size: Size | None = None) -> list[Found]:
    """All boxes of an answer; an empty list where it says that there is none (`none`, or `[]` in a JSON dialect).

    `model_size` is the width and height in pixels of the image as the model saw it, for dialects in `pixel_model`.
    Raises `MalformedAnswer` with reason `empty`, `too_long`, `too_many`, `text_around`, `repeated_tags`, `syntax`,
    `json`, `duplicate_key`, `depth`, `schema`, `label`, `number`, `outside`, `swapped_corners` or `no_area`.
    """
    form = BOX_DIALECTS[dialect]
    inner = _bounded(text)
    if inner == NONE and form.several and not form.is_json:
        return []
    things = form.read(inner)
    if len(things) > MAX_BOXES:
        raise MalformedAnswer("too_many", f"more than {MAX_BOXES} boxes")
    return [Found(_box(thing.numbers, dialect, model_size), _label(thing.label)) for thing in things]


def parse_box(text: str, dialect: str, model_size: Size | None = None) -> Box:
    """The one box of an answer. Raises as `parse_boxes` does, and with reason `no_box` or `several_boxes`."""
    if dialect == "box01" and (match := PLAIN_BOX01.fullmatch(text)):  # the usual answer, several times as fast
        x1, y1, x2, y2 = box = tuple(map(float, match.groups()))
        if x1 < x2 <= 1 and y1 < y2 <= 1:
            return box
    found = parse_boxes(text, dialect, model_size)
    if not found:
        raise MalformedAnswer("no_box", "it says that there is none; exactly one box is asked for")
    if len(found) > 1:
        raise MalformedAnswer("several_boxes", f"{len(found)} boxes; exactly one is asked for")
    return found[0].box


def parse_point(text: str, dialect: str) -> Point:
    """The one point of an answer, in 0..1. Raises `MalformedAnswer` as `parse_boxes` does."""
    form = POINT_DIALECTS[dialect]
    (thing,) = form.read(_bounded(text))
    point = point_to_unit(thing.numbers, form.space)
    if min(point) < 0 or max(point) > 1:
        raise MalformedAnswer("outside", f"{_plain(thing.numbers)} lies outside the image ({form.bounds})")
    return point


def parse_box01(text: str) -> Box:
    """The box of `<box>x1,y1,x2,y2</box>`, in 0..1. Raises `MalformedAnswer` as `parse_box` does."""
    return parse_box(text, "box01")


def print_boxes(found: Sequence[Found], dialect: str, model_size: Size | None = None) -> str:
    """What `parse_boxes` reads, rounded to the dialect's resolution: 0.01, a thousandth, a pixel or a bin.

    A box without a label is called "object" where the dialect wants one. Raises `ValueError` for a label that the
    dialect can't carry, and for more boxes than it can hold.
    """
    form = BOX_DIALECTS[dialect]
    if not form.several and len(found) != 1:
        raise ValueError(f"{dialect} holds one box, not {len(found)}")
    if not found and not form.is_json:
        return NONE
    things = []
    for box, label in found:
        if form.labels and not carries(dialect, label or "object"):
            raise ValueError(f"{label!r} can't be a label in {dialect}")
        things.append(Thing(from_unit(box, form.space, form.order, model_size or (1, 1)), label or "object"))
    return form.write(things)


def print_box01(box: Box) -> str:
    """`<box>0.20,0.30,0.60,0.70</box>`: two decimals, as in the worked example."""
    return print_boxes([Found(box)], "box01")


def print_point(point: Point, dialect: str) -> str:
    """What `parse_point` reads, rounded to 0.01 in `point01` and 0.1 % in `molmo_point`."""
    form = POINT_DIALECTS[dialect]
    return form.write([Thing(point_from_unit(point, form.space), "object")])


def carries(dialect: str, label: str) -> bool:
    """Whether an answer in the dialect can have this label."""
    if not BOX_DIALECTS[dialect].labels:
        return False
    try:
        [thing] = BOX_DIALECTS[dialect].read(BOX_DIALECTS[dialect].write([Thing((0, 0, 1, 1), label)]))
        return same_label(_label(thing.label)) == same_label(label)
    except (MalformedAnswer, ValueError):
        return False


def same_label(label: str) -> str:
    """A label as it is compared: NFC, without case, runs of white space as one space."""
    return " ".join(normalize("NFC", normalize("NFC", label).casefold()).split())


def _bounded(text: str) -> str:
    if len(text) > MAX_CHARACTERS:
        raise MalformedAnswer("too_long", f"{len(text)} characters; at most {MAX_CHARACTERS} are read")
    return not_empty(text)


def _box(numbers: Numbers, dialect: str, model_size: Size | None) -> Box:
    form = BOX_DIALECTS[dialect]
    x1, y1, x2, y2 = box = to_unit(numbers, form.space, form.order, model_size or (1, 1))
    if min(box) < 0 or max(box) > 1:
        bounds = "x".join(map(str, model_size)) + " px" if form.space == "pixel_model" else form.bounds
        raise MalformedAnswer("outside", f"{_plain(numbers)} reaches outside the image ({bounds})")
    if x2 < x1 or y2 < y1:
        raise MalformedAnswer("swapped_corners", f"{_plain(numbers)} has a second corner left of or above the first")
    if not is_valid(box):
        raise MalformedAnswer("no_area", f"{_plain(numbers)} has no area")
    return box


def _label(label: str | None) -> str | None:
    if label is None:
        return None
    if not label.strip() or len(label) > MAX_LABEL_CHARACTERS:
        raise MalformedAnswer("label", f"a label that is empty or has more than {MAX_LABEL_CHARACTERS} characters")
    try:
        label.encode()
    except UnicodeEncodeError:
        raise MalformedAnswer("label", "a label with half a surrogate pair") from None
    return label


def _plain(numbers: Sequence[float]) -> str:
    return "[" + ", ".join(f"{number:g}" for number in numbers) + "]"
