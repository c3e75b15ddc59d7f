r"""What a final answer of mathematics is, read from LaTeX or plain text without evaluating anything.

An answer is a number, an expression, a word, a list, a set, a tuple or interval, a union of these, a matrix or a relation;
it may carry a unit. `read` takes time linear in the text and raises `MalformedAnswer` alone.
"""

import math
import re
import string
from dataclasses import dataclass, replace
from fractions import Fraction
from operator import itemgetter
from typing import Literal

from oncurve.parsing import MAX_NUMBER_CHARACTERS, MalformedAnswer, not_empty

Form = Literal["scalar", "text", "list", "set", "tuple", "union", "relation"]

MAX_CHARACTERS = 2000
MAX_DEPTH = 50
MAX_EXPONENT = 308  # of a number with an exponent, as of a double
MAX_MEMBERS = 20
PLAIN = frozenset(string.printable + "π∞°€£")

_SAME = [  # spellings of one thing
    (re.compile(r"\\(?:left|right|big|Big|bigg|Bigg|displaystyle|textstyle|limits)(?![A-Za-z])\.?"), ""),
    (re.compile(r"\{,\}|,\\!|(?<=[0-9])\\,(?=[0-9]{3}(?![0-9]))"), ","),
    (re.compile(r"(?<!\\)\\[,!;: ]|\\q?quad(?![A-Za-z])|~"), " "),
    (re.compile(r"\\(?:mathrm|textrm|textbf|textit|mathbf|mbox|operatorname)\s*\{"), r"\\text{"),
    (re.compile(r"\\[dtc]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\frac\s*([0-9])|\\frac\s+([A-Za-z])"), r"\\frac{\1\2}"),
    (re.compile(r"(\\frac\s*\{(?:[^{}]|\{[^{}]*\})*\})\s*([0-9A-Za-z])"), r"\1{\2}"),
    (re.compile(r"_\s*([0-9])"), r"_{\1}"),
    (re.compile(r"\\sqrt\s*([0-9A-Za-z])"), r"\\sqrt{\1}"),
    (re.compile(r"(?<![\\A-Za-z])sqrt\(([^()]*)\)"), r"\\sqrt{\1}"),
    (re.compile(r"\\(sin|cos|tan)\s*\^\s*\{\s*-\s*1\s*\}"), r"\\arc\1 "),
    (re.compile(r"\\varnothing(?![A-Za-z])|\\\{\s*\\\}"), r"\\emptyset "),
    (re.compile(r"(?<![\\A-Za-z])(sin|cos|tan|ln|log|pi)(?![A-Za-z])"), r"\\\1 "),
    (re.compile(r"π"), r"\\pi "),
    (re.compile(r"∞"), r"\\infty "),
    (re.compile(r"°|\\degree(?![A-Za-z])|\^\s*\{\s*\\circ\s*\}"), r"^\\circ "),
    (re.compile(r"\\(le|ge|ne)q(?![A-Za-z])"), r"\\\1"),
    (re.compile(r"\\lt(?![A-Za-z])"), "<"),
    (re.compile(r"\\gt(?![A-Za-z])"), ">"),
    (re.compile(r"\\lbrace(?![A-Za-z])"), r"\\{"),
    (re.compile(r"\\rbrace(?![A-Za-z])"), r"\\}"),
    (re.compile(r"\\dots(?![A-Za-z])|\\cdots(?![A-Za-z])|\.\.\."), r"\\ldots "),
]
_BOMBS = [
    re.compile(
        r"(?:\^|(?<=[\w)}])\s*\*\*)(?:[\s{(]|\\left)*[0-9]+(?:[\s)}]|\\right)*(?:\^|\*\*|!)"
    ),  # a tower of powers
    re.compile(r"\^[\s{(]*-?[0-9]{5}"),
    re.compile(r"[0-9]{4}\s*!|!(?:[\s)}]|\\right)*!|\^\s*\{?[0-9]*\}?\s*\)\s*!"),
    re.compile(r"\\d?binom\s*\{\s*[0-9]{5}"),
]
_NUMBERS = re.compile(r"[0-9.]+(?:[eE][+-]?[0-9]+)?")
_NAMED_NUMBER = re.compile(r"(?<![A-Za-z])[+-]?(?:nan|inf|infinity)(?![A-Za-z])", re.IGNORECASE)
_WORDS = re.compile(r"\\text\s*\{([^{}]*)\}|((?=.*[A-Za-z]{3})[A-Za-z](?:[A-Za-z ]|['-](?=[A-Za-z]))+)")
_IN_TEXT = re.compile(r"\\text\s*\{\s*(?:(-?[0-9][0-9.,/]*)|\(?([A-Za-z])\)?)\s*\}")  # a number, a letter
_IN_BRACES = re.compile(r"\{([^{}]*)\}")
_BASE = re.compile(r"(-?[0-9]+)\s*_\{\s*\(?([0-9]{1,2})\)?\s*\}")
_TEXT = re.compile(r"\\text\s*\{[^{}]*\}")
_COMMAND = re.compile(r"\\(?:[A-Za-z]+|.)", re.DOTALL)
_PROSE = re.compile(r"[A-Za-z]{4}")
_AND = r"\\text\s*\{\s*(?:and|or)\s*\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])"
_TOKEN = re.compile(
    r"(?P<open>\\\{|[({\[]|\\begin(?![A-Za-z])|\\[lb]?floor|\\lceil)|(?P<close>\\\}|[)}\]]|\\end(?![A-Za-z])|\\rfloor|\\rceil)"
    r"|(?P<relation>=|\\(?:ne|le|ge|approx|equiv|in|sim|to|Rightarrow|implies)(?![A-Za-z])|[<>])"
    rf"|(?P<union>\\cup(?![A-Za-z]))|(?P<comma>[,;]\s*(?:{_AND})?|{_AND})"
    r"|\\(?:[A-Za-z]+|.)",
    re.DOTALL,
)
_DECIMAL = r"(?:[0-9]+|[1-9][0-9]{0,2}(?:,[0-9]{3})+)?(?:\.[0-9]+)?"
_NUMBER = re.compile(rf"(-?)\s*(?=[0-9.])({_DECIMAL}(?:[eE][+-]?[0-9]+)?)")
_TEN = r"\s*(?:\\times|\\cdot|\*)\s*10\s*\^\s*(?:\{\s*(-?[0-9]{1,3})\s*\}|([0-9]))"
_SCIENTIFIC = re.compile(rf"(-?)\s*(?=[0-9.])({_DECIMAL}){_TEN}")
_FRACTION = re.compile(r"(-?)\s*(?:([0-9]+)\s*)?\\frac\s*\{\s*(-?)\s*([0-9]+)\s*\}\s*\{\s*(-?)\s*([0-9]+)\s*\}")
_QUOTIENT = re.compile(r"(-?)\s*(?:([0-9]+)\s+)?()([0-9]+)\s*/\s*()([0-9]+)")
_REPEATING = re.compile(r"(-?)\s*([0-9]*)\.([0-9]*)\\(?:overline|bar|dot)\s*\{?\s*([0-9]+)\s*\}?")
_CURRENCY = re.compile(r"(-?)\s*(\\?\$|€|£)\s*(?=[0-9.\\-])")
_POWER = r"(?:\s*\^\s*\{?\s*[0-9]\s*\}?)?"
_UNIT = re.compile(
    rf"\s?(\\text\s?\{{[^{{}}]*\}}{_POWER}|\\?%|\^\s?\\circ\s?(?:\\text\s?\{{\s?[CF]\s?\}}|[CF])?"
    rf"|(?<=[0-9}} ])[A-Za-z][A-Za-z/ ]*{_POWER})$"
)

_METRIC = {"m": "meter metre", "g": "gram gramme", "L": "l liter litre"}
_PREFIXES = {"k": "kilo", "c": "centi", "m": "milli", "d": "deci", "": ""}
_OTHERS = {
    "s": "sec second", "min": "minute", "h": "hr hour", "day": "", "week": "", "month": "", "year": "yr",
    "in": "inch inches", "ft": "foot feet", "yd": "yard", "mi": "mile", "lb": "lbs pound", "oz": "ounce", "t": "ton tonne",
    "mph": "mi/h", "km/h": "kmh kph", "m/s": "", "N": "newton", "J": "joule", "W": "watt", "Hz": "hertz",
    "%": r"percent \%", "deg": r"degree ^\circ", "degc": r"^\circc", "degf": r"^\circf",
    "$": r"\$ dollar usd buck", "€": "euro eur", "£": "gbp", "cent": "", "rad": "radian",
}  # fmt: skip


def _units() -> dict[str, str]:
    names = {
        spelling: prefix + base
        for base, words in _METRIC.items()
        for prefix, name in _PREFIXES.items()
        for spelling in (
            prefix + base,
            prefix + base.lower(),
            *(name + word + s for word in words.split() for s in ("", "s")),
        )
    }
    for unit, words in _OTHERS.items():
        names |= {word + s: unit for word in (unit, *words.split()) for s in ("", "s" * (len(word) > 1))}
    return names


UNITS = _units()
"""Spellings of units, in lower case from three letters on, and the unit that each means. There are no conversions."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A final answer: the LaTeX of its members, or of a relation's sides; brackets or signs between; a unit."""

    form: Form
    items: tuple[str, ...]
    marks: tuple[str, ...] = ()
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Number:
    """A number that is written out: `worked_out` is false for a fraction that is a whole number."""

    value: Fraction
    worked_out: bool


def read(text: str, allowed: str = "") -> Answer:
    """The answer that a text is. `allowed`: characters beside ASCII that the truth has.

    Raises with reason `empty`, `memory` (more than a grader takes on: its length, depth or powers), `characters`,
    `number` or `syntax`.
    """
    whole = not_empty(text)
    _affordable(whole)
    if strange := set(whole) - PLAIN - set(allowed):
        raise MalformedAnswer("characters", f"not plain characters: {', '.join(map(ascii, sorted(strange)))}"[:120])
    plain = _undressed(whole)
    _plain_numbers(plain)
    return _structure(plain)


def number(latex: str) -> Number | None:
    """The number that is written out: a decimal, a fraction, a mixed number, or one times a power of ten; else None.

    Raises with reason `number` for a denominator of 0, a negative zero or an exponent beyond 308.
    """
    if match := _NUMBER.fullmatch(latex):
        sign, digits = match.groups()
        value, written = Fraction(digits.replace(",", "")), True
    elif match := _SCIENTIFIC.fullmatch(latex):
        sign, digits, braced, bare = match.groups()
        if abs(exponent := int(braced or bare)) > MAX_EXPONENT:
            raise MalformedAnswer("number", f"an exponent beyond {MAX_EXPONENT}")
        value, written = Fraction(digits.replace(",", "")) * Fraction(10) ** exponent, True
    elif match := _FRACTION.fullmatch(latex) or _QUOTIENT.fullmatch(latex):
        sign, whole, top_sign, top, bottom_sign, bottom = match.groups()
        if not int(bottom) or (whole and top_sign + bottom_sign):
            raise MalformedAnswer("number", f"{latex[:40]!r} is no number")
        value = int(whole or 0) + Fraction(int(top_sign + top), int(bottom_sign + bottom))
        written = value.denominator > 1
    elif match := _REPEATING.fullmatch(latex):
        sign, whole, once, again = match.groups()
        value = Fraction(int(whole + once + again) - int(whole + once or 0), 10 ** len(once + again) - 10 ** len(once))
        written = True
    else:
        return None
    if sign and not value:
        raise MalformedAnswer("number", "a negative zero")
    return Number(-value if sign else value, written)


def is_numeric(latex: str) -> bool:
    """No variable stands in it; `e` and `i` are numbers."""
    return not re.search(r"[A-Za-z]", re.sub(r"(?<![A-Za-z])[ei](?![A-Za-z])", "", _COMMAND.sub(" ", latex)))


def operations(latex: str) -> int:
    """How many operations are written: signs between terms, products, quotients, powers, roots, functions."""
    return len(re.findall(r"[-+*/^!]|\\(?!pi|infty|text|[{}%$|])[A-Za-z]+", latex))


def commands(latex: str) -> set[str]:
    r"""The commands of LaTeX in it and `!`. Example: `{"\\frac", "\\sqrt"}`."""
    return set(_COMMAND.findall(latex)) | ({"!"} & set(latex))


def unit_name(text: str) -> str:
    """One name for the spellings of a unit; what is not known is compared as it is written, but for a plural s."""
    plain = _COMMAND.sub(lambda command: "" if command[0] == r"\text" else command[0], text)
    plain = re.sub(r"[{}\s]", "", plain).rstrip(".").replace("°", r"^\circ")
    if square := re.match(r"(square|sq\.?|cubic)", plain):
        plain = plain[square.end() :] + ("^3" if square[0] == "cubic" else "^2")
    name, _, power = plain.partition("^") if not plain.startswith("^") else (plain, "", "")
    name = name if len(name) < 3 else name.lower()
    known = UNITS.get(name) or (name.removesuffix("s") if len(name) > 2 else name)
    return f"{known}^{power}" if power else known


def _affordable(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise MalformedAnswer("memory", f"an answer of more than {MAX_CHARACTERS} characters")
    depth = 0
    for bracket in re.finditer(r"[\[({\])}]", text):
        depth += 1 if bracket[0] in "[({" else -1
        if depth > MAX_DEPTH:
            raise MalformedAnswer("memory", f"nested deeper than {MAX_DEPTH}")
    if any(bomb.search(text) for bomb in _BOMBS):
        raise MalformedAnswer("memory", "a power or factorial too large to work out")


def _undressed(text: str) -> str:
    """Without dollars and stars around, a full stop, and what only lays out."""
    text = text.strip("*" + string.whitespace)
    for opening, closing in (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")):
        if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening + closing):
            text = text[len(opening) : -len(closing)]
            break
    for spelling, same in _SAME:
        text = spelling.sub(same, text)
    text = " ".join(text.split()).removesuffix(".").rstrip()
    if dressed := _IN_TEXT.fullmatch(text) or _IN_BRACES.fullmatch(text):
        text = "".join(filter(None, dressed.groups()))
    return not_empty(text)


def _plain_numbers(text: str) -> None:
    for token in _NUMBERS.findall(text):
        mantissa, _, exponent = token.lower().partition("e")
        too_large = exponent and abs(int(exponent)) > MAX_EXPONENT if len(exponent) < MAX_NUMBER_CHARACTERS else True
        if len(token) > MAX_NUMBER_CHARACTERS or mantissa.count(".") > 1 or too_large:
            raise MalformedAnswer("number", f"{token[:40]!r} is no plain number")
    if _NAMED_NUMBER.search(text) or re.search(r"-\s*-|\+\s*\+", text):
        raise MalformedAnswer("number", f"{text[:40]!r} is no plain number")
    if re.search(r"[0-9]\s+[0-9]", re.sub(r"([0-9])\s+([0-9]+\s*/)", r"\1 _\2", text)):
        raise MalformedAnswer("number", "two numbers side by side")


def _structure(text: str) -> Answer:
    if scalar := _measured(text):
        return scalar
    signs = _outside_brackets(text)
    if relations := [sign for sign in signs if sign.lastgroup == "relation"]:
        sides = _between(text, relations)
        _readable(sides)
        return Answer("relation", tuple(sides), tuple(sign[0] for sign in relations))
    if unions := [sign for sign in signs if sign.lastgroup == "union"]:
        members = [_member(part) for part in _between(text, unions)]
        starts = [_start(member) for member in members]
        if None not in starts:
            members = [member for _, member in sorted(zip(starts, members, strict=True), key=itemgetter(0))]
        items = tuple(item for member in members for item in member.items)
        return Answer("union", items, tuple(f"{m.form}{''.join(m.marks)}{len(m.items)}" for m in members))
    return _members("list", _between(text, signs)) if signs else _member(text)


def _start(member: Answer) -> Fraction | float | None:
    """Where an interval begins, so that the order in a union is free; None where that is no number."""
    first = member.items[0]
    if first.lstrip("+-").strip() == r"\infty":
        return -math.inf if first.startswith("-") else math.inf
    return found.value if (found := number(first)) else None


def _measured(text: str) -> Answer | None:
    """A number that is written out, with its unit; None for anything else."""
    value, unit = _without_unit(text)
    return Answer("scalar", (value,), (), unit) if number(value) else None


def _member(text: str) -> Answer:
    """What has no relation, union or comma at its top: a bracketed collection, a word, an expression."""
    inner, brackets = text, ""
    if text[:2] == r"\{" and text[-2:] == r"\}":
        inner, brackets = text[2:-2], "{}"
    elif text[0] in "([" and text[-1] in ")]":
        inner, brackets = text[1:-1], text[0] + text[-1]
    commas = _commas(inner) if brackets and inner.strip() else None
    if brackets == "{}" and commas is not None:
        return _members("set", _between(inner, commas))
    if commas:
        return replace(_members("tuple", _between(inner, commas)), marks=tuple(brackets))
    if word := _WORDS.fullmatch(text):
        return Answer("text", (" ".join((word[1] or word[2] or "").split()).casefold(),))
    if r"\pm" in text:
        return _members("list", [text.replace(r"\pm", sign, 1).removeprefix("+").strip() for sign in "+-"])
    value, unit = _without_unit(text)
    _readable([value])
    return Answer("scalar", (value,), (), unit)


def _members(form: Form, parts: list[str]) -> Answer:
    if len(parts) > MAX_MEMBERS:
        raise MalformedAnswer("memory", f"more than {MAX_MEMBERS} members")
    _readable(parts)
    return Answer(form, tuple(parts))


def _readable(parts: list[str]) -> None:
    for part in parts:
        bare = _COMMAND.sub(" ", _TEXT.sub(" ", part)) if r"\begin" not in part else ""
        if not part.strip() or _PROSE.search(bare) or re.search(r"['\"`_]{2}|[@#&?\"`$]|[A-Za-z]\.[A-Za-z]", bare):
            raise MalformedAnswer("syntax", f"{part[:60]!r} is no mathematics")


def _without_unit(text: str) -> tuple[str, str]:
    if currency := _CURRENCY.match(text):
        return currency[1] + text[currency.end() :], unit_name(currency[2])
    if based := _BASE.fullmatch(text):
        return based[1], f"base {based[2]}"
    if not (unit := _UNIT.search(text)) or not (value := text[: unit.start()].rstrip()):
        return text, ""
    is_unit = unit[1][0] in "\\^%" or (
        number(value) and (_known(unit[1]) or len(unit[1].partition("^")[0].rstrip()) > 2)
    )  # else variables
    return (value, unit_name(unit[1])) if is_unit else (text, "")


def _known(unit: str) -> bool:
    return unit_name(unit).partition("^")[0] in UNITS.values()


def _commas(inner: str) -> list[re.Match[str]] | None:
    """The commas outside all brackets; None where the brackets don't close, as in `x+1)(x-1`."""
    try:
        return [sign for sign in _outside_brackets(inner) if sign.lastgroup == "comma"]
    except MalformedAnswer:
        return None


def _outside_brackets(text: str) -> list[re.Match[str]]:
    """Relations, unions and commas outside all brackets. Raises with reason `syntax` where a bracket has no other half."""
    found, depth = [], 0
    for token in _TOKEN.finditer(text):
        if token.lastgroup in ("open", "close"):
            depth += 1 if token.lastgroup == "open" else -1
            if depth < 0:
                raise MalformedAnswer("syntax", "a bracket is closed that was not opened")
        elif token.lastgroup and not depth:
            found.append(token)
    if depth:
        raise MalformedAnswer("syntax", "a bracket is not closed")
    return found


def _between(text: str, signs: list[re.Match[str]]) -> list[str]:
    """What stands before, between and behind the signs. Raises with reason `empty` where nothing does."""
    starts, ends = [0, *(sign.end() for sign in signs)], [*(sign.start() for sign in signs), len(text)]
    return [not_empty(text[start:end]) for start, end in zip(starts, ends, strict=True)]
