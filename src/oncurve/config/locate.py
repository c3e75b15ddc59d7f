"""Where each key and value stands in a TOML text, which `tomllib` does not say."""

import re
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

Path = tuple[str, ...]  # keys from the outermost in; the index of a list's entry as text: ("stages", "0", "name")
Span = tuple[int, int]  # offsets of the first character and of the one after the last

_STRING = (
    r'"""(?:\\[\s\S]|[^\\])*?"""(?:"{0,2})'
    r"|'''[\s\S]*?'''(?:'{0,2})"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
)
_BLANK = re.compile(r"(?:\s|#[^\n]*)*")
_KEY = re.compile(r'"(?:\\.|[^"\\\n])*"|' + r"'[^'\n]*'|[A-Za-z0-9_-]+")
_VALUE = re.compile(_STRING + r"|[^,\]}#\n]*[^,\]}#\s]")


class Place(NamedTuple):
    """Of one key: its own span (an entry of a list: the value's) and that of its value (a section: the header's)."""

    key: Span
    value: Span


def locate(text: str) -> dict[Path, Place]:
    """The place of every key, section and list entry of `text`, which `tomllib` must have accepted before."""
    return _Scanner(text).document()


@dataclass(slots=True)
class _Scanner:
    text: str
    at: int = 0
    places: dict[Path, Place] = field(default_factory=dict)
    entries: dict[Path, int] = field(default_factory=dict)  # number of `[[path]]` headers so far

    def document(self) -> dict[Path, Place]:
        section: Path = ()
        while self._next():
            if self.text[self.at] == "[":
                section = self._header()
            else:
                self._pair(section)
        return self.places

    def _next(self) -> str:
        """Skip blanks and comments; the next character, or nothing at the end."""
        self.at = _BLANK.match(self.text, self.at).end()
        return self.text[self.at : self.at + 1]

    def _skip(self, character: str) -> None:
        if self._next() == character:
            self.at += 1

    def _keys(self) -> list[tuple[str, Span]]:
        """A dotted key, part by part."""
        keys = []
        while True:
            self._next()
            match = _KEY.match(self.text, self.at)
            self.at = match.end()
            keys.append((_unquoted(match.group()), match.span()))
            if self._next() != ".":
                return keys
            self.at += 1

    def _header(self) -> Path:
        opening = 2 if self.text.startswith("[[", self.at) else 1
        self.at += opening
        keys = self._keys()
        self.at += opening
        path: Path = ()
        for key, span in keys[:-1]:
            path = (*path, key)
            self.places.setdefault(path, Place(span, span))
            if path in self.entries:
                path = (*path, str(self.entries[path] - 1))
        key, span = keys[-1]
        path = (*path, key)
        if opening == 2:
            self.places.setdefault(path, Place(span, span))
            self.entries[path] = self.entries.get(path, 0) + 1
            path = (*path, str(self.entries[path] - 1))
        self.places[path] = Place(span, span)
        return path

    def _pair(self, section: Path) -> None:
        path, keys = section, self._keys()
        for key, span in keys[:-1]:
            path = (*path, key)
            self.places.setdefault(path, Place(span, span))
        key, span = keys[-1]
        path = (*path, key)
        self.at += 1  # the "="
        self.places[path] = Place(span, self._value(path))

    def _value(self, path: Path) -> Span:
        match self._next():
            case "[":
                start, self.at = self.at, self.at + 1
                for index in count():
                    if self._next() == "]":
                        break
                    entry = (*path, str(index))
                    span = self._value(entry)
                    self.places[entry] = Place(span, span)
                    self._skip(",")
                self.at += 1
            case "{":
                start, self.at = self.at, self.at + 1
                while self._next() != "}":
                    self._pair(path)
                    self._skip(",")
                self.at += 1
            case _:
                start, self.at = _VALUE.match(self.text, self.at).span()
        return start, self.at


def _unquoted(key: str) -> str:
    """A key without its quotes; escapes stay as they are written."""
    return key[1:-1] if key[0] in "\"'" else key
