"""Reads a configuration: a TOML file, then `--key=value` overrides. Reports every fault of both at once."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from oncurve.config.base import Section
from oncurve.config.faults import Fault, Mark, Source, fault, faults
from oncurve.config.locate import Path as KeyPath
from oncurve.config.locate import Place, locate
from oncurve.config.shape import Shape, child, section, shape_of
from oncurve.errors import ConfigError

S = TypeVar("S", bound=Section)

_SYNTAX_HINTS = {
    "Invalid value": 'text stands in quotes: name = "run"; true and false are written small',
    "Invalid statement": "a line is a [section], a key = value or a # comment",
    "Expected '='": "a line is a [section], a key = value or a # comment",
    "Expected newline": "one key = value a line; text stands in quotes",
    "Illegal character '\\n'": "the quotes of this text do not close on its line",
    "Cannot": "the key, or the section, is there already",
}


def load(path: Path, overrides: Sequence[str], schema: type[S]) -> S:
    """The configuration at `path` with `overrides` on top, such as `--sampling.prompts_per_step=4`.

    An override's value is TOML, or else text as it stands; `--stages.0.num_updates=5` reaches into a list. A section
    takes what it leaves out from its default, unless it names another `type`. An override that names another `type`
    drops the keys that only the old type has.

    Raises `ConfigError` with all faults, each with its place.
    """
    source = Source(_read(path), str(path))
    try:
        document = tomllib.loads(source.text)
    except ValueError as error:
        raise _error([_syntax_fault(source, str(error))], path) from None
    marks = {at: Mark(source, *place) for at, place in locate(source.text).items()}
    shape, found = shape_of(schema), []
    for rank, override in enumerate(overrides, 1):
        given = Source(override.removeprefix("--"), rank=rank)
        try:
            patch, places = _parsed(override)
            document = _overlay(document, patch, shape)
        except ValueError as error:
            found.append(fault(given, (0, len(given.text)), str(error)))
            continue
        new = {at: Mark(given, *place) for at, place in places.items()}
        depth = override.split("=")[0].count(".") + 1  # what lies above stays where the file has it
        marks = new | marks | {at: mark for at, mark in new.items() if len(at) >= depth}
    try:
        config = schema.model_validate(_completed(document, shape, {}))
    except ValidationError as error:
        found += faults(error, shape, marks, source)
    if found:
        raise _error(found, path)
    return config


def overridden(config: S, overrides: Sequence[str]) -> S:
    """`config` with `overrides` on top, such as `optimizer.learning_rate=1e-4`. Raises `ConfigError` for one that is wrong."""
    schema, document = type(config), config.model_dump(mode="json")
    shape = shape_of(schema)
    for override in overrides:
        try:
            document = _overlay(document, _parsed(f"--{override.removeprefix('--')}")[0], shape)
            config = schema.model_validate_json(json.dumps(_completed(document, shape, {})))
        except ValidationError as error:
            words = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False))
            raise ConfigError(f"override {override!r}: {words}") from None
        except ValueError as error:
            raise ConfigError(f"override {override!r}: {error}") from None
    return config


def _error(found: Sequence[Fault], path: Path) -> ConfigError:
    number = "1 fault" if len(found) == 1 else f"{len(found)} faults"
    overridden = " and its overrides" if any(fault.order[0] for fault in found) else ""
    texts = [fault.text for fault in sorted(found, key=lambda fault: fault.order)]
    return ConfigError("\n\n".join([f"{number} in {path}{overridden}", *texts]))


def _read(path: Path) -> str:
    """The file's text. Raises `ConfigError` where there is none, naming the recipes that there are."""
    try:
        if path.is_dir():
            raise ConfigError(f"{path} is a folder; a configuration is a TOML file{_recipes(path / 'config')}")
        if not path.exists():
            raise ConfigError(f"there is no configuration {path}{_recipes(path)}")
        if path.suffix != ".toml":
            raise ConfigError(f"{path} is no configuration: a TOML file is needed, NAME.toml{_recipes(path)}")
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: its byte {error.start} can't be read; save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from None


def _recipes(path: Path) -> str:
    """What a user may have meant: the configurations beside `path` and in `recipes`, the most alike first."""
    beside = {*path.parent.glob("*.toml"), *Path("recipes").glob("*.toml")}
    there = {other.stem: str(other) for other in sorted(beside) if other.name != "pyproject.toml"}
    close = get_close_matches(path.stem, there, 1)
    meant = f"\n    did you mean {there[close[0]]}?" if close else ""
    return meant + (f"\n    there are: {'  '.join(there.values())}" if there else "")


def _syntax_fault(source: Source, message: str) -> Fault:
    """What `tomllib` says, which gives the place as "(at line 3, column 5)" or "(at end of document)"."""
    what, _, place = message.partition(" (at ")
    lines, numbers = source.text.split("\n"), re.findall(r"\d+", place)
    last = len(source.text.rstrip())
    line, column = map(int, numbers) if numbers else (len(lines), 1)
    start = sum(len(text) + 1 for text in lines[: line - 1])
    at = min(start + column - 1, last)
    hints = [hint for begin, hint in _SYNTAX_HINTS.items() if what.startswith(begin)]
    span = (at, at + 1)
    if what.startswith("Cannot"):
        span = (start, start + len(lines[line - 1]))
    elif at == last:
        hints = ["the file ends too early: a bracket or a quote is open"]
    return fault(source, span, f"not valid TOML: {what}", *hints)


def _parsed(override: str) -> tuple[dict[str, Any], dict[KeyPath, Place]]:
    """An override as a TOML document, and the places in it. Raises `ValueError`."""
    if not (match := re.fullmatch(r"--([\w.-]+)=(.*)", override, re.DOTALL)):
        raise ValueError("an override is written --key=value, for example --sampling.prompts_per_step=4")
    key, value = match.groups()
    for text in (f"{key}={value}", f"{key}={json.dumps(value, ensure_ascii=False)}"):
        try:
            return tomllib.loads(text), locate(text)
        except ValueError:
            if value.startswith(("'", '"')):
                raise ValueError("the quotes of this value do not close") from None
    raise ValueError(f"'{key}' is no key: keys are letters, digits and _, with dots between them")


def _overlay(held: Any, given: Any, shape: Shape) -> Any:
    """`given` over `held`, key by key. Raises `ValueError` where `held` has no such entry."""
    if not isinstance(given, dict) or held is None:
        return given
    if not isinstance(held, dict | list):
        raise ValueError(f"there are no keys below {held!r}")
    if isinstance(held, list):
        entries = dict(enumerate(held))
        for key, value in given.items():
            if not key.isdecimal() or int(key) not in entries:
                raise ValueError(f"the list has {len(held)} entries, counted from 0; '{key}' is none of them")
            entries[int(key)] = _overlay(entries[int(key)], value, child(shape, int(key)))
        return list(entries.values())
    old, new = section(shape, held), section(shape, held | given)
    stale = old.get("properties", {}).keys() - new.get("properties", {}).keys() if new else ()
    kept = {key: value for key, value in held.items() if key not in stale}
    return kept | {key: _overlay(kept.get(key), value, child(new, key)) for key, value in given.items()}


def _completed(table: Mapping[str, Any], shape: Shape, default: Any) -> dict[str, Any]:
    """`table` with what it and its sections leave out, from their defaults where these are of the same `type`."""
    same = isinstance(default, dict) and table.get("type", default.get("type")) == default.get("type")
    base = default if same else {}
    complete = {**base, **table}
    for key, value in table.items():
        part = child(section(shape, table), key)
        if isinstance(value, dict):
            complete[key] = _completed(value, part, base.get(key, part.get("default")))
        elif isinstance(value, list):
            entries = enumerate(value)
            complete[key] = [_completed(v, child(part, i), {}) if isinstance(v, dict) else v for i, v in entries]
    return complete
