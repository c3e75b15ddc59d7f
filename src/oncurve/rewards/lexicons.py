"""Words that a text may not say, ought to say, or says of what can be seen: English and Chinese, shipped as TOML.

Everything is lexical: it knows words and the order of clauses, not what they mean. `docs/rewards/evidence.md` says
where that ends. All functions are linear in the text, whose length the kinds bound.
"""

import re
import tomllib
import unicodedata
from bisect import bisect, bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources

LANGUAGES = ("en", "zh")
HAN = r"\u3400-\u4dbf\u4e00-\u9fff"
MIN_TOKENS = 12  # a shorter text can't be said to repeat itself
MAX_REPEATED = 0.4  # share of a text's tokens that stood there before
MAX_DENSITY = 0.75  # share of a text's words that the phrases which are looked for may be
MAX_PHRASES = 3  # such phrases in a short text
WORDS_A_PHRASE = 12  # words that make room for one more of them
MIN_WORDS = 4  # of a text that says something
FEELING = ("feels", "felt")

MAX_JOINED = 8  # words that may share one "can't be known" behind them

LOOK_ALIKES = str.maketrans(
    "аеорсухіјѕһԁԛԝкмтнвьгзпиαοεικνρτυχηωγςσвᴀʙᴄᴅᴇɢʜɪᴊᴋʟᴍɴᴏᴘʀᴛᴜᴠᴡʏᴢıɑɡɩøłđ",
    "aeopcyxijshdqwkmthbbrenuaoeikvptuxnwycobabcdeghijklmnoprtuvwyziagiold",
)
"""Cyrillic, Greek and small capital letters that look like Latin ones."""

_DIGITS = str.maketrans("013457@$", "oieastas")
_MIXED = re.compile(r"(?<![a-z0-9])(?=[0-9@$]*[a-z])(?=[a-z]*[0-9@$])[a-z0-9@$]+")
_SPELLED = re.compile(r"(?<![a-z0-9])[a-z](?: [a-z]){2,}(?![a-z0-9])")
_BETWEEN_HAN = re.compile(rf"(?<=[{HAN}])[\s·•.\-_*~'\"]+(?=[{HAN}])")
_INSIDE = re.compile(r"(?<=[a-z0-9])[-_*~./|+=]+(?=[a-z0-9])")
_TOKENS = re.compile(rf"[a-z0-9]+|[{HAN}]")
_ENDINGS = re.compile(
    r"(?<=[a-z]{3})(?:ied|ies|ying|iety|iously|ious|fully|ful|iness|ness|ingly|ing|edly|ed|ily|ly|es|s|y|e)$"
)
_JOINED = re.compile(r"(?:\s|(?:and|or|nor)\b|或|否|等)*")
_DEFINITE = re.compile(r"(?<![a-z])(?:the|this|that) $")
_ENDS = r"[.!?;。\n()\[\]{}—]"


@dataclass(frozen=True, slots=True)
class Lexicon:
    """One language's patterns, each an alternation of its entries. Attributes by axis, then name: `head`, `down`."""

    claims: Mapping[str, re.Pattern]  # mental_states, diagnoses, intents
    wording: Mapping[str, re.Pattern]
    attributes: Mapping[str, Mapping[str, re.Pattern]]
    about: re.Pattern
    offering: re.Pattern
    neutral: frozenset[str]  # stems of words, or characters of Chinese, that say nothing of what was seen or told


@cache
def lexicon(language: str) -> Lexicon:
    """The lexicon of `en` or `zh`, or of both where `language` is `any`."""
    tables = [_table(name) for name in (LANGUAGES if language == "any" else (language,))]

    def join(*path: str) -> re.Pattern:
        found = tables
        for key in path:
            found = [table.get(key, {}) for table in found]
        return _pattern([entry for entries in found for entry in entries])

    axes = {axis: table for part in tables for axis, table in part["attributes"].items()}
    return Lexicon(
        {name: join("claims", name) for name in tables[0]["claims"]},
        {name: join("wording", name) for name in tables[0]["wording"]},
        {axis: {name: join("attributes", axis, name) for name in names} for axis, names in axes.items()},
        join("reply", "about"),
        join("reply", "offering"),
        frozenset(_stem(token) for table in tables for token in _TOKENS.findall(table["reply"]["neutral"])),
    )


@lru_cache(maxsize=256)
def fold(text: str, *, joined: bool = False) -> str:
    """The text as it is matched: NFKD without marks and invisible characters, lower case, look-alikes made Latin.

    Hyphens and the like inside a word become a space, or nothing where `joined`; letters spelled one by one (`s a d`)
    are put together, digits within words read as letters (`s4d`), and traditional characters made simplified.
    """
    text = unicodedata.normalize("NFKD", text.replace("\u2019", "'"))
    text = "".join(c for c in text if unicodedata.category(c) not in ("Mn", "Me", "Cf", "Cc") or c in "\n\t")
    text = unicodedata.normalize("NFKC", text.casefold()).translate(LOOK_ALIKES).translate(_variants())
    text = _BETWEEN_HAN.sub("", text).replace("'", "")
    text = _MIXED.sub(lambda word: word[0].translate(_DIGITS), text)
    text = _INSIDE.sub("" if joined else " ", text)
    text = re.sub(r"[^\S\n]+", " ", text)
    return _SPELLED.sub(lambda letters: letters[0].replace(" ", ""), text)


def claims(text: str, *, said: str = "", questions: bool = False) -> list[str]:
    """The words that assert a mental state, a diagnosis, an intent or a character anywhere in `text`.

    A word is no claim where its clause says that it can't be known: the saying stands before it, with no "how" or "why"
    between; or behind a "whether" that stands before it; or the word is itself what can't be known. Negation is a claim:
    who is "not sad" was looked into as well. With `questions`, those are none. A mental state that is in `said`, the
    person's own words, may be repeated; a diagnosis may not.
    """
    found = []
    for variant in dict.fromkeys((fold(text), fold(text, joined=True))):
        for clause, question in _clauses(variant):
            if not (question and questions) or _any("presupposing").search(clause):
                found += _claimed(clause, said)
    return list(dict.fromkeys(found))


def unreadable(text: str) -> str:
    """A letter that is neither Latin nor Chinese once folded, so that no list here can vouch for its word; or ""."""
    return next((c for c in fold(text) if c.isalpha() and not _TOKENS.fullmatch(c)), "")


def admits(text: str, language: str) -> bool:
    """Whether a text says, in a sentence and not in a heap of such words, that something can't be known."""
    return _says(text, lexicon(language).wording["unknown"])


def supports(text: str, language: str) -> bool:
    """Whether a text holds a supportive phrase, and is no heap of them."""
    return _says(text, lexicon(language).wording["supportive"])


def judges(text: str) -> list[str]:
    """The judging words in a text."""
    return [match[0] for match in _any("judging").finditer(fold(text))]


def addresses_judge(text: str) -> bool:
    """Whether a text speaks to whoever grades it."""
    return any(_any("addressing").search(variant) for variant in (fold(text), fold(text, joined=True)))


def repeats(text: str) -> bool:
    """Whether more than `MAX_REPEATED` of a text's runs of three words (or characters of Chinese) stood there before."""
    tokens = _TOKENS.findall(fold(text))
    runs = list(zip(tokens, tokens[1:], tokens[2:], strict=False))
    return len(tokens) >= MIN_TOKENS and 1 - len(set(runs)) / len(runs) > MAX_REPEATED


def attribute_of(name: str) -> tuple[str, str] | None:
    """Axis and name of an attribute as an annotator wrote it: `down`, `turned_away`, `arms crossed`, `低头`; or None."""
    wanted = fold(name).strip()
    every = [(axis, known) for axis, names in lexicon("any").attributes.items() for known in names]
    named = [(axis, known) for axis, known in every if known.replace("_", " ") == wanted]
    matched = [(axis, known) for axis, known in every if lexicon("any").attributes[axis][known].search(wanted)]
    return next(iter(named + matched), None)


def mentions(text: str) -> dict[str, set[str]]:
    """The attributes that a text asserts, by axis. One that it denies is named with a leading `not `."""
    found: dict[str, set[str]] = {}
    folded = fold(text)
    for axis, names in lexicon("any").attributes.items():
        for name, pattern in names.items():
            for match in pattern.finditer(folded):
                found.setdefault(axis, set()).add(f"not {name}" if _denied(folded[: match.start()]) else name)
    return found


def content(text: str, language: str) -> list[str]:
    """The stems of a text's words that say something: neither neutral nor of one letter. Chinese: its characters."""
    neutral = lexicon(language).neutral
    tokens = [token for token in _TOKENS.findall(fold(text)) if len(token) > 1 or not token.isascii()]
    return [stem for stem in map(_stem, tokens) if stem not in neutral]


def stems(text: str) -> set[str]:
    """The stems of all words of a text, and the characters of Chinese."""
    return {_stem(token) for token in _TOKENS.findall(fold(text))}


def without_phrases(text: str, language: str) -> str:
    """The text without the words by which it names attributes or supports."""
    folded = lexicon(language).wording["supportive"].sub(" ", fold(text))
    for names in lexicon("any").attributes.values():
        for pattern in names.values():
            folded = pattern.sub(" ", folded)
    return folded


def statements(text: str, language: str) -> list[str]:
    """The clauses that state something about the person or the picture: no question, no offer, nothing left open."""
    words = lexicon(language)
    return [
        " ".join(clause.split())
        for clause, question in _clauses(fold(text))
        if not question
        and words.about.search(clause)
        and not words.offering.search(clause)
        and not words.wording["unknown"].search(clause)
    ]


def in_language(text: str, language: str) -> bool:
    """Whether most of a text's words are in the script of `language`."""
    tokens = _TOKENS.findall(fold(text))
    chinese = sum(not token.isascii() for token in tokens)
    return not tokens or (2 * chinese > len(tokens)) == (language == "zh")


def _table(language: str) -> dict:
    with (resources.files(__package__) / "lexicons" / f"{language}.toml").open("rb") as file:
        return tomllib.load(file)


@cache
def _variants() -> dict[int, int]:
    table = _table("zh")["variants"]
    return str.maketrans(table["traditional"], table["simplified"])


def _pattern(entries: list[str]) -> re.Pattern:
    """Latin entries as whole words, a trailing `*` for any further letters; Chinese ones wherever they stand."""
    latin = [entry.removesuffix("*") + "[a-z]*" * entry.endswith("*") for entry in entries if entry.isascii()]
    chinese = [entry for entry in entries if not entry.isascii()]
    words = [rf"(?<![a-z])(?:{'|'.join(latin)})(?![a-z])"] if latin else []
    return re.compile("|".join(words + chinese) or r"(?!)")


def _any(wording: str) -> re.Pattern:
    return lexicon("any").wording[wording]


def _clauses(folded: str) -> Iterator[tuple[str, bool]]:
    """Each clause, and whether its sentence is a question.

    A sentence parts at "but" and its like. At a comma or an "and" it parts only where what follows states something of
    its own: "whether he is sad, anxious or tired" is one clause, "it is unclear, he is sad" are two.
    """
    sentences = re.split(f"({_ENDS})", folded + "\n")
    for sentence, end in zip(sentences[::2], sentences[1::2], strict=False):
        question = end == "?" or sentence.endswith("吗")
        for part in _any("separating").split(sentence):
            clause = ""
            for piece in re.split(rf"[,:、]|{_any('listing').pattern}", part):
                joins = not _any("asserting").search(piece) or _any("joining").match(piece.lstrip())
                if clause and not joins:
                    yield clause, question
                    clause = ""
                clause += f" {piece}" if clause else piece
            yield clause, question


def _claimed(clause: str, said: str) -> list[str]:
    """The words of one clause that are claims, by the rules of `claims`."""
    spans = sorted(
        (match.start(), match.end(), group)
        for group, pattern in lexicon("any").claims.items()
        for match in pattern.finditer(clause)
    )
    if not spans:
        return []
    unknown = [match.span() for match in _any("unknown").finditer(clause)]
    ends = [end for _, end in unknown]
    leads = [match.span() for match in _any("presupposing").finditer(clause)]
    leads, reasons = ([start for start, end in leads if clause[start:end] not in but] for but in ((), ("how",)))
    whether, asserting = (_first(_any(name), clause) for name in ("whether", "asserting"))

    def left_open(i: int) -> bool:
        start, end, _ = spans[i]
        if before := bisect(ends, start):
            asked = reasons if clause[start:end] in FEELING else leads  # "how he feels" takes no feeling for granted
            presupposed = bisect(asked, start) > bisect_left(asked, ends[before - 1])
            return not presupposed and not _DEFINITE.search(clause, max(0, start - 6), start)
        if whether < start and before < len(unknown):
            return True
        for later, later_end, _ in spans[i + 1 : i + 1 + MAX_JOINED]:
            if later == _JOINED.match(clause, end).end():
                end = later_end
        return asserting >= start and any(begin == _JOINED.match(clause, end).end() for begin, _ in unknown)

    return [
        clause[start:end]
        for i, (start, end, group) in enumerate(spans)
        if not (group == "mental_states" and _has(said, clause[start:end])) and not left_open(i)
    ]


def _first(pattern: re.Pattern, text: str) -> int:
    return found.start() if (found := pattern.search(text)) else len(text)


def _has(said: str, word: str) -> bool:
    return bool(re.search(rf"(?<![a-z]){re.escape(_stem(word))}", said)) if said else False


def _denied(before: str) -> bool:
    return bool(
        re.search(
            r"(?:\b(?:not|no|never|without|isnt|arent|neither)(?: [a-z]+){0,2} |(?:不|没|未|非|没有|并未)[^,。]{0,2})$",
            before,
        )
    )


def _says(text: str, pattern: re.Pattern) -> bool:
    folded = fold(text)
    phrases = pattern.findall(folded)
    words, covered = len(_TOKENS.findall(folded)), sum(len(_TOKENS.findall(phrase)) for phrase in phrases)
    few = 1 <= len(phrases) <= MAX_PHRASES + words // WORDS_A_PHRASE
    return few and words >= MIN_WORDS and covered <= MAX_DENSITY * words


def _stem(word: str) -> str:
    """Without the commonest English endings: `sitting`, `sits` and `sit` are one. Chinese stays as it is."""
    return re.sub(r"([bdgmnprt])\1$", r"\1", _ENDINGS.sub("", word))
