"""Parts of a text that can be measured without a truth, each with its range and a weight."""

import math
from typing import Annotated, Literal, Self

import regex
from pydantic import BeforeValidator, Field, field_validator, model_validator

from oncurve.config.base import NotNegative, Positive, PositiveFloat, Section


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value  # TOML and JSON have no tuples


Slug = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,40}$")]  # it becomes a part of a metric's name
Word = Annotated[str, Field(min_length=1)]
Words = Annotated[tuple[Word, ...], BeforeValidator(_tuple)]
LengthUnit = Literal["characters", "words", "tokens"]
Bounds = tuple[float, float]


class Part(Section):
    """What every part has: a name, which is its type unless set, and the weight of its value in the sum."""

    type: str
    name: Slug = ""
    weight: float = 1.0

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: object) -> object:
        return {"name": values.get("type", ""), **values} if isinstance(values, dict) else values

    @property
    def bounds(self) -> Bounds:
        """The least and the most that its value can be, before the weight."""
        return 0.0, 1.0


class TagsPart(Part):
    """1 where the text is one block of each tag, in this order, none empty, with nothing around them; otherwise 0."""

    type: Literal["tags"]
    tags: Annotated[tuple[Slug, ...], BeforeValidator(_tuple), Field(min_length=1)] = ("think", "answer")


class RepetitionPart(Part):
    """The share of the text's n-grams of words that did not stand there before."""

    type: Literal["repetition"]
    n: Positive = 3


class FillerPart(Part):
    """The share of words that are no filler. `words` replaces the list that is shipped."""

    type: Literal["filler"]
    words: Words = ()


class LengthTargetPart(Part):
    """1 at `target`, falling in a line to 0 at nothing and at twice of it."""

    type: Literal["length_target"]
    target: Positive
    unit: LengthUnit = "words"


class LengthOverlongPart(Part):
    """DAPO's soft punishment (arXiv 2503.14476, equation 13): 0 up to `max_length - cache`, then in a line to -1."""

    type: Literal["length_overlong"]
    max_length: Positive
    cache: Positive
    unit: LengthUnit = "tokens"

    @property
    def bounds(self) -> Bounds:
        return -1.0, 0.0

    @model_validator(mode="after")
    def _cache_is_part_of_it(self) -> Self:
        if self.cache > self.max_length:
            raise ValueError(f"cache {self.cache} is more than max_length {self.max_length}")
        return self


class LengthCosinePart(Part):
    """Half a cosine from `at_zero` to `at_max` (arXiv 2502.03373, section 4.2), for wrong answers between values of their own.

    The `wrong_` values count only where correctness is known, that is beside a verifier of another kind.
    """

    type: Literal["length_cosine"]
    max_length: Positive
    at_zero: float = 1.0
    at_max: float = 0.0
    wrong_at_zero: float | None = None
    wrong_at_max: float | None = None
    unit: LengthUnit = "tokens"

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.wrong_at_zero is None) != (self.wrong_at_max is None):
            raise ValueError("wrong_at_zero and wrong_at_max go together; set both or none")
        return self

    @property
    def bounds(self) -> Bounds:
        ends = [v for v in (self.at_zero, self.at_max, self.wrong_at_zero, self.wrong_at_max) if v is not None]
        return min(ends), max(ends)


class LengthPenaltyPart(Part):
    """`-per_unit` for each character (word, token) over `over`, at most `most` in all."""

    type: Literal["length_penalty"]
    over: NotNegative
    per_unit: PositiveFloat
    most: PositiveFloat | None = None
    unit: LengthUnit = "characters"

    @property
    def bounds(self) -> Bounds:
        return -math.inf if self.most is None else -self.most, 0.0


class LanguagePart(Part):
    """The share of letters that are of the language's script: Latin for `en`, Chinese for `zh`."""

    type: Literal["language"]
    language: Literal["en", "zh"] = "en"


class ForbiddenPart(Part):
    """-1 where one of the words stands in the text or one of the patterns matches; otherwise 0.

    Case, full-width forms and zero-width characters make no difference. A pattern that takes longer than a second counts
    as a match.
    """

    type: Literal["forbidden"]
    words: Words = ()
    patterns: Words = ()

    @property
    def bounds(self) -> Bounds:
        return -1.0, 0.0

    @field_validator("patterns")
    @classmethod
    def _compile(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                regex.compile(pattern)
            except regex.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
        return patterns

    @model_validator(mode="after")
    def _forbids_something(self) -> Self:
        if not self.words and not self.patterns:
            raise ValueError("nothing is forbidden; set words or patterns")
        return self


class ProcessPart(Part):
    """The share of sections that say something new; 0 unless every heading begins a line, once, in this order.

    A section that is empty, or that only says again what the one before said, is not counted.
    """

    type: Literal["process"]
    sections: Annotated[Words, Field(min_length=1)]


TextPart = Annotated[
    TagsPart | RepetitionPart | FillerPart | LengthTargetPart | LengthOverlongPart | LengthCosinePart
    | LengthPenaltyPart | LanguagePart | ForbiddenPart | ProcessPart,
    Field(discriminator="type"),
]  # fmt: skip
