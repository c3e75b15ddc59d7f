"""What can be counted in a text: words, repetition, filler, script. Pure functions, linear in the text."""

import re
import unicodedata
from collections.abc import Collection

import regex

_WORD = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]{1,24}")
_FORMAT = regex.compile(r"\p{Cf}+")
_LETTER = re.compile(r"[^\W\d_]")
_SCRIPTS = {
    "en": re.compile(r"[A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f]"),
    "zh": re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0002fa1f]"),
}
_FILLER_WORDS = """
ah basically er hm hmm hmmm huh just kind let like literally maybe me mm okay ok perhaps please really see simply so sort sure
think thinking uh uhm um very wait well yeah yes 嗯 啊 呃 哦 哈 吧 呢
"""
FILLER = frozenset(_FILLER_WORDS.split())
FEW_WORDS = 3
JUDGED_CHARACTERS = 20_000
FILLED = 0.8  # share of filler, or of words that stood there before, from which reasoning says nothing


def words(text: str) -> list[str]:
    """Words in lower case; a Chinese character is a word, and so is every 24 letters of what has no end."""
    return _WORD.findall(text.lower())


def repetition(text: str, n: int) -> float:
    """The share of the text's n-grams of words that stood there before; 0 where it has fewer than two."""
    found = words(text)
    grams = list(zip(*(found[i:] for i in range(n)), strict=False))
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def filler(text: str, lexicon: Collection[str] = FILLER) -> float:
    """The share of words that are in `lexicon`; 0 for a text without words."""
    found = words(text)
    return sum(word in lexicon for word in found) / len(found) if found else 0.0


def says_nothing(text: str) -> bool:
    """Fewer than three different words, or hardly anything but filler and repetition."""
    text = text[:JUDGED_CHARACTERS]
    different = len(set(words(text)))
    return different < FEW_WORDS or filler(text) >= FILLED or repetition(text, 3) >= FILLED


def script_share(text: str, language: str) -> float:
    """The share of letters that are Latin (`en`) or Chinese (`zh`) among letters of every script; 1 without a letter."""
    letters = len(_LETTER.findall(text))
    return len(_SCRIPTS[language].findall(text)) / letters if letters else 1.0


def visible(text: str) -> str:
    """NFKC in lower case without format characters such as zero-width spaces, for finding words that hide."""
    return _FORMAT.sub("", unicodedata.normalize("NFKC", text)).casefold()
