"""Counting, OCR, choice and short answer: values by hand, the gate of each, and what never pays."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.config.rewards import KIND_RULES
from oncurve.errors import BrokenTruth
from oncurve.rewards.kinds import rules_for, verifier_of
from oncurve.rewards.ocr import cer, wer
from oncurve.rewards.short_answer import anls
from oncurve.truths import parse_truth
from oncurve.types import Rollout, Score, Task

TRUTHS = {
    "counting": {"count": 3},
    "ocr": {"text": "STOP HERE"},
    "choice": {"choice": "B"},
    "short_answer": {"answers": ["New York", "NYC"]},
}
SHORT = list(TRUTHS)


def grade(kind: str, text: str, truth: dict | None = None, **options) -> Score:
    task = Task("t", kind, (), parse_truth(kind, truth or TRUTHS[kind]), options)
    rules, verifier = rules_for(task, KIND_RULES[kind](type=kind)), verifier_of(kind)
    verifier.check(task, rules)
    return verifier.grade(task, Rollout("t", 0, (), text, "end", 0, 1.0, 0), rules)


@pytest.mark.parametrize(
    ("kind", "text", "options", "value", "correct"),
    [
        ("counting", "3", {}, 1, True),
        ("counting", " 3\n", {}, 1, True),
        ("counting", "4", {}, 0, False),
        ("counting", "4", {"band": 1}, 1, False),
        ("counting", "5", {"band": 1}, 0, False),
        ("counting", "2", {"band": 1}, 1, False),
        ("counting", "<answer>3</answer>", {"format": "tag"}, 1, True),
        ("counting", "One, two, three.\n<answer>3</answer>", {"format": "tag"}, 1, True),
        ("counting", r"There are $\boxed{3}$.", {"format": "boxed"}, 1, True),
        (
            "counting",
            "<point>0.1,0.2</point><point>0.3,0.2</point> <point>0.5,0.2</point>",
            {"format": "points"},
            1,
            True,
        ),
        ("counting", "<point>0.1,0.2</point>", {"format": "points"}, 0, False),
        ("counting", "none", {"format": "points"}, 0, False),
        ("ocr", "STOP HERE", {}, 1, True),
        ("ocr", "STOP HERE\n", {}, 1, True),
        ("ocr", "STOP HER", {}, 1 - 1 / 9, False),
        ("ocr", "STOP THERE", {}, 1 - 1 / 10, False),
        ("ocr", "stop here", {}, 1 - 8 / 9, False),
        ("choice", "B", {}, 1, True),
        ("choice", " B ", {}, 1, True),
        ("choice", "A", {}, 0, False),
        ("choice", "<answer>B</answer>", {"format": "tag"}, 1, True),
        ("choice", r"\boxed{\text{B}}", {"format": "boxed"}, 1, True),
        ("short_answer", "New York", {}, 1, True),
        ("short_answer", "new  york", {}, 1, True),
        ("short_answer", "nyc", {}, 1, True),
        ("short_answer", "New Yorc", {}, 1 - 1 / 8, True),
        ("short_answer", "New Yorc", {"threshold": 0.9}, 0, False),
        ("short_answer", "Boston", {}, 0, False),
    ],
)
def test_values_by_hand(kind, text, options, value, correct):
    score = grade(kind, text, **options)
    assert (score.status, score.correct) == ("scored", correct)
    assert score.value == pytest.approx(value)
    assert score.parts["format"] == 1
    assert score.verifier == f"{kind}/1"


@pytest.mark.parametrize(
    ("kind", "text", "options", "reason"),
    [
        ("counting", "3.0", {}, "number"),
        ("counting", "-3", {}, "number"),
        ("counting", "+3", {}, "number"),
        ("counting", "three", {}, "number"),
        ("counting", "3 cats", {}, "number"),
        ("counting", "2, 3", {}, "multi_answer"),
        ("counting", "3 or 4", {}, "multi_answer"),
        ("counting", "nan", {}, "number"),
        ("counting", "1e999", {}, "number"),
        ("counting", "inf", {}, "number"),
        ("counting", "-0.0", {}, "number"),
        ("counting", "3" + " and that is it" * 1000, {}, "number"),
        ("counting", "<think><answer>3</answer></think>", {"format": "tag"}, "text_around"),
        ("choice", "B" + " indeed" * 1000, {}, "not_a_choice"),
        ("choice", "<think><answer>B</answer></think><answer>B</answer>", {"format": "tag"}, "multi_answer"),
        ("counting", "3e0", {}, "number"),
        ("counting", "٣", {}, "number"),
        ("counting", "\uff13", {}, "number"),
        ("counting", "3\u200b", {}, "number"),
        ("counting", "3" * 10_000, {}, "number"),
        ("counting", "__import__('os').system('true')", {}, "number"),
        ("counting", "<answer>3</answer> or 4", {"format": "tag"}, "text_around"),
        ("counting", "<answer>3</answer><answer>3</answer>", {"format": "tag"}, "multi_answer"),
        ("counting", "<point>0.1,0.2</point>" * 3, {"format": "points"}, "duplicate_point"),
        ("counting", "<point>0.1,0.2</point> three", {"format": "points"}, "syntax"),
        ("choice", "A or B or C", {}, "multi_answer"),
        ("choice", "A, B", {}, "multi_answer"),
        ("choice", "not B", {}, "not_a_choice"),
        ("choice", "definitely not B", {}, "not_a_choice"),
        ("choice", "b", {}, "not_a_choice"),
        ("choice", "(B)", {}, "not_a_choice"),
        ("choice", "B.", {}, "not_a_choice"),
        ("choice", "The answer is B", {}, "not_a_choice"),
        ("choice", "E", {}, "not_a_choice"),
        ("choice", "\uff22", {}, "not_a_choice"),
        ("choice", "\u0412", {}, "not_a_choice"),  # Cyrillic
        ("choice", r"\boxed{B} ... actually \boxed{C}", {"format": "boxed"}, "multi_answer"),
        ("choice", r"\boxed{B}. No, I take that back.", {"format": "boxed"}, "text_around"),
        ("choice", r"It is definitely not \boxed{B}", {"format": "boxed"}, "negated"),
        ("ocr", "  \n", {}, "empty"),
        ("ocr", "STOP \ud800", {}, "characters"),
        ("short_answer", "", {}, "empty"),
    ],
)  # fmt: skip
def test_the_gate_of_each_kind(kind, text, options, reason):
    score = grade(kind, text, **options, floor=-1.0)
    assert (score.status, score.reason, score.value, score.correct) == ("invalid", reason, -1.0, False)
    assert score.parts == {"format": 0.0}


@pytest.mark.parametrize("kind", SHORT)
@pytest.mark.parametrize("text", ["", " \t\n", "\u3000"])
def test_an_empty_answer_is_invalid(kind, text):
    assert grade(kind, text).reason == "empty"


@pytest.mark.parametrize("form", ["tag", "boxed"])
def test_an_empty_block_is_invalid(form):
    for kind in ("counting", "choice"):
        assert grade(kind, {"tag": "<answer> </answer>", "boxed": r"\boxed{}"}[form], format=form).reason == "empty"


def test_reasoning_that_says_nothing_costs_the_format_part():
    for thought in ("", " ", "hmm", "well, let me think, hmm, okay", "so so so so so so so so so so so so"):
        score = grade("choice", f"<think>{thought}</think><answer>B</answer>", format="tag")
        assert (score.status, score.correct, score.parts["format"]) == ("scored", True, 0.0), thought
    honest = grade("choice", "<think>The cat sits left of the dog.</think><answer>B</answer>", format="tag")
    assert honest.parts["format"] == 1.0


def test_a_dump_of_text_reads_nothing():
    page = "The quick brown fox jumps over the lazy dog near the old mill."
    score = grade("ocr", " ".join([page] * 10), {"text": page})
    assert (score.status, score.value, score.correct) == ("scored", 0.0, False)
    assert score.parts["cer"] > 8
    alphabet = grade("ocr", "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 abcdefghijklmnopqrstuvwxyz", {"text": "EXIT"})
    assert alphabet.value == 0


def test_padding_a_right_answer_costs():
    for kind, answer in (("ocr", "STOP HERE"), ("short_answer", "New York")):
        for padded in (answer + " as anyone can see" * 1000, f"{answer} " * 50):
            assert grade(kind, padded).value == 0
    assert grade("ocr", "STOP HERE now").value < grade("ocr", "STOP HERE").value


def test_ocr_knows_one_spelling_of_an_accent():
    assert grade("ocr", "cafe\u0301", {"text": "caf\u00e9"}).correct
    assert not grade("ocr", "cafe", {"text": "caf\u00e9"}).correct


def test_error_rates_are_over_all_of_the_text():
    pairs = [("a b", "a b"), ("a x c", "a b c"), ("", "dd")]
    assert cer(pairs) == (0 + 1 + 2) / (3 + 5 + 2)
    assert wer(pairs) == (0 + 1 + 1) / (2 + 3 + 1)


def test_anls_by_hand():
    assert anls("kitten", "kitten") == 1
    assert anls("kitten", "mitten") == pytest.approx(5 / 6)
    assert anls("ab", "ac") == 0.5  # the threshold itself is near enough
    assert anls("abcd", "abxy", 0.51) == 0
    assert anls("abcde", "abxyz", 0.3) == pytest.approx(0.4)
    assert anls("abc", "abd") == pytest.approx(2 / 3)
    assert anls("\uff21\uff22\uff23", "abc") == 1
    assert anls("a list of every word there could be", "word") == 0


def test_broken_truths_and_rules_are_named():
    with pytest.raises(BrokenTruth, match="'E' is none of the choices A, B, C, D"):
        grade("choice", "B", {"choice": "E"})
    with pytest.raises(BrokenTruth, match=r"options\.choices: two choices or more"):
        grade("choice", "B", choices=["B"])
    with pytest.raises(BrokenTruth, match=r"options\.threshold"):
        grade("short_answer", "x", threshold=0.0)
    for kind in SHORT:
        with pytest.raises(BrokenTruth, match=r"floor 0\.1 is above 0"):
            grade(kind, "x", floor=0.1)
    assert grade("choice", "left of", {"choice": "left of"}, choices=["left of", "right of"]).correct


texts = st.text(max_size=60) | st.text(alphabet="ABCD 0123456789.,-<>/\\{}boxedanswerthinkpoint", max_size=80)


@pytest.mark.parametrize("kind", SHORT)
@given(text=texts, form=st.sampled_from(["plain", "tag", "boxed", "points"]))
@settings(deadline=None, max_examples=50)
def test_any_text_is_scored_or_invalid(kind, text, form):
    options = (
        {"format": form}
        if "format" in KIND_RULES[kind].model_fields and (form != "points" or kind == "counting")
        else {}
    )
    score = grade(kind, text, **options)
    assert score.status in ("scored", "invalid")
    assert 0 <= score.value <= 1
    assert score.evidence


@given(
    truth=st.text(min_size=1, max_size=30).filter(str.strip), read=st.text(min_size=1, max_size=90).filter(str.strip)
)
@settings(deadline=None, max_examples=50)
def test_only_the_text_itself_reads_in_full(truth, read):
    assert grade("ocr", truth, {"text": truth}).correct
    score = grade("ocr", read, {"text": truth})
    assert score.correct == (score.value == 1) == (score.parts["cer"] == 0)
