"""The rules by which answers are graded: one section for each kind of task, and what is built on them.

A task may set keys of its kind's rules for itself (`Task.options`), such as the choices of a question.
"""

from math import inf
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from oncurve.config.base import NotNegative, NotNegativeFloat, Positive, PositiveFloat, Section, Share
from oncurve.config.text_parts import TextPart


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value  # TOML and JSON have no tuples


Size = Annotated[tuple[Positive, Positive], BeforeValidator(_tuple)]  # width, height in pixels
Texts = Annotated[tuple[str, ...], BeforeValidator(_tuple)]


class KindRules(Section):
    """What the rules of every kind have."""

    floor: float = 0.0  # of an answer whose format does not parse


class GroundingRules(KindRules):
    """Format gate, then similarity of the box to the truth, to a power; `format_bonus` adds a part for the format."""

    type: Literal["grounding"] = "grounding"
    dialect: Literal["box01"] = "box01"
    similarity: Literal["iou", "giou", "diou", "ciou"] = "iou"
    power: PositiveFloat = 2.0
    threshold: Share | None = None  # 1 at or above this similarity, 0 below; set power to 1 with it
    format_bonus: NotNegativeFloat = 0.0

    @model_validator(mode="after")
    def _doing_nothing_never_pays(self) -> Self:
        if self.threshold is not None and self.power != 1:
            raise ValueError(
                f"threshold {self.threshold} gives 0 or 1, which power {self.power:g} leaves as it is; set power = 1.0"
            )
        if self.floor > self.format_bonus:
            raise ValueError(
                f"floor {self.floor} is above {self.format_bonus}, the least that a well-formed answer can get: "
                "a malformed answer would pay; set floor no higher than format_bonus"
            )
        return self


class DetectionRules(KindRules):
    """F1 of a one-to-one matching, times the mean IoU of the matches."""

    type: Literal["detection"]
    match_iou: Share = 0.5


class PointingRules(KindRules):
    """1 inside the truth's box or disc, 0 outside."""

    type: Literal["pointing"]


class AnswerRules(KindRules):
    """What the kinds share whose wrong answers get 0: a malformed one must not get more."""

    floor: Annotated[float, Field(le=0)] = 0.0


class CountingRules(AnswerRules):
    """1 for the truth's number, or for one within `band` of it."""

    type: Literal["counting"]
    format: Literal["plain", "tag", "boxed", "points"] = "plain"
    band: NotNegative = 0


class OcrRules(AnswerRules):
    """1 - edit distance over the longer text's length."""

    type: Literal["ocr"]
    normalise: Literal["nfc"] = "nfc"


class ChoiceRules(AnswerRules):
    """1 for the truth's choice."""

    type: Literal["choice"]
    choices: Texts = ("A", "B", "C", "D")
    format: Literal["plain", "tag", "boxed"] = "plain"

    @field_validator("choices")
    @classmethod
    def _can_be_told_apart(cls, choices: tuple[str, ...]) -> tuple[str, ...]:
        if (
            len(choices) < 2
            or len(set(choices)) < len(choices)
            or any(choice != choice.strip() or not choice for choice in choices)
        ):
            raise ValueError("two choices or more are needed, all different, none empty or with white space around")
        return choices


class ShortAnswerRules(AnswerRules):
    """ANLS: the best normalised similarity to one of the truth's answers, 0 below `threshold` (arXiv 1905.13648)."""

    type: Literal["short_answer"]
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.5


class MathRules(AnswerRules):
    """1 where the one final answer equals the truth in value, unit and type."""

    type: Literal["math"]
    format: Literal["boxed", "hash", "tag"] = "boxed"
    timeout_s: PositiveFloat = 5.0


class CodeRules(KindRules):
    """1 where all hidden tests pass."""

    type: Literal["code"]
    timeout_s: PositiveFloat = 5.0  # of one answer
    partial: bool = False  # the share of tests that pass in place of 0 or 1
    fence: Literal["optional", "required"] = "optional"


class SqlRules(KindRules):
    """1 where the query gives the truth's rows on every database."""

    type: Literal["sql"]
    engine: Literal["sqlite", "duckdb", "postgres"] = "sqlite"
    timeout_s: PositiveFloat = 2.0  # of one answer


class EvidenceRules(KindRules):
    """A weighted sum of what can be seen, where, and how carefully it is said."""

    type: Literal["evidence"]
    language: Literal["en", "zh"] = "en"


class ReplyRules(KindRules):
    """A cautious and supportive reply that claims nothing beyond its sources."""

    type: Literal["reply"]
    language: Literal["en", "zh"] = "en"


class TextRules(KindRules):
    """A weighted sum of parts of the text. `floor` is the lowest total that an answer can get where it is not set."""

    type: Literal["text"]
    parts: Annotated[tuple[TextPart, ...], BeforeValidator(_tuple)] = ()
    floor: float | None = None

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the most that an answer with any text in it can get."""
        ends = [sorted(part.weight * end if part.weight else 0.0 for end in part.bounds) for part in self.parts]
        return sum(low for low, _ in ends), sum(high for _, high in ends)

    @model_validator(mode="after")
    def _doing_nothing_never_pays(self) -> Self:
        if len({part.name for part in self.parts}) < len(self.parts):
            raise ValueError("two parts have one name; give them a name each")
        if self.bounds[0] == -inf:
            raise ValueError(
                "a part has no lower bound, so no floor can lie below it; set most on every length_penalty"
            )
        if self.floor is not None and self.parts and self.floor > self.bounds[0]:
            raise ValueError(
                f"floor {self.floor:g} is above {self.bounds[0]:g}, the lowest total of these parts: an empty answer would pay; "
                f"set floor no higher, or leave it out"
            )
        return self


class PythonRules(Section):
    """A reward function of the user's own: `score(task: dict, text: str) -> float | dict` (`docs/rewards.md`)."""

    type: Literal["python"]
    function: str  # "FILE.py:NAME", the file relative to the working directory, or "PACKAGE.MODULE:NAME"
    timeout_s: PositiveFloat = 5.0  # of one answer; then its worker is killed
    workers: Positive = 2  # processes
    floor: float = 0.0  # of an answer that the function calls invalid

    @field_validator("function")
    @classmethod
    def _names_a_function(cls, value: str) -> str:
        home, _, name = value.rpartition(":")
        parts = [] if home.endswith(".py") else home.split(".")
        if not home or not all(part.isidentifier() for part in (*parts, name)):
            raise ValueError(
                f'reward.function "{value}" names no function: write "FILE.py:NAME", the file relative to the working '
                'directory, or "PACKAGE.MODULE:NAME"'
            )
        return value


AnyKindRules = (
    GroundingRules | DetectionRules | PointingRules | CountingRules | OcrRules | ChoiceRules | ShortAnswerRules
    | MathRules | CodeRules | SqlRules | EvidenceRules | ReplyRules | TextRules
)  # fmt: skip
RewardConfig = Annotated[AnyKindRules | PythonRules, Field(discriminator="type")]
KIND_RULES: dict[str, type[KindRules]] = {
    rules.model_fields["type"].annotation.__args__[0]: rules for rules in AnyKindRules.__args__
}
