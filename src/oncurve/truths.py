"""What is true of a task, one type for each form of it. Checked when made: a truth that is broken itself never grades.

As JSON they look as in `docs/rewards.md`: `parse_truth("counting", {"count": 3})`. Coordinates are 0..1 of the upright
image.
"""

import json
from dataclasses import asdict
from keyword import iskeyword
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

Box = tuple[float, float, float, float]
Point = tuple[float, float]

_CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value  # JSON has no tuples


def _is_box(box: Box) -> Box:
    x1, y1, x2, y2 = box
    if not (0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1):
        raise ValueError(f"{list(box)} is no box x1, y1, x2, y2 in 0..1 with x1 < x2 and y1 < y2")
    return box


def _is_point(point: Point) -> Point:
    if not all(0 <= at <= 1 for at in point):
        raise ValueError(f"{list(point)} is no point x, y in 0..1")
    return point


def _says_something(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty")
    text.encode()  # raises UnicodeEncodeError, a ValueError, for half a surrogate pair
    return text


CheckedBox = Annotated[Box, BeforeValidator(_tuple), AfterValidator(_is_box)]
CheckedPoint = Annotated[Point, BeforeValidator(_tuple), AfterValidator(_is_point)]
Text = Annotated[str, AfterValidator(_says_something)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_tuple)]


@dataclass(frozen=True, slots=True, config=_CONFIG)
class BoxTruth:
    """Grounding: the one box. Pointing: any point inside it. Example: `BoxTruth((0.2, 0.3, 0.6, 0.7))`."""

    box: CheckedBox


@dataclass(frozen=True, slots=True, config=_CONFIG)
class BoxesTruth:
    """Detection. Example: `BoxesTruth(((0.2, 0.3, 0.6, 0.7),), ("cat",))`; no box at all is a truth too."""

    boxes: Annotated[tuple[CheckedBox, ...], BeforeValidator(_tuple)]
    labels: Texts | None = None  # one a box

    def __post_init__(self) -> None:
        if self.labels is not None and len(self.labels) != len(self.boxes):
            raise ValueError(f"{len(self.boxes)} boxes and {len(self.labels)} labels; one label a box is needed")


@dataclass(frozen=True, slots=True, config=_CONFIG)
class DiscTruth:
    """Pointing: a point and how far off it still counts, in 0..1 of the image. Example: `DiscTruth((0.4, 0.5), 0.05)`."""

    point: CheckedPoint
    radius: Annotated[float, Field(gt=0, le=1)] = 0.05


@dataclass(frozen=True, slots=True, config=_CONFIG)
class CountTruth:
    """Counting. Example: `CountTruth(3)`."""

    count: Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True, config=_CONFIG)
class TextTruth:
    """OCR. Example: `TextTruth("STOP")`."""

    text: Text


@dataclass(frozen=True, slots=True, config=_CONFIG)
class ChoiceTruth:
    """Choice, one of the rules' `choices`. Example: `ChoiceTruth("B")`."""

    choice: Text


@dataclass(frozen=True, slots=True, config=_CONFIG)
class AnswersTruth:
    """Short answer: any of these. Example: `AnswersTruth(("New York", "NYC"))`."""

    answers: Annotated[Texts, Field(min_length=1)]


@dataclass(frozen=True, slots=True, config=_CONFIG)
class MathTruth:
    """Mathematics. Example: `MathTruth("42", "cm")`."""

    answer: Text
    unit: Text | None = None


class CodeTest(TypedDict):
    """A call and what it returns. Example: `{"args": [1, 2], "kwargs": {}, "result": 3}`; no arguments may be left out."""

    __pydantic_config__ = _CONFIG
    args: NotRequired[list[JsonValue]]
    kwargs: NotRequired[dict[str, JsonValue]]
    result: JsonValue


class StdinTest(TypedDict):
    """What a program reads and prints. Example: `{"stdin": "1 2\\n", "stdout": "3\\n"}`."""

    __pydantic_config__ = _CONFIG
    stdin: str
    stdout: str


def _is_a_name(name: str) -> str:
    if not name.isidentifier() or iskeyword(name):
        raise ValueError(f"{name!r} is no name of a function")
    return name


@dataclass(frozen=True, slots=True, config=_CONFIG)
class CodeTruth:
    """Code, in one of three forms: `tests` of a function, its `reference` and `inputs`, or `stdin_tests` of a program.

    Example: `CodeTruth("add", tests=({"args": [1, 2], "kwargs": {}, "result": 3},))`. `tolerance` is how far a float may be
    off; where several results are right, `accepts` is the source of `accepts(result, *args, **kwargs) -> bool`.
    """

    entry_point: Annotated[str, AfterValidator(_is_a_name)] | None = None
    tests: Annotated[tuple[CodeTest, ...], BeforeValidator(_tuple), Field(min_length=1)] | None = None
    reference: Text | None = None
    inputs: Annotated[tuple[list[JsonValue], ...], BeforeValidator(_tuple), Field(min_length=1)] | None = None
    stdin_tests: Annotated[tuple[StdinTest, ...], BeforeValidator(_tuple), Field(min_length=1)] | None = None
    tolerance: Annotated[float, Field(gt=0)] | None = None
    accepts: Text | None = None

    def __post_init__(self) -> None:
        given = {key for key in CODE_KEYS if getattr(self, key) is not None}
        if given not in CODE_FORMS:
            forms = ", or ".join(" and ".join(key for key in CODE_KEYS if key in form) for form in CODE_FORMS)
            raise ValueError(f"it has {', '.join(sorted(given)) or 'nothing'}; needed are {forms}")
        if self.stdin_tests and (self.tolerance or self.accepts):
            raise ValueError("tolerance and accepts are for what a function returns, not for what a program prints")


CODE_KEYS = ("entry_point", "tests", "reference", "inputs", "stdin_tests")
CODE_FORMS = ({"entry_point", "tests"}, {"entry_point", "reference", "inputs"}, {"stdin_tests"})


@dataclass(frozen=True, slots=True, config=_CONFIG)
class SqlTruth:
    """SQL: a query whose rows are right. Example: `SqlTruth("SELECT name FROM cats ORDER BY age")`."""

    sql: Text


@dataclass(frozen=True, slots=True, config=_CONFIG)
class Region:
    """Something that can be seen. Example: `Region((0.3, 0.1, 0.5, 0.3), "face_region", ("down",))`."""

    region: CheckedBox
    type: Text
    attributes: Texts = ()


@dataclass(frozen=True, slots=True, config=_CONFIG)
class EvidenceTruth:
    """Evidence: what an annotator saw."""

    regions: Annotated[tuple[Region, ...], BeforeValidator(_tuple)]


@dataclass(frozen=True, slots=True, config=_CONFIG)
class Seen:
    """One entry of an evidence answer. Example: `Seen((0.3, 0.1, 0.5, 0.3), "face_region", "the head points down", 0.9)`."""

    region: CheckedBox
    type: Text
    description: Text
    confidence: Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, slots=True, config=_CONFIG)
class ReplyTruth:
    """Reply: the evidence that it may lean on, as an evidence answer has it in `observable_evidence`."""

    evidence: Annotated[tuple[Seen, ...], BeforeValidator(_tuple)]


@dataclass(frozen=True, slots=True, config=_CONFIG)
class NoTruth:
    """Text: nothing but the text itself is graded."""


Truth = (
    BoxTruth | BoxesTruth | DiscTruth | CountTruth | TextTruth | ChoiceTruth | AnswersTruth | MathTruth
    | CodeTruth | SqlTruth | EvidenceTruth | ReplyTruth | NoTruth
)  # fmt: skip

FORMS: dict[str, tuple[type, ...]] = {
    "grounding": (BoxTruth,),
    "detection": (BoxesTruth,),
    "pointing": (BoxTruth, DiscTruth),
    "counting": (CountTruth,),
    "ocr": (TextTruth,),
    "choice": (ChoiceTruth,),
    "short_answer": (AnswersTruth,),
    "math": (MathTruth,),
    "code": (CodeTruth,),
    "sql": (SqlTruth,),
    "evidence": (EvidenceTruth,),
    "reply": (ReplyTruth,),
    "text": (NoTruth,),
}
"""The truths that each kind of task may have; the kinds are its keys."""


def parse_truth(kind: str, value: Any) -> Truth:
    """The truth of a task of `kind` from its JSON. Raises `ValueError` that says what is wrong with it."""
    forms = FORMS[kind]
    form = next((form for form in forms if _keys(form) & _given(value)), forms[0])
    try:
        return TypeAdapter(form).validate_json(json.dumps(value))
    except ValidationError as error:
        faults = error.errors(include_url=False)
        raise ValueError("; ".join(_words(fault) for fault in faults)) from None


def truth_json(truth: Truth) -> dict[str, Any]:
    """What `parse_truth` reads. Keys that are not set are left out."""
    return {key: value for key, value in asdict(truth).items() if value is not None}


def _given(value: Any) -> set[str]:
    return set(value) if isinstance(value, dict) else set()


def _keys(form: type) -> set[str]:
    return set(form.__dataclass_fields__)


def _words(fault: Any) -> str:
    where = ".".join(["truth", *map(str, fault["loc"])])
    return f"{where}: {fault['msg'].removeprefix('Value error, ')}"
