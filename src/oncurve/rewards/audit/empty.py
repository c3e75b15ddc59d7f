"""Attacks that say nothing, for every kind."""

from collections.abc import Iterable

from oncurve.rewards.audit.attack import Attack, Case, all_of, attacks, refused
from oncurve.rewards.audit.words import tags_of
from oncurve.truths import FORMS

FREE = ("ocr", "short_answer", "reply", "text")  # kinds whose answer is any text
WHITE = ("", " ", "\n\n\t \n", "\u00a0\u3000")


@attacks("empty_answer", *FORMS)
def empty(case: Case) -> Iterable[Attack]:
    yield from all_of(refused, WHITE)
    opening, closing = tags_of(case.right)
    if closing and opening != "[" and "=" not in opening and case.task.kind not in FREE:
        yield from all_of(refused, (opening + closing, f"{opening} \n{closing}"))
