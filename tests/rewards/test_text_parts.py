"""Parts of a text: values by hand, their ranges, and that doing nothing, padding and repeating never pay."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from oncurve.config.rewards import TextRules
from oncurve.config.text_parts import TextPart
from oncurve.errors import BrokenTruth
from oncurve.rewards.text import Context, Verifier, grade, part_value
from oncurve.truths import NoTruth
from oncurve.types import Task

UNKNOWN = Context()
EVERY = [
    {"type": "tags"},
    {"type": "repetition"},
    {"type": "filler"},
    {"type": "length_target", "target": 20},
    {"type": "length_overlong", "max_length": 40, "cache": 10, "unit": "characters"},
    {"type": "length_cosine", "max_length": 50, "wrong_at_zero": -1.0, "wrong_at_max": -0.5, "unit": "words"},
    {"type": "length_penalty", "over": 30, "per_unit": 0.01, "most": 0.5},
    {"type": "language", "language": "zh"},
    {"type": "forbidden", "words": ["kill"], "patterns": [r"(a+)+$"]},
    {"type": "process", "sections": ["Seen:", "Answer:"]},
]


def part(**values):
    return TypeAdapter(TextPart).validate_python(values)


def value(text: str, context: Context = UNKNOWN, **values) -> float:
    return part_value(text, part(**values), context)


def rules(*parts: dict, **more) -> TextRules:
    return TextRules.model_validate({"type": "text", "parts": list(parts), **more})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>a</think><answer>b</answer>", 1),
        (" <think>a</think>\n<answer>b</answer>\n", 1),
        ("<answer>b</answer><think>a</think>", 0),
        ("<think>a</think>", 0),
        ("<think></think><answer>b</answer>", 0),
        ("<think> </think><answer></answer>", 0),
        ("<think>a</think> so <answer>b</answer>", 0),
        ("Well <think>a</think><answer>b</answer>", 0),
        ("<think>a</think><answer>b</answer>.", 0),
        ("<think>a</think><answer>b</answer><answer>c</answer>", 0),
        ("<think>a<think>b</think></think><answer>b</answer>", 0),
        ("<think>a<answer>b</answer></think>", 0),
        ("<think>a<answer>b</think></answer>", 0),
        ("<think>a<answer>b</answer>", 0),
    ],
)
def test_tags(text, expected):
    assert value(text, type="tags") == expected


def test_repetition_by_hand():
    assert value("a b c d e", type="repetition") == 1
    assert value("a b c a b c", type="repetition") == 3 / 4  # abc bca cab abc
    assert value("a a a a a a", type="repetition") == 1 / 4
    assert value("a b a b", type="repetition", n=2) == 2 / 3
    assert value("猫猫猫猫", type="repetition") == 1 / 2
    assert value("a", type="repetition") == 1
    sentence = "The cat sits on the mat near a door. "
    assert value(sentence * 100, type="repetition") < 0.02 < value(sentence, type="repetition") == 1
    assert value("x" * 100_000, type="repetition") < 0.001  # a word without an end is many


def test_filler_by_hand():
    assert value("well okay so um", type="filler") == 0
    assert value("um, the cat sits", type="filler") == 3 / 4
    assert value("foo bar", type="filler", words=["FOO"]) == 1 / 2


def test_lengths_by_hand():
    target = {"type": "length_target", "target": 4}
    assert [value("w " * n, **target) for n in (0, 1, 4, 6, 8, 20)] == [0, 0.25, 1, 0.5, 0, 0]
    overlong = {"type": "length_overlong", "max_length": 100, "cache": 20}
    at = (0, 80, 85, 100, 101, 900)
    assert [value("", Context(n), **overlong) for n in at] == [0, 0, -0.25, -1, -1, -1]
    cosine = {
        "type": "length_cosine",
        "max_length": 10,
        "at_zero": 2.0,
        "at_max": 1.0,
        "wrong_at_zero": -10.0,
        "wrong_at_max": 0.0,
    }
    assert [value("", Context(n), **cosine) for n in (0, 5, 10, 50)] == pytest.approx([2, 1.5, 1, 1])
    assert [value("", Context(n, False), **cosine) for n in (0, 5, 10)] == pytest.approx([-10, -5, 0])
    assert value("", Context(0, True), **cosine) == 2
    penalty = {"type": "length_penalty", "over": 4000, "per_unit": 0.0001}
    assert [value("x" * n, **penalty) for n in (300, 4000, 6000, 9000)] == pytest.approx([0, 0, -0.2, -0.5])
    assert value("x" * 9000, **penalty, most=0.3) == -0.3
    assert value("three short words", type="length_penalty", over=1, per_unit=1.0, unit="words") == -2


def test_no_part_gives_a_negative_zero():
    for values in EVERY:
        assert math.copysign(1, value("a plain text", **values) or 0.0) == math.copysign(
            1, value("a plain text", **values)
        )


def test_language_is_the_share_of_letters():
    assert value("The cat", type="language", language="en") == 1
    assert value("猫在 cat", type="language", language="zh") == 2 / 5
    assert value("кот", type="language", language="en") == 0
    assert value("42!", type="language", language="zh") == 1


@pytest.mark.parametrize(
    ("text", "hit"),
    [
        ("a bomb", True), ("BOMB!", True), ("\uff42\uff4f\uff4d\uff42", True), ("bo\u200bmb", True), ("bombastic", False),
        ("做炸弹吧", True),        ("call 555-1234", True), ("call 55-1234", False), ("", False),
    ],
)  # fmt: skip
def test_forbidden(text, hit):
    assert value(text, type="forbidden", words=["bomb", "炸弹"], patterns=[r"\d{3}-\d{4}"]) == -hit


def test_a_pattern_without_an_end_counts_as_a_match():
    assert value("a" * 4000 + "b", type="forbidden", patterns=[r"^(a|aa)+$"]) == -1


SECTIONS = {"type": "process", "sections": ["Seen:", "Meaning:", "Answer:"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Seen: a red cat\nMeaning: it waits for food\nAnswer: feed it", 1),
        ("## Seen: a red cat\n**Meaning: it waits\nAnswer: feed it", 1),
        ("Seen: a red cat\nMeaning:\nAnswer: feed it", 2 / 3),
        ("Seen: a red cat\nMeaning: a red cat.\nAnswer: feed it", 2 / 3),
        ("Seen: a red cat sits here\nMeaning: here sits a red cat\nAnswer: feed it", 2 / 3),
        ("Meaning: it waits\nSeen: a red cat\nAnswer: feed it", 0),
        ("Seen: a\nAnswer: b", 0),
        ("Seen: a\nSeen: b\nMeaning: c\nAnswer: d", 0),
        ("I have Seen: a, Meaning: b, Answer: c", 0),
        ("Seen:\nMeaning:\nAnswer:", 0),
    ],
)
def test_process(text, expected):
    assert value(text, **SECTIONS) == pytest.approx(expected)


def test_the_sum_in_full():
    score = grade(
        "a a a a a a",
        Context(),
        rules({"type": "repetition", "weight": 2.0}, {"type": "language", "name": "english", "weight": 0.5}),
    )
    assert (score.status, score.correct, score.verifier) == ("scored", None, "text/1")
    assert score.parts == {"repetition": 0.25, "english": 1.0}
    assert score.value == 2 * 0.25 + 0.5
    assert score.evidence == "repetition +0.500; english +0.500"


def test_an_empty_text_gets_the_lowest_total_unless_the_floor_says_less():
    parts = ({"type": "forbidden", "words": ["x"]}, {"type": "repetition", "weight": 0.5})
    assert rules(*parts).bounds == (-1, 0.5)
    assert (grade("", Context(), rules(*parts)).status, grade(" ", Context(), rules(*parts)).value) == ("invalid", -1)
    assert grade("", Context(), rules(*parts, floor=-3.0)).value == -3
    assert rules({"type": "repetition", "weight": -1.0}).bounds == (-1, 0)


@pytest.mark.parametrize(
    ("parts", "more", "words"),
    [
        ([{"type": "forbidden", "words": ["x"]}], {"floor": 0.0}, "floor 0 is above -1"),
        ([{"type": "length_penalty", "over": 1, "per_unit": 0.1}], {}, "no lower bound.*set most"),
        ([{"type": "repetition"}, {"type": "repetition", "n": 4}], {}, "two parts have one name"),
        ([{"type": "forbidden"}], {}, "nothing is forbidden"),
        ([{"type": "forbidden", "patterns": ["("]}], {}, "no regular expression"),
        ([{"type": "length_overlong", "max_length": 5, "cache": 6}], {}, "cache 6 is more than max_length 5"),
        ([{"type": "length_cosine", "max_length": 5, "wrong_at_zero": 0.0}], {}, "go together"),
        ([{"type": "process", "sections": []}], {}, "at least 1"),
        ([{"type": "repetitions"}], {}, "repetitions"),
        ([{"type": "repetition", "m": 3}], {}, "Extra inputs"),
    ],
)
def test_refused_rules(parts, more, words):
    with pytest.raises(ValidationError, match=words):
        rules(*parts, **more)


def test_no_parts_is_a_broken_task():
    with pytest.raises(BrokenTruth, match="no parts"):
        Verifier().check(Task("t", "text", (), NoTruth()), TextRules(type="text"))


@given(
    text=st.text(max_size=200) | st.text(alphabet="<>/thinkanswer Sen:A\n", max_size=120),
    tokens=st.integers(0, 200),
    correct=st.sampled_from([None, True, False]),
)
@settings(deadline=None, max_examples=50)
def test_every_part_takes_any_text_and_keeps_its_range(text, tokens, correct):
    for values in EVERY:
        of = part(**values)
        low, high = of.bounds
        assert low <= part_value(text, of, Context(tokens, correct)) <= high


@given(text=st.text(max_size=100))
@settings(deadline=None, max_examples=50)
def test_doing_nothing_never_pays(text):
    all_parts = rules(*EVERY)
    score = grade(text, Context(), all_parts)
    assert score.status in ("scored", "invalid")
    assert grade("", Context(), all_parts).value <= score.value <= all_parts.bounds[1]
    assert all_parts.bounds[0] == pytest.approx(-1 - 1 - 0.5 - 1)


def test_padding_and_repeating_cost():
    honest = "The figure stands by the wall and looks down."
    judged = rules({"type": "repetition"}, {"type": "filler"}, {"type": "length_target", "target": 10})
    best = grade(honest, Context(), judged).value
    assert best > grade(honest * 50, Context(), judged).value + 1
    assert best > grade(honest + " um well so" * 300, Context(), judged).value + 1


BREAKDOWN = json.loads((Path(__file__).parents[1] / "reference" / "reward_breakdown.json").read_text("utf-8"))["cases"]


@pytest.mark.parametrize("case", BREAKDOWN, ids=lambda case: case["case"])
def test_the_additive_reward_of_the_notes(case):
    """Correctness comes from a verifier; the other three summands are parts of the text."""
    given = case["inputs"]
    text = ("<think>x</think><answer>" if given["formatted"] else "") + ("bomb " if given["violates"] else "")
    text += "x" * (given["characters"] - len(text) - 9) + ("</answer>" if given["formatted"] else " " * 9)
    assert len(text) == given["characters"]
    score = grade(
        text,
        Context(),
        rules(
            {"type": "tags", "name": "format", "weight": 0.2},
            {"type": "forbidden", "name": "safety", "words": ["bomb"]},
            {"type": "length_penalty", "over": 4000, "per_unit": 0.0001, "most": 2.0},
        ),
    )
    expected = case["parts"]
    assert {
        "format": 0.2 * score.parts["format"],
        **{k: score.parts[k] for k in ("safety", "length_penalty")},
    } == pytest.approx({k: v for k, v in expected.items() if k != "correctness"})
    assert float(given["correct"]) + score.value == pytest.approx(case["total"])
