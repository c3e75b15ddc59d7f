"""The rows of data sets on disk, JSONL and COCO, before their pictures are opened; and the rows that can't be used."""

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from oncurve.config.schema import CocoData, JsonlData
from oncurve.errors import DataError
from oncurve.geometry.boxes import is_valid
from oncurve.geometry.dialects import to_unit
from oncurve.types import Box

ROUNDING_PX = 1.0  # how far a box in pixels may reach over the edge, as rounded numbers do
ROUNDING = 1e-3  # the same in 0..1, for the other spaces


@dataclass(frozen=True, slots=True)
class Rejection:
    """A row that was left out. Example: `Rejection("p.jsonl:4", "image_missing", "cat.jpg: there is no such file")`."""

    place: str  # "<file>:<line>" in JSONL; "<file>:<image id>/<category>" or "<file>:annotations[17]" in COCO
    reason: str  # a short slug that is counted
    words: str


@dataclass(frozen=True, slots=True)
class DataRow:
    """A row whose keys and types are right, its box and picture still unchecked."""

    id: str
    place: str
    image: Path
    phrase: str
    numbers: Any  # the box as the file has it
    space: str
    order: str
    declared_px: tuple[int, int] | None = None  # width and height that the file states for the picture


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)  # further keys are let through, as in COCO's own files


class JsonlRecord(Record):
    image: str
    phrase: str
    box: Any


class CocoImage(Record):
    id: int
    file_name: str
    width: int
    height: int


class CocoCategory(Record):
    id: int
    name: str


class CocoAnnotation(Record):
    image_id: int
    category_id: int
    iscrowd: int = 0
    bbox: Any = None  # checked later: an annotation without a good box still counts as an occurrence


R = TypeVar("R", bound=Record)


def read_jsonl(config: JsonlData) -> Iterator[DataRow | Rejection]:
    """One row a line; blank lines are passed over. Raises `DataError` where the file can't be read."""
    path = Path(config.path)
    for number, line in enumerate(_read(path).removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        place = f"{path.name}:{number}"
        try:
            record = JsonlRecord.model_validate_json(line)
        except ValidationError as error:
            yield _malformed(place, error)
            continue
        if record.phrase.strip():
            image = path.parent / record.image
            yield DataRow(place, place, image, record.phrase, record.box, config.space, config.order)
        else:
            yield Rejection(place, "empty_phrase", "phrase: empty; it must name the thing that the box is around")


def read_coco(config: CocoData) -> Iterator[DataRow | Rejection]:
    """A row "the <category>" for each annotation whose category occurs once in its image.

    Crowd annotations give no row, but count as occurrences. Boxes are x, y, width, height in pixels of the upright
    picture, whose size the record states. Raises `DataError` where file or folder can't be read.
    """
    path, folder = Path(config.path), Path(config.images)
    if not folder.is_dir():
        raise DataError(
            f"{folder}: no such folder; `images` must name the folder that {path.name}'s file_name is relative to"
        )
    text = _read(path)
    try:
        content = json.loads(text)
        lists = [content[key] for key in ("images", "categories", "annotations")]
        if not all(isinstance(records, list) for records in lists):
            raise TypeError
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON: {error}") from None
    except (KeyError, TypeError):
        raise DataError(
            f"{path}: not COCO's instances form: lists `images`, `categories`, `annotations` expected"
        ) from None

    malformed: list[Rejection] = []
    parsed_images = _records(CocoImage, lists[0], f"{path.name}:images", malformed)
    parsed_categories = _records(CocoCategory, lists[1], f"{path.name}:categories", malformed)
    images = {image.id: image for _, image in parsed_images}
    names = {category.id: category.name for _, category in parsed_categories}
    if len(images) < len(parsed_images) or len(names) < len(parsed_categories):
        raise DataError(f"{path}: an id occurs twice among the images or the categories; ids must be unique")
    annotations = []
    for place, annotation in _records(CocoAnnotation, lists[2], f"{path.name}:annotations", malformed):
        if annotation.image_id in images and annotation.category_id in names:
            annotations.append((annotation.image_id, names[annotation.category_id], annotation))
        else:
            words = f"image {annotation.image_id} or category {annotation.category_id} is not among the usable records"
            malformed.append(Rejection(place, "unknown_id", words))
    yield from malformed

    occurrences = Counter((image_id, name) for image_id, name, _ in annotations)
    for image_id, name, annotation in annotations:
        if occurrences[image_id, name] == 1 and not annotation.iscrowd:
            image, key = images[image_id], f"{image_id}/{name}"
            yield DataRow(
                id=f"coco:{key}",
                place=f"{path.name}:{key}",
                image=folder / image.file_name,
                phrase=f"the {name}",
                numbers=annotation.bbox,
                space="pixel_original",
                order="xywh",
                declared_px=(image.width, image.height),
            )


def place_box(row: DataRow, size_px: tuple[int, int]) -> Box | Rejection:
    """The row's box in 0..1 of its picture of `size_px` (width, height).

    A box may reach over the edge by rounding, 1 px in pixels and 0.001 of the side in other spaces: it is then cut off
    exactly at the edge. Any other fault is a rejection: `image_size`, `wrong_type`, `not_finite`, `swapped_corners`,
    `no_area`, `outside`.
    """

    def rejected(reason: str, words: str) -> Rejection:
        return Rejection(row.place, reason, words)

    if row.declared_px and row.declared_px != size_px:
        stated, found = ("x".join(map(str, size)) for size in (row.declared_px, size_px))
        return rejected("image_size", f"the record says {stated} px, but {row.image} has {found} px when upright")
    numbers = row.numbers
    if (
        not isinstance(numbers, list)
        or len(numbers) != 4
        or any(type(number) not in (int, float) for number in numbers)
    ):
        return rejected("wrong_type", f"box: four numbers expected, not {json.dumps(numbers)[:80]}")
    written = f"box {json.dumps(numbers)} ({row.space}, {row.order})"
    try:
        x1, y1, x2, y2 = box = to_unit(tuple(map(float, numbers)), row.space, row.order, size_px)
    except OverflowError:
        return rejected("not_finite", f"box: a number too large to compute with: {json.dumps(numbers)[:80]}")
    if not all(map(math.isfinite, box)):
        return rejected("not_finite", f"{written} has a number that is not finite")
    if x2 < x1 or y2 < y1:
        return rejected("swapped_corners", f"{written} has x2 < x1 or y2 < y1")
    if x1 == x2 or y1 == y2:
        return rejected("no_area", f"{written} has no area")
    width, height = size_px
    slack_x, slack_y = (
        (ROUNDING_PX / width, ROUNDING_PX / height) if row.space == "pixel_original" else (ROUNDING, ROUNDING)
    )
    if max(-x1, x2 - 1) > slack_x + 1e-9 or max(-y1, y2 - 1) > slack_y + 1e-9:
        return rejected("outside", f"{written} reaches outside the picture of {width}x{height} px")
    cut = (max(0.0, x1), max(0.0, y1), min(1.0, x2), min(1.0, y2))
    return cut if is_valid(cut) else rejected("no_area", f"{written} has no area inside the picture")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: can't be read: {error.strerror}") from None


def _records(kind: type[R], records: list[Any], where: str, malformed: list[Rejection]) -> list[tuple[str, R]]:
    """The records of `kind` with their places; those that are none go to `malformed`."""
    good = []
    for index, record in enumerate(records):
        place = f"{where}[{index}]"
        try:
            good.append((place, kind.model_validate(record)))
        except ValidationError as error:
            malformed.append(_malformed(place, error))
    return good


def _malformed(place: str, error: ValidationError) -> Rejection:
    faults = error.errors()
    kinds = {fault["type"] for fault in faults}
    reason = "not_json" if "json_invalid" in kinds else "missing_key" if "missing" in kinds else "wrong_type"
    words = "; ".join(": ".join([*map(str, fault["loc"]), fault["msg"]]) for fault in faults)
    return Rejection(place, reason, words.replace("at line 1 column", "at column"))
