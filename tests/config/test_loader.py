"""A configuration is read as it is written; whatever is wrong with it is said, all at once, each at its place."""

from pathlib import Path
from textwrap import dedent
from typing import Annotated, Literal, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, field_validator, model_validator

from oncurve.config.base import Section
from oncurve.config.loader import load
from oncurve.config.schema import JsonlData, ScenesData, SftConfig, TrainConfig
from oncurve.errors import ConfigError, OncurveError


class Steady(Section):
    type: Literal["steady"] = "steady"
    rate: Annotated[float, Field(gt=0, lt=1)] = 0.5
    note: str = "steady's own"


class Falling(Section):
    type: Literal["falling"]
    rate: Annotated[float, Field(gt=0)]
    until: Annotated[float, Field(ge=0, le=1)]
    note: str = "falling's own"

    @model_validator(mode="after")
    def _falls(self) -> Self:
        if self.until >= self.rate:
            raise ValueError(f"until {self.until} is not below rate {self.rate}")
        return self


class Part(Section):
    label: str
    size: Annotated[int, Field(ge=1)] = 1
    plan: Annotated[Steady | Falling, Field(discriminator="type")] = Steady(rate=0.25)


class Sheet(Section):
    """A configuration that has one of everything."""

    name: str = "sheet"
    count: Annotated[int, Field(ge=2)] = 2
    limit: Annotated[int, Field(ge=2)] | None = None
    loud: bool = False
    mode: Literal["iou", "giou"] = "iou"
    plan: Annotated[Steady | Falling, Field(discriminator="type")] = Steady(rate=0.125)
    parts: Annotated[list[Part], Field(default_factory=list)]
    weights: Annotated[list[float], Field(default_factory=list)]

    @field_validator("weights")
    @classmethod
    def _sorted(cls, weights: list[float]) -> list[float]:
        if weights != sorted(weights):
            raise ValueError("sort them, the least first")
        return weights


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes `a.toml` in an empty working folder."""
    monkeypatch.chdir(tmp_path)

    def _write(text, name="a.toml"):
        Path(name).write_text(dedent(text), "utf-8")
        return Path(name)

    return _write


def complaint(path, *overrides, schema=Sheet):
    with pytest.raises(ConfigError) as caught:
        load(path, overrides, schema)
    return str(caught.value)


def one(path, *overrides, schema=Sheet):
    """The text of the only fault, below the line that counts."""
    head, fault = complaint(path, *overrides, schema=schema).split("\n\n")
    assert head.startswith(f"1 fault in {path}")
    return fault


# What is right


def test_a_file_and_overrides(write):
    path = write("""
        count = 4
        weights = [1, 5.5]
        [plan]
        type = "falling"
        rate = 2
        until = 0.5
        [[parts]]
        label = "a"
        [[parts]]
        label = "b"
        [parts.plan]
        rate = 0.75
    """)
    overrides = ["--parts.1.size=7", "--name=run 1 # x", "--weights.0=3", "--plan.until=1", "--limit=3", "--count=5"]
    sheet = load(path, overrides, Sheet)
    assert sheet == Sheet(
        name="run 1 # x",
        count=5,
        limit=3,
        weights=[3.0, 5.5],
        plan=Falling(type="falling", rate=2.0, until=1.0),
        parts=[Part(label="a"), Part(label="b", size=7, plan=Steady(rate=0.75))],
    )
    assert type(sheet.plan.rate) is float


@pytest.mark.parametrize(
    ("value", "expected"),
    [("x", "x"), ('"2024"', "2024"), ("", ""), ("{phrase} please", "{phrase} please"), ("a=b", "a=b"), ("é/ü", "é/ü")],
)
def test_an_override_is_toml_or_else_text(write, value, expected):
    assert load(write(""), [f"--name={value}"], Sheet).name == expected


def test_the_last_of_two_overrides_counts(write):
    assert load(write("count = 3"), ["--count=4", "--count=5"], Sheet).count == 5


def test_a_section_takes_what_it_leaves_out_from_its_own_default(write):
    assert load(write('[plan]\nnote = "mine"'), [], Sheet).plan == Steady(rate=0.125, note="mine")
    assert load(write("[[parts]]\nlabel = 'a'\nplan = {note = 'x'}"), [], Sheet).parts[0].plan.rate == 0.25
    heldout = load(write("[heldout]\nmax_things = 1"), [], TrainConfig).heldout
    assert heldout == ScenesData(split="heldout", num_scenes=2_000, max_things=1)
    assert load(write(""), ["--heldout.num_scenes=7"], TrainConfig).heldout.split == "heldout"


def test_a_nested_section_takes_the_default_that_its_outer_section_gives_it(write):
    class Outer(Section):
        part: Part = Part(label="a", size=3, plan=Steady(rate=0.75, note="n"))

    part = load(write("[part]\nsize = 4\n[part.plan]\nnote = 'mine'"), [], Outer).part
    assert part == Part(label="a", size=4, plan=Steady(rate=0.75, note="mine"))


def test_another_type_starts_from_its_own_defaults(write):
    path = write('[plan]\ntype = "falling"\nrate = 2\nuntil = 0')
    assert load(path, [], Sheet).plan.note == "falling's own"


def test_an_override_of_the_type_drops_what_only_the_old_type_takes(write):
    path = write("""
        [data]
        num_scenes = 5
        max_things = 2
        prompt = "find {phrase}"
    """)
    overrides = ["--data.type=jsonl", "--data.path=x.jsonl", "--data.space=unit", "--data.order=xyxy"]
    data = load(path, overrides, TrainConfig).data
    assert data == JsonlData(type="jsonl", path="x.jsonl", space="unit", order="xyxy", prompt="find {phrase}")


def test_an_override_reaches_into_the_stages(write):
    first, second = '[[stages]]\nname = "a"\nnum_updates = 3\n', '[[stages]]\nname = "b"\nnum_updates = 4\n'
    path = write(f"{first}{second}optimizer.betas = [0.9, 0.99]")
    stages = load(path, ["--stages.0.num_updates=5", "--stages.1.optimizer.betas.0=0.8"], SftConfig).stages
    assert [stage.num_updates for stage in stages] == [5, 4]
    assert stages[1].optimizer.betas == (0.8, 0.99)


def test_a_byte_order_mark_and_windows_line_ends(tmp_path):
    path = tmp_path / "a.toml"
    path.write_bytes(b"\xef\xbb\xbfcount = 3\r\n[plan]\r\nrate = 0.5\r\n")
    assert load(path, [], Sheet) == Sheet(count=3, plan=Steady(rate=0.5))


# What is wrong, one at a time

FAULTS = {
    "misspelt key": (
        "cuont = 3",
        """\
        a.toml:1
            cuont = 3
            ^^^^^
            unknown key 'cuont' at the top level
            did you mean 'count'?
            allowed: name, count, limit, loud, mode, [plan], [[parts]], weights""",
    ),
    "unknown section": (
        "[pln]\nrate = 1",
        """\
        a.toml:1
            [pln]
             ^^^
            unknown section 'pln' at the top level
            did you mean 'plan'?
            allowed: name, count, limit, loud, mode, [plan], [[parts]], weights""",
    ),
    "a key of another section": (
        "[plan]\nrate = 0.5\n\ncount = 3",
        """\
        a.toml:4
            count = 3
            ^^^^^
            unknown key 'count' in [plan]
            'count' is a key of the top level, above the first [section]
            allowed: rate, note""",
    ),
    "a key of a section at the top level": (
        "rate = 0.5",
        """\
        a.toml:1
            rate = 0.5
            ^^^^
            unknown key 'rate' at the top level
            'rate' is a key of [plan], [parts.plan]
            allowed: name, count, limit, loud, mode, [plan], [[parts]], weights""",
    ),
    "a key of another type": (
        "plan = {rate = 0.5, until = 0.1}",
        """\
        a.toml:1
            plan = {rate = 0.5, until = 0.1}
                                ^^^^^
            unknown key 'until' in [plan]
            'until' goes with type = "falling"; here type = "steady"
            allowed: rate, note""",
    ),
    "wrong type": (
        'count = "sixteen"',
        """\
        a.toml:1
            count = "sixteen"
                    ^^^^^^^^^
            count needs a whole number of at least 2; got "sixteen" (text)""",
    ),
    "a quoted number": (
        '[plan]\nrate = "5e-1"',
        """\
        a.toml:2
            rate = "5e-1"
                   ^^^^^^
            plan.rate needs a number above 0 and below 1; got "5e-1" (text)
            write 5e-1, without quotes""",
    ),
    "a decimal number": (
        "count = 1e3",
        """\
        a.toml:1
            count = 1e3
                    ^^^
            count needs a whole number of at least 2; got 1000.0
            write 1000""",
    ),
    "not text": (
        "name = 2024  # the year",
        """\
        a.toml:1
            name = 2024  # the year
                   ^^^^
            name needs text; got 2024
            text stands in quotes: name = "2024\"""",
    ),
    "not true or false": (
        "\n\nloud = 1",
        """\
        a.toml:3
            loud = 1
                   ^
            loud needs true or false; got 1""",
    ),
    "too small": (
        "limit = 1",
        """\
        a.toml:1
            limit = 1
                    ^
            limit needs a whole number of at least 2; got 1""",
    ),
    "not a number": (
        "[plan]\n\trate = nan",
        """\
        a.toml:2
             rate = nan
                    ^^^
            plan.rate needs a number above 0 and below 1; got nan""",
    ),
    "choice": (
        'mode = "GIoU"',
        """\
        a.toml:1
            mode = "GIoU"
                   ^^^^^^
            mode needs "iou" or "giou"; got "GIoU" (text)
            did you mean "giou"?""",
    ),
    "type": (
        '[plan]\ntype = "fallin"\nrate = 3',
        """\
        a.toml:2
            type = "fallin"
                   ^^^^^^^^
            plan.type needs "steady" or "falling"; got "fallin" (text)
            did you mean "falling"?
            "steady" takes: rate, note
            "falling" takes: rate, until, note""",
    ),
    "keys lacking": (
        '[plan]\ntype = "falling"',
        """\
        a.toml:2
            type = "falling"
            ^^^^
            [plan] with type = "falling" lacks 'rate', 'until'
            rate: a number above 0
            until: a number from 0 to 1""",
    ),
    "a key lacking in a list": (
        "[[parts]]\nlabel = 'a'\n[[parts]]\nsize = 2",
        """\
        a.toml:3
            [[parts]]
              ^^^^^
            [parts.1] lacks 'label'
            label: text""",
    ),
    "not a section": (
        'plan = "falling"',
        """\
        a.toml:1
            plan = "falling"
                   ^^^^^^^^^
            plan needs a section with type = "steady" or "falling"; got "falling" (text)""",
    ),
    "not a list": (
        "[parts]\nlabel = 'a'",
        """\
        a.toml:1
            [parts]
             ^^^^^
            parts needs sections, each under a [[header]] of its own; got a section""",
    ),
    "an entry of a list over several lines": (
        'weights = [\n  1,\n  "x", # two\n]',
        """\
        a.toml:3
              "x", # two
              ^^^
            weights.1 needs a number; got "x" (text)""",
    ),
    "a key's own check": (
        "weights = [2, 1]",
        """\
        a.toml:1
            weights = [2, 1]
            ^^^^^^^
            sort them, the least first""",
    ),
    "a section's own check": (
        '[[parts]]\nlabel = "a"\nplan.type = "falling"\nplan.rate = 0.5\nplan.until = 0.75',
        """\
        a.toml:5
            plan.until = 0.75
                 ^^^^^
            until 0.75 is not below rate 0.5""",
    ),
}


@pytest.mark.parametrize(("text", "expected"), FAULTS.values(), ids=FAULTS)
def test_one_fault(write, text, expected):
    assert one(write(text)) == dedent(expected)


OVERRIDE_FAULTS = {
    "misspelt key": (
        "--plan.rat=0.5",
        """\
        --plan.rat=0.5
               ^^^
            unknown key 'rat' in [plan]
            did you mean 'rate'?
            allowed: rate, note""",
    ),
    "dashes for underlines": (
        "--parts.0.Label=b",
        """\
        --parts.0.Label=b
                  ^^^^^
            unknown key 'Label' in [parts.0]
            did you mean 'label'?
            allowed: label, size, [plan]""",
    ),
    "wrong value": (
        "--count=many",
        """\
        --count=many
                ^^^^
            count needs a whole number of at least 2; got "many" (text)""",
    ),
    "a number for text": (
        "--name=2024",
        """\
        --name=2024
               ^^^^
            name needs text; got 2024
            text stands in quotes: --name='"2024"'""",
    ),
    "no such entry": (
        "--parts.1.size=3",
        """\
        --parts.1.size=3
          ^^^^^^^^^^^^^^
            the list has 1 entries, counted from 0; '1' is none of them""",
    ),
    "no value": (
        "--count",
        """\
        --count
          ^^^^^
            an override is written --key=value, for example --sampling.prompts_per_step=4""",
    ),
    "no key": (
        "--plan..rate=3",
        """\
        --plan..rate=3
          ^^^^^^^^^^^^
            'plan..rate' is no key: keys are letters, digits and _, with dots between them""",
    ),
    "an open quote": (
        '--name="x',
        """\
        --name="x
          ^^^^^^^
            the quotes of this value do not close""",
    ),
    "below a value": (
        "--count.x=3",
        """\
        --count.x=3
          ^^^^^^^^^
            there are no keys below 3""",
    ),
    "keys lacking": (
        "--plan.type=falling",
        """\
        --plan.type=falling
               ^^^^
            [plan] with type = "falling" lacks 'until'
            until: a number from 0 to 1""",
    ),
}


@pytest.mark.parametrize(("override", "expected"), OVERRIDE_FAULTS.values(), ids=OVERRIDE_FAULTS)
def test_one_fault_of_an_override(write, override, expected):
    path = write("count = 3\n[plan]\nrate = 0.5\n[[parts]]\nlabel = 'a'")
    assert one(path, override) == dedent(expected)


def test_a_check_over_file_and_override_points_at_the_override(write):
    path = write("[sampling]\ngroup_size = 8")
    assert one(path, "--sampling.answers_per_prompt=20", schema=TrainConfig) == dedent("""\
        --sampling.answers_per_prompt=20
                   ^^^^^^^^^^^^^^^^^^
            group_size 8 does not divide answers_per_prompt 20; allowed here: 2, 4, 5, 10, 20, or no
                group_size for one group a prompt""")


def test_a_key_lacking_in_the_whole_file(write):
    assert one(write("seed = 1"), schema=SftConfig) == dedent("""\
        a.toml
            the configuration lacks 'stages'
            stages: at least 1 section, each under a [[header]] of its own""")


def test_a_list_with_one_bad_entry_is_not_called_too_short(write):
    fault = one(write("[[stages]]\nname = 'a'"), schema=SftConfig)
    assert "[stages.0] lacks 'num_updates'" in fault
    assert "at least 1 section," in one(write("stages = []"), schema=SftConfig)


@pytest.mark.parametrize("betas", ["[]", "[0.9]", "[0.9, 0.99, 0.999]"])
def test_a_pair_of_another_length(write, betas):
    fault = one(write(f"[optimizer]\nbetas = {betas}"), schema=TrainConfig)
    assert (
        f"optimizer.betas needs a list of 2, each a number of at least 0 and below 1; got a list of {betas.count('0.')}"
        in fault
    )


def test_a_type_that_no_member_of_the_union_has(write):
    assert one(write("[data]\ntype = 'csv'"), schema=TrainConfig) == dedent("""\
        a.toml:2
            type = 'csv'
                   ^^^^^
            data.type needs "scenes", "figures", "jsonl", "coco" or "tasks"; got "csv" (text)
            "scenes" takes: split, num_scenes, max_things, prompt
            "figures" takes: split, num_figures, size_px, language, prompt
            "jsonl" takes: path, space, order, prompt
            "coco" takes: path, images, prompt
            "tasks" takes: path""")


def test_a_long_line_is_cut_around_the_caret(write):
    path = write(f"weights = [{'1.5, ' * 100}'x', {'1.5, ' * 100}]")
    place, line, carets, _ = one(path).split("\n")
    assert (place, len(line), line[carets.index("^") :][: carets.count("^")]) == ("a.toml:1", 100, "'x'")


# What is wrong, together


def test_all_faults_at_once(write):
    path = write("""\
        # many faults
        name = "many"
        cuont = 20
        mode = "iuo"
        [plan]
        type = "falling"
        rates = 0.5
        [[parts]]
        label = "a"
        plan = {type = "falling", rate = 0.5, until = 0.75}
        [[parts]]
        label = 5
    """)
    assert complaint(path, "--limit=-1", "--plan.until=0.25", "--parts.3.size=1") == dedent("""\
        8 faults in a.toml and its overrides

        a.toml:3
            cuont = 20
            ^^^^^
            unknown key 'cuont' at the top level
            did you mean 'count'?
            allowed: name, count, limit, loud, mode, [plan], [[parts]], weights

        a.toml:4
            mode = "iuo"
                   ^^^^^
            mode needs "iou" or "giou"; got "iuo" (text)
            did you mean "iou"?

        a.toml:6
            type = "falling"
            ^^^^
            [plan] with type = "falling" lacks 'rate'
            rate: a number above 0

        a.toml:7
            rates = 0.5
            ^^^^^
            unknown key 'rates' in [plan]
            did you mean 'rate'?
            allowed: rate, until, note

        a.toml:10
            plan = {type = "falling", rate = 0.5, until = 0.75}
                                                  ^^^^^
            until 0.75 is not below rate 0.5

        a.toml:12
            label = 5
                    ^
            parts.1.label needs text; got 5
            text stands in quotes: label = "5"

        --limit=-1
                ^^
            limit needs a whole number of at least 2; got -1

        --parts.3.size=1
          ^^^^^^^^^^^^^^
            the list has 2 entries, counted from 0; '3' is none of them""")


def test_the_checks_of_training_point_at_what_they_speak_of(write):
    path = write("[objective.kl]\nbeta = 0.1\nestimator = 'k1'\n[reward]\nfloor = 1\n")
    first, second = complaint(path, schema=TrainConfig).split("\n\n")[1:]
    assert first.startswith("a.toml:3\n    estimator = 'k1'\n    ^^^^^^^^^\n    k1 in the loss does nothing")
    assert second.startswith("a.toml:5\n    floor = 1\n    ^^^^^\n    floor 1 is above 0")
    assert one(write("num_steps = 5"), "--accumulate_steps=2", schema=TrainConfig).startswith(
        "--accumulate_steps=2\n  ^^^^^^^^^^^^^^^^\n    num_steps 5 is no multiple"
    )


SECTIONS = {
    "": ["seed", "num_steps", "accumulate_steps"],
    "sampling": ["prompts_per_step", "answers_per_prompt", "max_new_tokens"],
    "evaluate": ["num_tasks", "num_probes", "batch_size"],
    "objective.kl": ["beta", "estimator", "place"],
}
NAMES = [(section, key) for section, keys in SECTIONS.items() for key in keys]


@settings(deadline=None, max_examples=25)
@given(bad=st.sets(st.sampled_from(NAMES)), overridden=st.sets(st.sampled_from(NAMES)))
def test_every_misspelt_key_is_reported(tmp_path_factory, bad, overridden):
    path = tmp_path_factory.mktemp("config") / "a.toml"
    lines, places = [], {}
    for section in SECTIONS:
        lines += [f"[{section}]"] if section else []
        for key in (key for home, key in sorted(bad) if home == section):
            lines.append(f"{key}_ = 1")
            places[section, key] = len(lines)
    path.write_text("\n".join(lines), "utf-8")
    overrides = [f"--{'.'.join(filter(None, name))}q=1" for name in sorted(overridden)]
    if not bad | overridden:
        assert load(path, overrides, TrainConfig) == TrainConfig()
        return
    head, *faults = complaint(path, *overrides, schema=TrainConfig).split("\n\n")
    number = len(bad) + len(overridden)
    assert head.startswith(f"{number} fault{'s' * (number > 1)} in ")
    found = [fault.split("\n") for fault in faults]
    assert [fault[0] for fault in found if not fault[0].startswith("--")] == [
        f"{path}:{line}" for line in sorted(places.values())
    ]
    assert sorted(fault[0] for fault in found if fault[0].startswith("--")) == sorted(overrides)
    for section, key in bad:
        assert any(f"unknown key '{key}_'" in line for fault in found for line in fault), (section, key)
    assert sum(any("did you mean" in line for line in fault) for fault in found) == number


ANYTHING = st.recursive(
    st.integers(-2, 9) | st.floats() | st.booleans() | st.sampled_from(["x", "falling", "steady", "iou", "2", ""]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "rate", "label"]), inner),
    max_leaves=5,
)


def written(value):
    """A value in TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {written(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


@settings(deadline=None, max_examples=50)
@given(values=st.dictionaries(st.sampled_from([*Sheet.model_fields, "cuont"]), ANYTHING), override=ANYTHING)
def test_whatever_stands_there_is_loaded_or_refused(tmp_path_factory, values, override):
    path = tmp_path_factory.mktemp("config") / "a.toml"
    path.write_text("".join(f"{key} = {written(value)}\n" for key, value in values.items()), "utf-8")
    try:
        sheet = load(path, [f"--plan.rate={written(override)}"], Sheet)
    except ConfigError as error:
        text = str(error)
    else:
        text = ""
        assert sheet.plan.rate == override
    assert ("unknown key 'cuont'" in text or "unknown section 'cuont'" in text) == ("cuont" in values)
    assert "Input should" not in text


# What is no TOML, or no file

SYNTAX = {
    "bare text": ("name = run", 1, "name = run", "^", 7, "Invalid value", "in quotes"),
    "True": ("loud = True", 1, "loud = True", "^", 7, "Invalid value", "written small"),
    "twice": ("count = 2\ncount = 3", 2, "count = 3", "^^^^^^^^^", 0, "Cannot overwrite a value", "there already"),
    "a section twice": ("[plan]\n[plan]\n#", 2, "[plan]", "^^^^^^", 0, "Cannot declare", "there already"),
    "no equals sign": ("\ncount 3\n", 2, "count 3", "^", 6, "Expected '='", "key = value"),
    "an open list": ("weights = [1,\n\n", 1, "weights = [1,", "^", 13, "Invalid value", "ends too early"),
    "an open quote": ('name = "x\ncount = 2', 1, 'name = "x', "^", 9, "Illegal character", "do not close"),
    "two on a line": ("count = 2 name = 3", 1, "count = 2 name = 3", "^", 10, "Expected newline", "one key = value"),
}


@pytest.mark.parametrize("case", SYNTAX.values(), ids=SYNTAX)
def test_what_is_not_toml(write, case):
    text, number, line, carets, column, message, hint = case
    place, shown, pointer, what, how = one(write(text)).split("\n")
    assert (place, shown, pointer) == (f"a.toml:{number}", f"    {line}", f"    {' ' * column}{carets}")
    assert what.startswith(f"    not valid TOML: {message}")
    assert hint in how


def test_a_missing_file_names_those_that_are_there(write):
    Path("recipes").mkdir()
    write("", "recipes/cat_and_dog.toml")
    write("", "recipes/warmup.toml")
    write("", "mine.toml")
    write("", "pyproject.toml")
    assert complaint(Path("recipes/cat_and_dgo.toml")) == dedent("""\
        there is no configuration recipes/cat_and_dgo.toml
            did you mean recipes/cat_and_dog.toml?
            there are: recipes/cat_and_dog.toml  recipes/warmup.toml""")
    assert complaint(Path("warmup")) == dedent("""\
        there is no configuration warmup
            did you mean recipes/warmup.toml?
            there are: mine.toml  recipes/cat_and_dog.toml  recipes/warmup.toml""")


def test_a_missing_file_where_there_is_none(write):
    write("", "notes.txt")
    assert complaint(Path("x.toml")) == "there is no configuration x.toml"


def test_what_is_no_configuration(write):
    assert complaint(write("{}", "config.json")) == "config.json is no configuration: a TOML file is needed, NAME.toml"
    Path("folder").mkdir()
    write("", "folder/a.toml")
    assert complaint(Path("folder")) == (
        "folder is a folder; a configuration is a TOML file\n    there are: folder/a.toml"
    )
    Path("latin.toml").write_bytes(b"name = 'caf\xe9'")
    assert complaint(Path("latin.toml")) == (
        "latin.toml is not UTF-8 text: its byte 11 can't be read; save it as UTF-8"
    )


def test_the_error_is_one_that_the_command_line_knows(write):
    with pytest.raises(OncurveError):
        load(write("x = 1"), [], Sheet)
