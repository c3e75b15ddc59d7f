"""Faults of a configuration in words: where, the line with a caret, what is wrong, what is allowed."""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from oncurve.config.locate import Path, Span
from oncurve.config.shape import Shape, child, either, homes, members, wanted

WIDTH = 100  # columns of a printed fault
_INDENT = " " * 4
_NUMBER = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?")


@dataclass(frozen=True, slots=True)
class Source:
    """A text that configures: a file's, or an override's without its dashes."""

    text: str
    file: str | None = None
    rank: int = 0  # the file's 0; the overrides' 1, 2, 3, … as given


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a key and its value stand. Example: `Mark(Source("seed = 3", "a.toml"), key=(0, 4), value=(7, 8))`."""

    source: Source
    key: Span
    value: Span


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, ready to print. `order` sorts: rank of the source, then offset in it."""

    order: tuple[int, int]
    text: str


def fault(source: Source, span: Span | None, *words: str) -> Fault:
    """Point at a span of a source (None: at the file as a whole), with what is wrong and what is allowed below."""
    below = [
        line
        for text in words
        for line in textwrap.wrap(text, WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT * 2)
    ]
    if span is None:
        return Fault((source.rank, 0), "\n".join([f"{source.file}", *below]))
    start = source.text.rfind("\n", 0, span[0]) + 1
    line = source.text[start:].split("\n", 1)[0].replace("\t", " ")
    column, end = span[0] - start, min(span[1] - start, len(line))
    pointer = " " * column + "^" * max(end - column, 1)
    if source.file is None:
        return Fault((source.rank, span[0]), "\n".join([f"--{line}", f"  {pointer}", *below]))
    room = WIDTH - len(_INDENT)
    cut = max(0, column - room // 2) if len(line) > room else 0
    place = f"{source.file}:{source.text.count(chr(10), 0, start) + 1}"
    excerpt = (_INDENT + text[cut : cut + room] for text in (line, pointer))
    return Fault((source.rank, span[0]), "\n".join([place, *excerpt, *below]))


def faults(error: ValidationError, shape: Shape, marks: Mapping[Path, Mark], file: Source) -> list[Fault]:
    """Every fault that pydantic found in a configuration of this shape, each at its place."""
    return list(dict.fromkeys(_Reporter(shape, marks, file).report(error)))


@dataclass(frozen=True, slots=True)
class _Spot:
    """What pydantic's location means. The names of union members in it are no keys."""

    path: Path
    shape: Shape  # of what stands there
    section: Shape  # that the last key stands in
    siblings: Mapping[str, Shape]  # the members of the union that `section` was chosen from


@dataclass(frozen=True, slots=True)
class _Reporter:
    shape: Shape
    marks: Mapping[Path, Mark]
    file: Source

    def report(self, error: ValidationError) -> Iterator[Fault]:
        lacking: dict[Path, list[_Spot]] = {}
        for detail in error.errors(include_url=False):
            spot, value, loc = self._spot(detail["loc"]), detail["input"], detail["loc"]
            match detail["type"]:
                case "extra_forbidden":
                    yield self._unknown(spot, value)
                case "too_short" if len(value) >= detail["ctx"]["min_length"]:
                    continue  # pydantic counts only the entries that are right, and says of the others what is wrong
                case "missing" if isinstance(loc[-1], str):
                    lacking.setdefault(spot.path[:-1], []).append(spot)
                case "missing":
                    yield self._wrong(spot.path[:-1], spot.section, value)
                case "union_tag_invalid" | "union_tag_not_found":
                    yield self._no_member(spot, value.get("type"))
                case "value_error":
                    yield self._refused(spot, str(detail["ctx"]["error"]))
                case _:
                    yield self._wrong(spot.path, spot.shape, value)
        for path, spots in lacking.items():
            yield self._lacking(path, spots)

    def _spot(self, loc: tuple[str | int, ...]) -> _Spot:
        path: Path = ()
        shape = section = self.shape
        siblings: Mapping[str, Shape] = {}
        chosen: Mapping[str, Shape] = {}
        for step in loc:
            if choices := members(shape):
                shape, chosen = choices[step], choices
            else:
                section, siblings, chosen = shape, chosen, {}
                shape, path = child(shape, step), (*path, str(step))
        return _Spot(path, shape, section, siblings)

    def _mark(self, path: Path) -> Mark | None:
        """Of a key, or of the nearest section around it that is written down."""
        return next((self.marks[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.marks), None)

    def _at_key(self, path: Path, message: str, *hints: str) -> Fault:
        mark = self._mark(path)
        return fault(mark.source, mark.key, message, *hints) if mark else fault(self.file, None, message, *hints)

    def _unknown(self, spot: _Spot, value: Any) -> Fault:
        *path, key = spot.path
        allowed, hints = spot.section["properties"], []
        if types := [tag for tag, member in spot.siblings.items() if key in member["properties"]]:
            hints.append(f"'{key}' goes with type = {either(types)}; here type = \"{allowed['type']['const']}\"")
        if close := get_close_matches(key.lower().replace("-", "_"), allowed, 1):
            hints.append(f"did you mean '{close[0]}'?")
        if not types and (paths := list(dict.fromkeys(homes(self.shape, key)))):
            hints.append(f"'{key}' is a key of {', '.join(map(_named, paths))}")
        hints.append(f"allowed: {_keys(spot.section)}")
        what = "section" if isinstance(value, dict) else "key"
        where = f"in {_named(path)}" if path else "at the top level"
        return self._at_key(spot.path, f"unknown {what} '{key}' {where}", *hints)

    def _lacking(self, path: Path, spots: list[_Spot]) -> Fault:
        keys = [spot.path[-1] for spot in spots]
        kind = f" with type = {either([spots[0].section['properties']['type']['const']])}" if spots[0].siblings else ""
        hints = (f"{key}: {wanted(spot.shape)}" for key, spot in zip(keys, spots, strict=True))
        message = f"{_named(path) if path else 'the configuration'}{kind} lacks {', '.join(map(repr, keys))}"
        return self._at_key((*path, "type") if kind else path, message, *hints)

    def _refused(self, spot: _Spot, message: str) -> Fault:
        """What a section's own check refuses: at the first key that the message names, one from an override first."""
        paths = [(*spot.path, word) for word in re.findall(r"\w+", message) if word in spot.shape.get("properties", ())]
        written = sorted((path for path in paths if path in self.marks), key=self._is_from_file)
        return self._at_key(written[0] if written else spot.path, message)

    def _is_from_file(self, path: Path) -> bool:
        return self.marks[path].source.file is not None

    def _no_member(self, spot: _Spot, tag: Any) -> Fault:
        choices = members(spot.shape)
        takes = (f"{either([name])} takes: {_keys(member)}" for name, member in choices.items())
        return self._wrong((*spot.path, "type"), {"enum": list(choices)}, tag, *takes)

    def _wrong(self, path: Path, shape: Shape, value: Any, *more: str) -> Fault:
        message = f"{'.'.join(path)} needs {wanted(shape)}; got {_got(value)}"
        mark = self._mark(path)
        if mark is None:
            return fault(self.file, None, message, *more)
        kind, hints = shape.get("type"), []
        if isinstance(value, str) and (close := get_close_matches(value.lower(), shape.get("enum", ()), 1)):
            hints.append(f'did you mean "{close[0]}"?')
        elif kind == "string" and not {"enum", "const"} & shape.keys() and not isinstance(value, str | list | dict):
            written = f'{path[-1]} = "{mark.source.text[slice(*mark.value)]}"'
            override = f"--{'.'.join(path)}='\"{mark.source.text[slice(*mark.value)]}\"'"
            hints.append(f"text stands in quotes: {written if mark.source.file else override}")
        elif kind == "integer" and isinstance(value, float) and value.is_integer():
            hints.append(f"write {value:.0f}")
        elif isinstance(value, str) and kind in ("integer", "number") and _NUMBER.fullmatch(value):
            hints.append(f"write {value}, without quotes")
        return fault(mark.source, mark.value, message, *hints, *more)


def _named(path: Sequence[str]) -> str:
    return f"[{'.'.join(path)}]" if path else "the top level, above the first [section]"


def _keys(section: Shape) -> str:
    """The keys that a section takes, its own sections in brackets, without the one that names the section's type."""
    return ", ".join(_listed(key, part) for key, part in section["properties"].items() if "const" not in part)


def _listed(key: str, shape: Shape) -> str:
    if "properties" in shape or members(shape):
        return f"[{key}]"
    return f"[[{key}]]" if "properties" in shape.get("items", {}) else key


def _got(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case str():
            return f"{json.dumps(textwrap.shorten(value, 60, placeholder=' …'), ensure_ascii=False)} (text)"
        case dict():
            return "a section"
        case list() | tuple():
            return f"a list of {len(value)}"
        case bool():
            return str(value).lower()
        case _:
            return str(value)
