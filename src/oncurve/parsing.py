"""Strict reading of what a model wrote: plain numbers, strict JSON, exactly one block. Nothing is searched for or mended.

Everything here raises `MalformedAnswer` alone and takes time linear in the text.
"""

import json
import re
from typing import Any

WHITE = " \t\r\n"
MAX_NUMBER_CHARACTERS = 20
MAX_JSON_DEPTH = 64
NUMBER = r"-?[0-9]+(?:\.[0-9]+)?"
_NUMBER = re.compile(NUMBER)


class MalformedAnswer(ValueError):
    """An answer that breaks its format. `reason` is a short slug that is counted, the message says it in words."""

    def __init__(self, reason: str, words: str):
        super().__init__(words)
        self.reason = reason


def not_empty(text: str) -> str:
    """The text without white space around it. Raises with reason `empty`."""
    if not (inner := text.strip(WHITE)) or not inner.strip():
        raise MalformedAnswer("empty", "the answer is empty")
    return inner


def plain_number(text: str) -> float:
    """ASCII digits, at most one leading minus and one point, at most 20 characters, no negative zero.

    Raises with reason `number`.
    """
    if len(text) > MAX_NUMBER_CHARACTERS:
        raise MalformedAnswer("number", f"a number of more than {MAX_NUMBER_CHARACTERS} characters")
    if not _NUMBER.fullmatch(text):
        raise MalformedAnswer("number", f"{text[:40]!r} is no plain number: digits, at most one minus and one point")
    value = float(text)
    if text.startswith("-") and not value:
        raise MalformedAnswer("number", "a negative zero")
    return value


def strict_json(text: str) -> Any:
    """The one JSON value that the text is, its numbers read by `plain_number`'s rule, kept int where they have no point.

    Raises with reason `json` (also for NaN, Infinity, a trailing comma, a second value), `duplicate_key`, `number` or
    `depth`.
    """
    not_empty(text)
    _shallow(text)
    try:
        return json.loads(
            text,
            object_pairs_hook=_no_key_twice,
            parse_float=_json_float,
            parse_int=_json_int,
            parse_constant=_no_constant,
        )
    except MalformedAnswer:
        raise
    except (ValueError, RecursionError) as error:
        raise MalformedAnswer("json", f"not one JSON value: {error}"[:200]) from None


def sole_block(text: str, opening: str, closing: str) -> str:
    """What stands between `opening` and `closing`, which are the whole text, each once, but for white space around.

    Raises with reason `empty`, `repeated_tags`, `text_around` or `syntax`.
    """
    inner = not_empty(text)
    if inner.count(opening) > 1 or inner.count(closing) > 1:
        raise MalformedAnswer(
            "repeated_tags", f"{opening} or {closing} stands there more than once; exactly one is asked for"
        )
    if not (opening in inner and closing in inner) or inner.index(closing) < inner.index(opening) + len(opening):
        raise MalformedAnswer("syntax", f"not of the form {opening}…{closing}")
    if not (inner.startswith(opening) and inner.endswith(closing)):
        raise MalformedAnswer("text_around", f"text before {opening} or behind {closing}")
    return inner[len(opening) : -len(closing)]


def _shallow(text: str) -> None:
    """Brackets inside strings count too: a bound on the depth needs no parser."""
    depth = 0
    for bracket in re.finditer(r"[\[{\]}]", text):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > MAX_JSON_DEPTH:
            raise MalformedAnswer("depth", f"JSON nested deeper than {MAX_JSON_DEPTH}")


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise MalformedAnswer("duplicate_key", "a key stands in an object twice")
    return found


def _json_float(text: str) -> float:
    return plain_number(text)


def _json_int(text: str) -> int:
    plain_number(text)
    return int(text)


def _no_constant(name: str) -> Any:
    raise MalformedAnswer("json", f"{name} is no JSON")
