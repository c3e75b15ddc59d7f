"""The text verifier: a weighted sum of parts that need no truth. Each part is a pure function of the text."""

import math
from dataclasses import dataclass

import regex
from rapidfuzz.fuzz import ratio

from oncurve.config.rewards import TextRules
from oncurve.config.text_parts import (
    FillerPart,
    ForbiddenPart,
    LanguagePart,
    LengthCosinePart,
    LengthOverlongPart,
    LengthPenaltyPart,
    LengthTargetPart,
    ProcessPart,
    RepetitionPart,
    TagsPart,
    TextPart,
)
from oncurve.errors import BrokenTruth
from oncurve.parsing import MalformedAnswer, not_empty
from oncurve.rewards.final import encodable
from oncurve.rewards.measures import FILLER, filler, repetition, script_share, visible, words
from oncurve.rewards.scores import invalid
from oncurve.types import Rollout, Score, Task

VERIFIER = "text/1"
RESTATED = 85.0  # rapidfuzz's ratio of sorted words from which a section says what the one before said
COMPARED_CHARACTERS = 2000  # of each section
PATTERN_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class Context:
    """What is known of an answer besides its text: its tokens, and whether it is correct where something said so."""

    num_tokens: int = 0
    correct: bool | None = None


class Verifier:
    version = VERIFIER

    def check(self, task: Task, rules: TextRules) -> None:
        if not rules.parts:
            raise BrokenTruth('options.parts: no parts, so nothing is graded; write parts = [{type = "repetition"}]')

    def grade(self, task: Task, answer: Rollout, rules: TextRules) -> Score:
        return grade(answer.text, Context(len(answer.tokens)), rules)


def grade(text: str, context: Context, rules: TextRules) -> Score:
    """The sum of weight times value over the parts; `parts` holds the values. An empty text is invalid."""
    try:
        encodable(not_empty(text))
    except MalformedAnswer as fault:
        return invalid(fault, rules.bounds[0] if rules.floor is None else rules.floor, VERIFIER)
    values = {part.name: part_value(text, part, context) for part in rules.parts}
    weighted = {part.name: part.weight * values[part.name] for part in rules.parts}
    return Score(
        status="scored",
        value=sum(weighted.values()),
        correct=None,
        parts=values,
        evidence="; ".join(f"{name} {value:+.3f}" for name, value in weighted.items()),
        verifier=VERIFIER,
    )


def part_value(text: str, part: TextPart, context: Context) -> float:
    """The part's value, within `part.bounds`, before its weight. Takes any text and never raises."""
    match part:
        case TagsPart():
            return float(blocks(text, part.tags))
        case RepetitionPart():
            return 1 - repetition(text, part.n)
        case FillerPart():
            return 1 - filler(text, {word.lower() for word in part.words} or FILLER)
        case LengthTargetPart():
            return max(0.0, 1 - abs(length(text, part.unit, context) - part.target) / part.target)
        case LengthOverlongPart():
            over = length(text, part.unit, context) - (part.max_length - part.cache)
            return 0.0 - min(1.0, max(0.0, over / part.cache))
        case LengthCosinePart():
            return _cosine(length(text, part.unit, context), part, context.correct)
        case LengthPenaltyPart():
            penalty = part.per_unit * max(0, length(text, part.unit, context) - part.over)
            return 0.0 - min(penalty, math.inf if part.most is None else part.most)
        case LanguagePart():
            return script_share(text, part.language)
        case ForbiddenPart():
            return 0.0 - forbidden(text, part)
        case ProcessPart():
            return process(text, part.sections)


def length(text: str, unit: str, context: Context) -> int:
    """In characters, words (a Chinese character is one) or sampled tokens."""
    match unit:
        case "characters":
            return len(text)
        case "words":
            return len(words(text))
        case _:
            return context.num_tokens


def blocks(text: str, tags: tuple[str, ...]) -> bool:
    """Is the text one non-empty block of each tag, in order, with nothing around and no such tag inside one?"""
    rest = text
    for tag in tags:
        opening, closing = f"<{tag}>", f"</{tag}>"
        if text.count(opening) != 1 or text.count(closing) != 1 or not rest.lstrip().startswith(opening):
            return False
        inner, _, rest = rest.lstrip().removeprefix(opening).partition(closing)
        if not inner.strip() or any(f"<{other}>" in inner or f"</{other}>" in inner for other in tags):
            return False
    return not rest.strip()


def forbidden(text: str, part: ForbiddenPart) -> bool:
    shown = visible(text)
    for word in map(visible, part.words):
        ends = [r"\b" if edge.isascii() and edge.isalnum() else "" for edge in (word[:1], word[-1:])]
        if regex.search(f"{ends[0]}{regex.escape(word)}{ends[1]}", shown):
            return True
    try:
        return any(
            regex.search(pattern, shown, regex.IGNORECASE, timeout=PATTERN_TIMEOUT_S) for pattern in part.patterns
        )
    except TimeoutError:
        return True


def process(text: str, sections: tuple[str, ...]) -> float:
    """The share of sections that are not empty and not the one before once more, where all headings are in order."""
    starts = []
    for heading in sections:
        found = [m.span() for m in regex.finditer(rf"^[ \t#*]*{regex.escape(heading)}", text, regex.MULTILINE)]
        if len(found) != 1:
            return 0.0
        starts += found
    if starts != sorted(starts):
        return 0.0
    ends = [start for start, _ in starts[1:]] + [len(text)]
    bodies = [
        " ".join(sorted(words(text[begin:end][:COMPARED_CHARACTERS])))
        for (_, begin), end in zip(starts, ends, strict=True)
    ]
    new = [
        bool(body) and all(ratio(body, earlier) < RESTATED for earlier in bodies[max(0, i - 1) : i])
        for i, body in enumerate(bodies)
    ]
    return sum(new) / len(new)


def _cosine(at: int, part: LengthCosinePart, correct: bool | None) -> float:
    ends = (part.at_zero, part.at_max)
    if correct is False and part.wrong_at_zero is not None:
        ends = (part.wrong_at_zero, part.wrong_at_max)
    share = min(1.0, at / part.max_length)
    return ends[1] + (ends[0] - ends[1]) * (1 + math.cos(math.pi * share)) / 2
