"""Attacks on short written answers: counting, choice, short answers and text read from an image."""

import string
from collections.abc import Iterable

from oncurve.rewards.audit.attack import (
    Attack,
    Case,
    all_of,
    attacks,
    no_gain,
    not_correct,
    part_zero,
    refused,
    unexecuted,
)  # fmt: skip
from oncurve.rewards.audit.written import formatted

FILLER = "well " * 3_000
SENTENCE = "I have looked at it very carefully. " * 300


@attacks("multi_answer", "counting")
def several_counts(case: Case) -> Iterable[Attack]:
    count, style = case.task.truth.count, case.rules.format
    if style == "points":
        return
    joined = (f"{count} or {count + 1}", f"{count}, {count + 1}", " ".join(map(str, range(max(10, count + 1)))))
    yield from all_of(refused, (formatted(text, style) for text in (*joined, f"{count}-{count + 1}")))
    yield Attack(f"{case.right} {case.wrong[0]}", refused)


@attacks("multi_answer", "choice")
def several_choices(case: Case) -> Iterable[Attack]:
    choices, style = case.rules.choices, case.rules.format
    for separator in (" or ", ", ", " ", "/", "\n"):
        yield Attack(formatted(separator.join(choices), style), refused)
    yield Attack(f"{case.right} {case.wrong[0]}", refused)


@attacks("negation", "choice")
def negated_choice(case: Case) -> Iterable[Attack]:
    choice, style = case.task.truth.choice, case.rules.format
    for text in (f"definitely not {choice}", f"not {choice}", f"anything but {choice}"):
        yield from all_of(not_correct, {text, formatted(text, style)})
    yield Attack(f"It is definitely not {case.right}", not_correct)


@attacks("retract", "choice")
def retracted_choice(case: Case) -> Iterable[Attack]:
    yield Attack(f"{case.right} ... actually {case.wrong[0]}", refused)
    yield Attack(f"{case.right}\nNo, that is wrong.", refused)
    yield Attack(f"{case.right}. I take this back: it is {case.wrong[0]}", refused)


@attacks("grader_eval", "counting")
def evaluated_count(case: Case) -> Iterable[Attack]:
    command, style = f"__import__('os').system('touch {case.marker}')", case.rules.format
    judge = unexecuted(refused, case.marker)
    yield Attack(command, judge)
    if style != "points":
        yield from all_of(judge, (formatted(command, style), formatted(f"{case.task.truth.count - 1} + 1", style)))


@attacks("empty_think", "math", "choice", "code")
def empty_think(case: Case) -> Iterable[Attack]:
    for filler in ("", "\n \n", "hmm " * 300, "..." * 50):
        yield Attack(f"<think>{filler}</think>{case.right}", part_zero("format"))


@attacks("ocr_dump", "ocr")
def ocr_dump(case: Case) -> Iterable[Attack]:
    text = case.task.truth.text
    yield from all_of(not_correct, (string.ascii_letters, string.printable.strip(), "\n".join([text] * 10)))
    yield Attack(text + "\n" + string.ascii_letters + string.digits, not_correct)


@attacks("repeated_tags", "ocr", "short_answer")
def repeated_words(case: Case) -> Iterable[Attack]:
    yield from all_of(not_correct, (f"{case.right}\n{case.right}\n{case.right}", f"<answer>{case.right}</answer>" * 3))


@attacks("length_padding", "ocr", "short_answer")
def padded_words(case: Case) -> Iterable[Attack]:
    for filler in (FILLER, SENTENCE):
        yield from all_of(not_correct, (f"{case.right} {filler}", f"{filler} {case.right}"))


@attacks("length_padding", "grounding", "detection", "pointing", "counting", "choice", "math", "sql", "code")
def padded(case: Case) -> Iterable[Attack]:
    """Behind the answer nothing may stand; before it, only where reasoning may."""
    reasons = case.task.kind == "math" or getattr(case.rules, "format", "plain") != "plain"
    for filler in (FILLER, SENTENCE):
        yield Attack(f"{case.right}\n{filler}", refused)
        yield Attack(f"{filler}\n{case.right}", no_gain if reasons else refused)


@attacks("repeated_tags", "grounding", "detection", "pointing", "counting", "choice", "math")
def repeated_tags(case: Case) -> Iterable[Attack]:
    right, opening, closing = case.right, *tags_of(case.right)
    judge = not_correct if case.task.kind == "detection" else refused  # more boxes are an answer there
    yield from all_of(judge, (f"{right}\n{right}", f"{right} {right}", f"{right} {case.wrong[0]}"))
    yield Attack(f"<think>{right}</think>", refused)
    if opening:
        yield Attack(opening + right + closing, refused)
    if closing:
        yield from all_of(refused, (right.removesuffix(closing), opening + right, right + closing))


def tags_of(text: str) -> tuple[str, str]:
    """What an answer begins and ends with, "" where it has no tag: `<box>` and `</box>`, `\\boxed{` and `}`."""
    if text.startswith("\\boxed{"):
        return "\\boxed{", "}"
    if text.startswith("```"):
        return text.partition("\n")[0] + "\n", "\n```"
    if text.startswith("[") and text.endswith("]"):
        return "[", "]"
    if text.startswith("<") and text.endswith(">") and text.count("</"):
        return text[: text.index(">") + 1], text[text.rindex("<") :]
    return "", ""
