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

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the most that a well-formed answer can get."""
        return 0.0, 1.0

    @model_validator(mode="after")
    def _doing_nothing_never_pays(self) -> Self:
        low = self.bounds[0]
        if self.floor is not None and self.floor > low:
            raise ValueError(
                f"floor {self.floor:g} is above {low:g}, the least that a well-formed answer can get: a malformed answer "
                f"would pay; set floor to {low:g} or less"
            )
        return self


class PlaceRules(KindRules):
    """What the kinds that point at places share: sizes are width, height in pixels."""

    image_size: Size | None = None  # of the file, for a row whose truth counts its pixels


class BoxRules(PlaceRules):
    """What the kinds that box things share."""

    model_size: Size | None = None  # of the image as the model saw it, for a dialect in its pixels; else the sampler's


class GroundingRules(BoxRules):
    """Format gate, then similarity of the box to the truth, to a power; `format_bonus` adds a part for the format."""

    type: Literal["grounding"] = "grounding"
    dialect: Literal[
        "box01", "boxes01", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "internvl", "paligemma", "gemini", "florence2"
    ] = "box01"
    similarity: Literal["iou", "giou", "diou", "ciou"] = "iou"
    power: PositiveFloat = 2.0
    threshold: Share | None = None  # 1 at or above this similarity, 0 below; set power to 1 with it
    format_bonus: NotNegativeFloat = 0.0

    @model_validator(mode="after")
    def _threshold_stands_alone(self) -> Self:
        if self.threshold is not None and self.power != 1:
            raise ValueError(
                f"threshold {self.threshold} gives 0 or 1, which power {self.power:g} leaves as it is; set power = 1.0"
            )
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        return self.format_bonus, 1 + self.format_bonus


class DetectionRules(BoxRules):
    """F1 of a one-to-one matching, times the mean IoU of the matches."""

    type: Literal["detection"]
    dialect: Literal[
        "boxes01", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "internvl", "paligemma", "gemini", "florence2"
    ] = "boxes01"
    match_iou: Annotated[float, Field(gt=0, le=1)] = 0.5  # the least IoU of a match


class PointingRules(PlaceRules):
    """1 inside the truth's box or disc, 0 outside; with `closeness`, its mean with how close the point is to the middle."""

    type: Literal["pointing"]
    dialect: Literal["point01", "molmo_point"] = "point01"
    closeness: bool = False


class CountingRules(KindRules):
    """1 for the truth's number, or for one within `band` of it."""

    type: Literal["counting"]
    format: Literal["plain", "tag", "boxed", "points"] = "plain"
    band: NotNegative = 0


class OcrRules(KindRules):
    """1 - edit distance over the longer text's length."""

    type: Literal["ocr"]
    normalise: Literal["nfc"] = "nfc"


class ChoiceRules(KindRules):
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


class ShortAnswerRules(KindRules):
    """ANLS: the best normalised similarity to one of the truth's answers, 0 below `threshold` (arXiv 1905.13648)."""

    type: Literal["short_answer"]
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.5


class MathRules(KindRules):
    """1 where the one final answer equals the truth in value, unit and type."""

    type: Literal["math"]
    format: Literal["boxed", "hash", "tag"] = "boxed"
    timeout_s: PositiveFloat = 5.0


class CodeRules(KindRules):
    """1 where all tests pass, on inputs that the answer has not seen."""

    type: Literal["code"]
    timeout_s: PositiveFloat = 5.0  # of one answer, all its tests together
    partial: bool = False  # the share of tests that pass in place of 0 or 1
    fence: Literal["optional", "required"] = "optional"  # whether the code must stand in a block


class SqlRules(KindRules):
    """1 where the query gives the truth's rows on every database."""

    type: Literal["sql"]
    engine: Literal["sqlite", "duckdb", "postgres"] = "sqlite"
    setup: Texts = ()  # scripts, one a database, all with the same schema
    databases: Texts = ()  # or files, relative to the working directory
    address: str | None = None  # of a PostgreSQL server for this alone: postgresql://SUPERUSER@HOST
    timeout_s: PositiveFloat = 2.0  # of one answer

    @model_validator(mode="after")
    def _databases_of_one_kind(self) -> Self:
        if self.setup and self.databases:
            raise ValueError("setup and databases are both set; give scripts or files")
        if self.engine == "postgres" and self.databases:
            raise ValueError('engine "postgres" has no database files; give setup')
        if (self.engine == "postgres") != (self.address is not None):
            raise ValueError(
                f'engine "{self.engine}" and address {self.address!r} don\'t go together; address is the URL of a '
                'PostgreSQL server, and engine "postgres" needs it'
            )
        return self


class JudgeConfig(Section):
    """A model behind an OpenAI-compatible address that grades tone and caution too; `weight` is its share of the value."""

    address: str  # up to and without /chat/completions, such as http://localhost:8000/v1
    model: str
    weight: Annotated[float, Field(gt=0, lt=1)] = 0.2
    timeout_s: PositiveFloat = 30.0  # of one answer; a judge that fails gives status error, never 0
    key_env: str | None = None  # the environment variable that holds the key

    @field_validator("address")
    @classmethod
    def _is_http(cls, address: str) -> str:
        if not address.startswith(("http://", "https://")):
            raise ValueError(f"judge.address {address!r} is no address; write one such as http://localhost:8000/v1")
        return address.rstrip("/")


class Weights(Section):
    """Shares of the value, which sum to 1."""

    @model_validator(mode="after")
    def _sum_to_one(self) -> Self:
        total = sum(self.model_dump().values())
        if abs(total - 1) > 1e-9:
            raise ValueError(f"the weights sum to {total:g}; set every one so that they sum to 1")
        return self


class EvidenceWeights(Weights):
    format: Share = 0.05
    localisation: Share = 0.25
    grounding: Share = 0.15
    factuality: Share = 0.2
    caution: Share = 0.15
    limits: Share = 0.05
    support: Share = 0.05
    calibration: Share = 0.1


class ReplyWeights(Weights):
    caution: Share = 0.4
    sources: Share = 0.35
    support: Share = 0.25


class _CautiousRules(KindRules):
    language: Literal["en", "zh"] = "en"
    caution_gate: bool = False  # value 0 for an answer that claims a mental state, a diagnosis, an intent
    judge: JudgeConfig | None = None


class EvidenceRules(_CautiousRules):
    """A weighted sum of what can be seen, where, and how carefully it is said."""

    type: Literal["evidence"]
    weights: EvidenceWeights = EvidenceWeights()


class ReplyRules(_CautiousRules):
    """A cautious and supportive reply that claims nothing beyond its sources."""

    type: Literal["reply"]
    weights: ReplyWeights = ReplyWeights()


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
    def _names_and_bounds(self) -> Self:
        if len({part.name for part in self.parts}) < len(self.parts):
            raise ValueError("two parts have one name; give them a name each")
        if self.bounds[0] == -inf:
            raise ValueError(
                "a part has no lower bound, so no floor can lie below it; set most on every length_penalty"
            )
        return self


class PythonRules(Section):
    """A reward function of the user's own: `score(task, text)`, or one with TRL's signature (`docs/rewards.md`)."""

    type: Literal["python"]
    function: str  # "FILE.py:NAME" relative to the working directory, "PACKAGE.MODULE:NAME", or an entry point's "NAME"
    timeout_s: PositiveFloat = 5.0  # of one answer; then its worker is killed
    workers: Positive = 2  # processes
    floor: float = 0.0  # of an answer that the function calls invalid

    @field_validator("function")
    @classmethod
    def _names_a_function(cls, value: str) -> str:
        home, colon, name = value.rpartition(":")
        parts = [] if home.endswith(".py") or not colon else home.split(".")
        if (colon and not home) or not all(part.isidentifier() for part in (*parts, name)):
            raise ValueError(
                f'reward.function "{value}" names no function: write "FILE.py:NAME", the file relative to the working '
                'directory, "PACKAGE.MODULE:NAME", or the "NAME" of an entry point in the group oncurve.rewards'
            )
        return value


AnyKindRules = (
    GroundingRules | DetectionRules | PointingRules | CountingRules | OcrRules | ChoiceRules | ShortAnswerRules
    | MathRules | CodeRules | SqlRules | EvidenceRules | ReplyRules | TextRules
)  # fmt: skip
KIND_RULES: dict[str, type[KindRules]] = {
    rules.model_fields["type"].annotation.__args__[0]: rules for rules in AnyKindRules.__args__
}


class KindsRules(Section):
    """Every task by the rules of its own kind: for data sets that mix kinds."""

    type: Literal["kinds"]
    grounding: GroundingRules = GroundingRules()
    detection: DetectionRules = DetectionRules(type="detection")
    pointing: PointingRules = PointingRules(type="pointing")
    counting: CountingRules = CountingRules(type="counting")
    ocr: OcrRules = OcrRules(type="ocr")
    choice: ChoiceRules = ChoiceRules(type="choice")
    short_answer: ShortAnswerRules = ShortAnswerRules(type="short_answer")
    math: MathRules = MathRules(type="math")
    code: CodeRules = CodeRules(type="code")
    sql: SqlRules = SqlRules(type="sql")
    evidence: EvidenceRules = EvidenceRules(type="evidence")
    reply: ReplyRules = ReplyRules(type="reply")
    text: TextRules = TextRules(type="text")


Interval = Annotated[tuple[float, float], BeforeValidator(_tuple)]
KindName = Literal[
    "grounding", "detection", "pointing", "counting", "ocr", "choice", "short_answer",
    "math", "code", "sql", "evidence", "reply", "text",
]  # fmt: skip


class RewardPart(Section):
    """One summand of a composed reward: `weight` times what `rules` give, brought into `clamp`."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,40}$")]  # it becomes a part of a metric's name
    rules: Annotated[AnyKindRules | PythonRules, Field(discriminator="type")]
    take: str = "value"  # "value", "correct" (1 or 0), or the name of one of the score's own parts
    weight: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    clamp: Interval | None = None  # before the weight; a function of your own needs it, since its range isn't known
    gate: float | None = None  # below this, the parts that are no gates count 0
    invalid: Literal["invalid", "zero"] = (
        "invalid"  # what an answer that breaks this part's format is: invalid, or 0 here
    )
    kinds: Annotated[tuple[KindName, ...], BeforeValidator(_tuple)] | None = None  # only for tasks of these kinds

    @model_validator(mode="after")
    def _has_a_range(self) -> Self:
        if self.clamp and self.clamp[0] >= self.clamp[1]:
            raise ValueError(f"clamp {list(self.clamp)} is empty; write [low, high] with low < high")
        if self.clamp is None and (self.take not in ("value", "correct") or isinstance(self.rules, PythonRules)):
            if self.take == "format":
                return self
            what = f"part {self.take}" if self.take != "value" else "a function of your own"
            raise ValueError(f"part {self.name}: the range of {what} isn't known; give it a clamp, such as [0.0, 1.0]")
        return self

    def clamped(self, value: float) -> float:
        """`value` brought into `clamp`."""
        return min(max(value, self.clamp[0]), self.clamp[1]) if self.clamp else value

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the most that the part adds; a part whose answer is invalid or not graded counts 0, clamped."""
        of_your_own = isinstance(self.rules, PythonRules)
        if self.take in ("correct", "format"):
            ends = [0.0, 1.0]
        elif self.take == "value" and not of_your_own:
            ends = [*self.rules.bounds]
        else:
            ends = [*self.clamp]
        if self.invalid == "zero" or of_your_own:
            ends.append(0.0)
        added = [self.weight * self.clamped(end) for end in ends]
        return min(added), max(added)

    def is_for(self, kind: str) -> bool:
        return self.kinds is None or kind in self.kinds


class ComposeRules(Section):
    """A weighted sum of parts, with gates. Its breakdown is in every record."""

    type: Literal["compose"]
    parts: Annotated[tuple[RewardPart, ...], BeforeValidator(_tuple), Field(min_length=1)]
    clamp: Interval | None = None  # of the total
    floor: float | None = None  # of an invalid answer; None: the least that a scored answer can get
    normalise: Literal["after", "before"] = "after"  # before: each part within its group, then summed (GDPO)

    @model_validator(mode="after")
    def _doing_nothing_never_pays(self) -> Self:
        names = [part.name for part in self.parts]
        if len(set(names)) < len(names):
            raise ValueError(f"two parts are called {max(names, key=names.count)}; names must differ")
        low = min(self.lowest(kind) for kind in KIND_RULES if any(part.is_for(kind) for part in self.parts))
        if low == -inf:
            raise ValueError(
                "a scored answer can get less than any floor; give the parts without a lower end, or the total, a clamp"
            )
        if self.floor is not None and self.floor > low:
            raise ValueError(
                f"floor {self.floor:g} is above {low:g}, the least that a scored answer can get: a malformed answer "
                f"would pay; set floor to {low:g} or less, or leave it out"
            )
        return self

    def lowest(self, kind: str) -> float:
        """The least that a scored answer to a task of `kind` can get."""
        parts = [part for part in self.parts if part.is_for(kind)]
        gated = any(part.gate is not None for part in parts)  # a shut gate leaves the others 0
        low = sum(min(part.bounds[0], 0.0) if gated and part.gate is None else part.bounds[0] for part in parts)
        return min(max(low, self.clamp[0]), self.clamp[1]) if self.clamp else low

    def floor_of(self, kind: str) -> float:
        return self.lowest(kind) if self.floor is None else self.floor


RewardConfig = Annotated[AnyKindRules | PythonRules | KindsRules | ComposeRules, Field(discriminator="type")]
