"""What each dialect looks like on paper: text to numbers and labels and back. Spaces and meaning are in `dialects`."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oncurve.geometry.spaces import LAST_BINS, SIDES, Order, Space
from oncurve.parsing import NUMBER, WHITE, MalformedAnswer, plain_number, strict_json

FOUR = ",".join([NUMBER] * 4)
ROW = rf"\[{', ?'.join([NUMBER] * 4)}\]"
LOC = r"<loc(?:0[0-9]{3}|10[01][0-9]|102[0-3])>"
BIN = r"<loc_(?:0|[1-9][0-9]{0,2})>"
SPACES = rf"[{WHITE}]*"
FENCE = re.compile(r"```json[ \t]*\r?\n(.*)```", re.DOTALL)


class Thing(NamedTuple):
    """Numbers in the dialect's own space and order, four of a box or two of a point, and its label, if any."""

    numbers: tuple[float, ...]
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """`read` takes a text without white space around it and raises `MalformedAnswer`; `write` is its inverse."""

    space: Space
    order: Order
    form: str  # for people
    read: Callable[[str], list[Thing]]
    write: Callable[[Sequence[Thing]], str]
    several: bool = True  # can hold any number of boxes, none included
    labels: bool = True
    is_json: bool = False

    @property
    def bounds(self) -> str:
        """The least and the greatest number of its space, for people."""
        return f"0..{LAST_BINS.get(self.space, SIDES.get(self.space))}"


def _tags(
    form: str,
    template: str,
    space: Space,
    order: Order,
    numbers: str,
    *,
    before: str = "",
    behind: str = "",
    only: str = "",
    joiner: str = "",
) -> Dialect:
    """A dialect of tags: `before`, `numbers`, `behind`, patterns of which one may have a group `label`, any number of times.

    `numbers` begins with a literal, so that a search for it is linear. With `only`, a tag's opening, there is just one
    thing. `template` prints one thing.
    """
    pattern, core = re.compile(f"{before}(?P<numbers>{numbers}){behind}{SPACES}"), re.compile(numbers)
    per_thing = 2 if order == "xy" else 4

    def read(text: str) -> list[Thing]:
        if only and max(text.count(f"<{only}"), text.count(f"</{only}>")) > 1:
            raise MalformedAnswer("repeated_tags", f"more than one {only}; exactly one is asked for")
        found, at = [], 0
        while at < len(text):
            if not (match := pattern.match(text, at)):
                if core.search(text):
                    raise MalformedAnswer("text_around", f"other text than {form} from character {at} on")
                raise MalformedAnswer("syntax", f"not of the form {form}")
            values = [plain_number(value) for value in re.findall(NUMBER, match["numbers"])]
            label = match["label"].strip() if "label" in pattern.groupindex else None
            found += [Thing(tuple(values[i : i + per_thing]), label) for i in range(0, len(values), per_thing)]
            at = match.end()
        return found

    def write(things: Sequence[Thing]) -> str:
        return joiner.join(template.format(*thing.numbers, label=thing.label) for thing in things)

    return Dialect(space, order, form, read, write, several=not only, labels="{label}" in template and order != "xy")


def _json_list(key: str, space: Space, order: Order, *, fenced: bool = False) -> Dialect:
    """A JSON list of `{key: four numbers, "label": text}`, bare or in a json fence; printed with it where `fenced`."""
    names = "x1, y1, x2, y2" if order == "xyxy" else "y1, x1, y2, x2"
    form = f'[{{"{key}": [{names}], "label": "…"}}, …]'

    def read(text: str) -> list[Thing]:
        if text.startswith("```"):
            if not (match := FENCE.fullmatch(text)):
                raise MalformedAnswer("syntax", "a fence that is not ```json, a line break, the list and ```")
            text = match[1]
        things = strict_json(text)
        if not isinstance(things, list) or not all(map(is_thing, things)):
            raise MalformedAnswer("schema", f"not of the form {form} with exactly these keys")
        return [Thing(tuple(thing[key]), thing["label"]) for thing in things]

    def is_thing(thing: object) -> bool:
        return (
            isinstance(thing, dict)
            and thing.keys() == {key, "label"}
            and isinstance(thing["label"], str)
            and isinstance(numbers := thing[key], list)
            and len(numbers) == 4
            and all(type(number) in (int, float) for number in numbers)
        )

    def write(things: Sequence[Thing]) -> str:
        rows = ", ".join(
            f'{{"{key}": [{", ".join(f"{number:.0f}" for number in thing.numbers)}], '
            f'"label": {json.dumps(thing.label, ensure_ascii=False)}}}'
            for thing in things
        )
        return f"```json\n[{rows}]\n```" if fenced else f"[{rows}]"

    return Dialect(space, order, form, read, write, is_json=True)


BOX01 = "<box>x1,y1,x2,y2</box>"
PRINTED_BOX01 = "<box>{:.2f},{:.2f},{:.2f},{:.2f}</box>"
BOX_DIALECTS: dict[str, Dialect] = {
    "box01": _tags(BOX01, PRINTED_BOX01, "unit", "xyxy", f"<box>{FOUR}</box>", only="box"),
    "boxes01": _tags(f"{BOX01} …", PRINTED_BOX01, "unit", "xyxy", f"<box>{FOUR}</box>", joiner="\n"),
    "qwen2_vl": _tags(
        "<|object_ref_start|>label<|object_ref_end|><|box_start|>(x1,y1),(x2,y2)<|box_end|>",
        "<|object_ref_start|>{label}<|object_ref_end|><|box_start|>({:.0f},{:.0f}),({:.0f},{:.0f})<|box_end|>",
        "thousand",
        "xyxy",
        rf"(?:<\|box_start\|>\({NUMBER},{NUMBER}\),\({NUMBER},{NUMBER}\)<\|box_end\|>)+",
        before=r"<\|object_ref_start\|>(?P<label>[^<>]*)<\|object_ref_end\|>",
    ),
    "qwen2_5_vl": _json_list("bbox_2d", "pixel_model", "xyxy", fenced=True),
    "qwen3_vl": _json_list("bbox_2d", "thousand", "xyxy"),
    "internvl": _tags(
        "<ref>label</ref><box>[[x1, y1, x2, y2]]</box>",
        "<ref>{label}</ref><box>[[{:.0f}, {:.0f}, {:.0f}, {:.0f}]]</box>",
        "thousand",
        "xyxy",
        rf"<box>\[{ROW}(?:, ?{ROW})*\]</box>",
        before="<ref>(?P<label>[^<>]*)</ref>",
    ),
    "paligemma": _tags(
        "<loc0123><loc0456><loc0789><loc1011> label",
        "<loc{:04d}><loc{:04d}><loc{:04d}><loc{:04d}> {label}",
        "loc1024",
        "yxyx",
        f"(?:{LOC}){{4}}",
        behind=r" ?(?P<label>[^<>;]*)(?:;(?!\Z)|\Z)",
        joiner=" ; ",
    ),
    "gemini": _json_list("box_2d", "thousand", "yxyx"),
    "florence2": _tags(
        "label<loc_12><loc_34><loc_56><loc_78>",
        "{label}<loc_{}><loc_{}><loc_{}><loc_{}>",
        "bin1000",
        "xyxy",
        f"(?:(?:{BIN}){{4}})+",
        before="(?P<label>[^<>]*)",
    ),
}
POINT_DIALECTS: dict[str, Dialect] = {
    "point01": _tags(
        "<point>x,y</point>",
        "<point>{:.2f},{:.2f}</point>",
        "unit",
        "xy",
        f"<point>{NUMBER},{NUMBER}</point>",
        only="point",
    ),
    "molmo_point": _tags(
        '<point x="12.3" y="45.6" alt="…">…</point>',
        '<point x="{:.1f}" y="{:.1f}" alt="{label}">{label}</point>',
        "percent",
        "xy",
        f'x="{NUMBER}" y="{NUMBER}"',
        before="<point ",
        behind=r' alt="[^"<>]{0,200}">[^<>]{0,200}</point>',
        only="point",
    ),
}
