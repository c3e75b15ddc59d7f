r"""The one final answer of a text, for the kinds that share a rule: counting, choice, mathematics.

`plain`: the whole text is the answer. `tag`, `boxed`, `hash`: reasoning may stand before `<answer>…</answer>`,
`\boxed{…}` or `#### …`; the answer stands there once, and behind it nothing but white space, closing dollars or brackets
of LaTeX, closing stars of Markdown, and a full stop. Linear in the text; raises `MalformedAnswer` alone.
"""

import re
from dataclasses import dataclass
from typing import Literal

from oncurve.parsing import WHITE, MalformedAnswer, not_empty
from oncurve.rewards.measures import says_nothing

Format = Literal["plain", "tag", "boxed", "hash"]

_OPENINGS = {"tag": "<answer>", "boxed": r"\boxed{", "hash": "####"}
SHOWN = {"tag": "<answer>…</answer>", "boxed": r"\boxed{…}", "hash": "#### …"}
_TWICE = {"tag": r"</?answer>", "boxed": r"\\(?:boxed|fbox)\b", "hash": r"####"}
_BEHIND = re.compile(r"(?:\\[\])\\]|\\end\{[a-z]{1,20}\*?\}|[\s.$*]){0,20}")
_NEGATED = re.compile(
    r"(?:\b(?:not|never|neither|nor|cannot|without|except|wrong|incorrect)\b|n['\u2019]t\b|\\n(?:e|eq|ot)\b|\u2260"
    r"|other\ than|anything\ but|instead\ of|rather\ than)"
    r"(?:(?:[ \t]+(?!(?:but|so|thus|therefore|hence|then|instead|rather)\b)[\w'=]+){0,3}[ \t:=$*]*|(?:[\s:=$*]|\\[\[(])*)\Z",
    re.IGNORECASE | re.VERBOSE,
)
_NEGATED_WITHIN = 80  # characters before the answer
MAX_BOXED_CHARACTERS = 4000
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Final:
    """The answer as written, and whether the reasoning before it, where it has tags, says anything."""

    inner: str
    reasoned: bool = True


def final_answer(text: str, form: Format) -> Final:
    r"""The one final answer.

    Raises with reason `empty`, `characters` (half a surrogate pair), `memory` (a box that is too long), `no_answer`,
    `multi_answer`, `syntax`, `text_around` (behind the answer), `negated` ("it is not \\boxed{42}") or `repeated_tags`
    (`<think>` twice, unclosed or around the answer).
    """
    whole = encodable(not_empty(text))
    if form == "plain":
        return Final(whole)
    if not (answers := re.findall(_TWICE[form], whole)):
        raise MalformedAnswer("no_answer", f"no {SHOWN[form]} in the answer")
    if len(answers) > (2 if form == "tag" else 1):
        raise MalformedAnswer(
            "multi_answer", f"{SHOWN[form]} stands there more than once; one final answer is asked for"
        )
    before, opening, rest = whole.partition(_OPENINGS[form])
    inner, behind = _ends(rest, form) if opening else (None, "")
    if inner is None:
        raise MalformedAnswer("syntax", f"{SHOWN[form]} is not closed")
    if not _BEHIND.fullmatch(behind):
        raise MalformedAnswer("text_around", "text stands behind the final answer")
    if _NEGATED.search(before[-_NEGATED_WITHIN:]):
        raise MalformedAnswer("negated", f"the answer is denied: {before[-40:]!r} stands before it")
    return Final(not_empty(inner), _reasoned(before, behind + inner))


def encodable(text: str) -> str:
    """The text. Raises with reason `characters` for half a surrogate pair, which no record can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise MalformedAnswer("characters", "half a surrogate pair stands in the answer") from None
    return text


def _ends(rest: str, form: Format) -> tuple[str | None, str]:
    """What stands in the block that `rest` begins in, and what stands behind it."""
    if form == "tag":
        inner, closing, behind = rest.partition("</answer>")
        return (inner if closing else None), behind
    if form == "hash":
        inner, _, behind = rest.strip(WHITE).partition("\n")
        return inner, behind
    depth = 1
    for brace in _BRACE.finditer(rest, 0, MAX_BOXED_CHARACTERS):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if not depth:
            return rest[: brace.start()], rest[brace.end() :]
    if len(rest) > MAX_BOXED_CHARACTERS:
        raise MalformedAnswer("memory", f"a box of more than {MAX_BOXED_CHARACTERS} characters")
    return None, ""


def _reasoned(before: str, after: str) -> bool:
    opened, closed = before.count("<think>"), before.count("</think>")
    if opened > 1 or closed > 1 or opened > closed or "think>" in after:
        raise MalformedAnswer("repeated_tags", "the reasoning's tags are repeated, not closed, or around the answer")
    thought, closing, _ = before.partition("</think>")
    if opened and not thought.lstrip(WHITE).startswith("<think>"):
        raise MalformedAnswer("repeated_tags", "the answer does not begin with its <think>, or closes it first")
    return not closing or not says_nothing(thought.replace("<think>", ""))
