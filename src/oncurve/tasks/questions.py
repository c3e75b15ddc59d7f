"""Tasks of every kind from JSONL: one object a line with `kind`, `prompt`, `truth`, and where needed `images`, `options`."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from oncurve.errors import DataError
from oncurve.geometry.dialects import to_unit
from oncurve.truths import FORMS, parse_truth
from oncurve.types import Kind, Message, Task, TaskImage

Space = Literal["unit", "thousand", "percent", "pixel_original"]


class _Turn(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    role: Literal["system", "user", "assistant"]
    content: str


class Question(BaseModel):
    """A row. `prompt` is the user's text, or messages, the last one the user's, which the images go before."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    kind: Kind
    truth: Any
    id: str | int | None = None
    prompt: str | list[_Turn] = ""
    images: Annotated[list[str], BeforeValidator(lambda one: [one] if isinstance(one, str) else one)] = Field(
        default_factory=list
    )
    options: dict[str, Any] = Field(default_factory=dict)
    category: str = ""


def parse_question(row: Mapping[str, Any], beside: Sequence[str] = ()) -> Question:
    """The question in a row; `beside` are further keys that the row may have. Raises `DataError` that says what is wrong."""
    try:
        return Question.model_validate({key: value for key, value in row.items() if key not in beside})
    except ValidationError as error:
        words = (_words(fault, [*Question.model_fields, *beside]) for fault in error.errors(include_url=False))
        raise DataError("; ".join(words)) from None


def task_of(question: Question, default_id: str, images: tuple[TaskImage, ...] = ()) -> Task:
    """The task that a row asks. Raises `DataError` where its truth or the space of its coordinates is broken."""
    options = dict(question.options)
    space = options.pop("truth_space", "unit")
    try:
        truth = parse_truth(question.kind, _in_unit(question, space, options.get("image_size")))
    except ValueError as error:
        raise DataError(str(error)) from None
    task_id = default_id if question.id is None else str(question.id)
    return Task(task_id, question.kind, _messages(question, images), truth, options, question.category)


def read_text(path: Path) -> str:
    """Raises `DataError` where the file can't be read or is no UTF-8."""
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise DataError(f"{path}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8: {error}") from None


def read_lines(path: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSONL text, each with its place, `FILE:LINE`. Raises `DataError` for a line that is no object."""
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            row = json.loads(line, object_pairs_hook=_no_key_twice, parse_constant=_no_constant, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{place}: not JSON: {error}") from None
        if not isinstance(row, dict):
            raise DataError(f"{place}: an object is needed, not {json.dumps(row)[:60]}")
        yield place, row


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"the key {twice!r} stands in an object twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _finite(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise ValueError(f"{digits[:40]} is too large")
    return value


def _messages(question: Question, images: tuple[TaskImage, ...]) -> tuple[Message, ...]:
    turns = [_Turn(role="user", content=question.prompt)] if isinstance(question.prompt, str) else question.prompt
    if not turns or turns[-1].role != "user":
        raise DataError("prompt: the last message must be the user's")
    *before, last = turns
    return (*(Message(turn.role, turn.content) for turn in before), Message("user", last.content, images))


def _in_unit(question: Question, space: str, size: Any) -> Any:
    """The truth's JSON with its boxes and points in 0..1."""
    if space not in get_args(Space):
        raise ValueError(f"options.truth_space: {space!r} is unknown; allowed are {', '.join(get_args(Space))}")
    truth = question.truth
    if space == "unit" or not isinstance(truth, dict):
        return truth
    if space == "pixel_original" and not _is_size(size):
        raise ValueError("options.truth_space pixel_original needs options.image_size: [width, height]")

    def box(numbers: Any) -> Any:
        if not isinstance(numbers, list) or len(numbers) != 4 or not all(type(n) in (int, float) for n in numbers):
            return numbers
        return list(to_unit(tuple(numbers), space, "xyxy", size))

    def point(numbers: Any) -> Any:
        return box([*numbers, *numbers])[:2] if isinstance(numbers, list) and len(numbers) == 2 else numbers

    def region(one: Any) -> Any:
        return one | {"region": box(one.get("region"))} if isinstance(one, dict) else one

    def each(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda values: [convert(value) for value in values] if isinstance(values, list) else values

    converters = {"box": box, "point": point, "boxes": each(box), "regions": each(region)}
    try:
        return {key: converters.get(key, lambda value: value)(value) for key, value in truth.items()}
    except OverflowError:
        raise ValueError("truth: a coordinate is too large to compute with") from None


def _is_size(size: Any) -> bool:
    return isinstance(size, list) and len(size) == 2 and all(type(side) is int and side > 0 for side in size)


def _words(fault: Any, keys: Sequence[str]) -> str:
    where = ".".join(map(str, fault["loc"])) or "row"
    if fault["type"] == "extra_forbidden":
        return f"{where}: unknown key; allowed are {', '.join(keys)}"
    if fault["loc"] == ("kind",):
        return f"kind: {fault['input']!r} is unknown; allowed are {', '.join(FORMS)}"
    return f"{where}: {fault['msg'].removeprefix('Value error, ')}"
