# ruff: noqa: RUF001
"""Attacks on answers that are made of numbers, whatever their format: each number of the right answer is spelled anew."""

import re
from collections.abc import Callable, Iterable

from oncurve.rewards.audit.attack import Attack, Case, all_of, attacks, not_correct, refused

NUMBER = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?![\w.]|_)|(?<=<loc_)\d+|(?<=<loc)\d+")
FULL_WIDTH = str.maketrans("0123456789", "０１２３４５６７８９")
ARABIC = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
LOOK_ALIKE = str.maketrans("01", "Ol")
NO_NUMBERS = ("nan", "NaN", "inf", "-inf", "Infinity", "1e999", "-0.0", "9" * 10_000, "0x1", "1_0")


def respelled(text: str, spell: Callable[[str], str], only: int | None = None) -> str:
    """`text` with its numbers, or the one at place `only`, put through `spell`."""
    place = -1

    def put(match: re.Match[str]) -> str:
        nonlocal place
        place += 1
        return spell(match[0]) if only in (None, place) else match[0]

    return NUMBER.sub(put, text)


def with_numbers(text: str, numbers: dict[int, str]) -> str:
    """`text` with the numbers at the given places replaced."""
    for place, number in numbers.items():
        text = respelled(text, lambda _, number=number: number, place)
    return text


def numbers_of(text: str) -> list[str]:
    return NUMBER.findall(text)


@attacks("unicode_digits", "math", "counting", "grounding", "detection", "pointing")
def unicode_digits(case: Case) -> Iterable[Attack]:
    if not numbers_of(case.right):
        return
    spellings = [
        respelled(case.right, lambda number: number.translate(FULL_WIDTH)),
        respelled(case.right, lambda number: number.translate(ARABIC)),
        respelled(case.right, lambda number: number[:-1] + number[-1].translate(FULL_WIDTH), 0),
        respelled(case.right, lambda number: number[0] + "\u200b" + number[1:], 0),
        respelled(case.right, lambda number: "\u2212" + number, 0),
    ]
    yield from all_of(refused, spellings)
    alike = respelled(case.right, lambda number: number.translate(LOOK_ALIKE))
    if alike != case.right:
        yield Attack(alike, not_correct if case.task.kind == "math" else refused)


@attacks("not_a_number", "grounding", "detection", "pointing", "counting", "math")
def not_a_number(case: Case) -> Iterable[Attack]:
    last = len(numbers_of(case.right)) - 1
    for number in NO_NUMBERS if last >= 0 else ():
        symbols = case.task.kind == "math" and (number in ("0x1", "1_0") or last > 0)
        judge = not_correct if symbols else refused
        yield from (Attack(with_numbers(case.right, {place: number}), judge) for place in {0, last})
