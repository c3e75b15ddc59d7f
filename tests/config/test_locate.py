"""Every key, section and list entry of a TOML text is found where it stands."""

import json
import re
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.config.locate import locate


def paths(value, path=()):
    """All paths of a parsed document, each with its value."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield (*path, str(key)), part
        yield from paths(part, (*path, str(key)))


def check(text):
    document, places = tomllib.loads(text), locate(text)
    expected = dict(paths(document))
    assert places.keys() == expected.keys()

    def is_written_out(path):
        """Whether the value stands after an equals sign or in a list; else it is a section, placed at its name."""
        key, value = places[path]
        return key != value or (isinstance(expected.get(path[:-1]), list) and is_written_out(path[:-1]))

    for path, (key, value) in places.items():
        if is_written_out(path):
            assert tomllib.loads(f"value = {text[slice(*value)]}")["value"] == expected[path]
        if key != value or not is_written_out(path):
            name = path[-2] if isinstance(expected.get(path[:-1]), list) else path[-1]
            assert text[slice(*key)].strip("\"'") == name


HARD = '''\
# a comment with = and [brackets]
title = "a # no comment" # a comment
'quoted key' = 1
dotted . key = 2
dotted.other = """
three "quotes" inside \\""" and more""""
literal = \'\'\'a = 1
[not.a.section]\'\'\'
date = 1979-05-27 07:32:00  # with a blank
empty = []
list = [ 1, # one
  [2, 3], {a.b = 4, c = "]"},
]
[a]
x = {y = {z = [1, 2]}}
[a.b.c]
x = 1
[[rows]]
name = "first"
[rows.data]
type = "x"
[[rows.parts]]
n = 1
[[rows.parts]]
n = 2
[[rows]]
name = 'second'
  [rows.data]
\ttype = "y"
[ "odd name" . b ]
last = 1e3'''


def test_hard_text():
    check(HARD)
    places = locate(HARD)
    key, value = places["rows", "0", "parts", "1", "n"]
    assert (HARD[slice(*key)], HARD[slice(*value)], HARD[: key[0]].count("\n") + 1) == ("n", "2", 25)
    key, value = places["list", "1", "0"]
    assert (HARD[slice(*value)], HARD[: value[0]].count("\n") + 1) == ("2", 12)
    assert HARD[slice(*places["a", "b"].key)] == "b"
    assert HARD[slice(*places["date",].value)] == "1979-05-27 07:32:00"


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "a=1", "[a]", "[[a]]\n[[a]]\n", "a = [\n\n]\n", "[a.b]\nx=1\n[a]\ny=2"]
)
def test_short_texts(text):
    check(text)


def test_a_section_named_after_its_part_is_placed_at_its_own_header():
    text = "[a.b]\nx=1\n[a]\ny=2"
    assert locate(text)["a",].key == (11, 12)


KEYS = st.text("ab-_09", min_size=1, max_size=3) | st.sampled_from(["a b", "x.y", "#", "[k]", "="])
SCALARS = st.integers(-99, 99) | st.booleans() | st.text("ab #=[]{},.'", max_size=6)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
PAIRS = st.dictionaries(KEYS, VALUES, max_size=3)
GAPS = st.sampled_from(["", "\n", "# [x] = 1\n", " \t"])


def key_text(key):
    return key if re.fullmatch(r"[\w-]+", key) else json.dumps(key)


def value_text(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key_text(key)} = {value_text(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + "".join(f"\n  {value_text(part)} , # ]\n" for part in value) + "]"
    return json.dumps(value)


@settings(deadline=None, max_examples=50)
@given(top=PAIRS, parts=st.lists(st.tuples(KEYS, st.lists(PAIRS, min_size=1, max_size=3), GAPS), max_size=3))
def test_any_document(top, parts):
    lines = [f"{key_text(key)} = {value_text(value)}\n" for key, value in top.items()]
    for number, (name, tables, gap) in enumerate(parts):
        for table in tables:
            header = f"s{number} . {key_text(name)}"
            lines.append(f"{gap}[[{header}]]\n")
            lines += [f"{gap}{key_text(key)}={value_text(value)} # done\n" for key, value in table.items()]
    check("".join(lines))
