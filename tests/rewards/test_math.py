"""Mathematics: a hand-made table of right answers and near misses, GSM8K's own answers, and what tries to break the grader."""

import json
import os
import resource
import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.config.rewards import MathRules
from oncurve.errors import BrokenTruth
from oncurve.parsing import MalformedAnswer
from oncurve.rewards.math import Verifier
from oncurve.rewards.math_text import number, read, unit_name
from oncurve.truths import MathTruth
from oncurve.types import Rollout, Score, Task

REFERENCE = Path(__file__).parents[1] / "reference"
TABLE = tomllib.loads((REFERENCE / "math_answers.toml").read_text("utf-8"))["task"]
GSM8K = [json.loads(line) for line in (REFERENCE / "gsm8k_60.jsonl").read_text("utf-8").splitlines()]
VERIFIER = Verifier()


def grade(truth: str, text: str, unit: str | None = None, form: str = "boxed", timeout_s: float = 5.0) -> Score:
    task = Task("t", "math", (), MathTruth(truth, unit))
    rules = MathRules(type="math", format=form, timeout_s=timeout_s, floor=-1.0)
    return VERIFIER.grade(task, Rollout("t", 0, (), text, "end", 0, 1.0, 0), rules)


def boxed(truth: str, answer: str, **more) -> Score:
    return grade(truth, rf"\boxed{{{answer}}}", **more)


@pytest.mark.parametrize("task", TABLE, ids=lambda task: task["truth"])
def test_right_answers_and_near_misses(task):
    unit = task.get("unit")
    VERIFIER.check(Task("t", "math", (), MathTruth(task["truth"], unit)), MathRules(type="math"))
    scores = {answer: boxed(task["truth"], answer, unit=unit) for answer in task["right"] + task["wrong"]}
    assert [answer for answer in task["right"] if not scores[answer].correct] == []
    assert [answer for answer in task["wrong"] if scores[answer].correct] == []
    assert "error" not in {score.status for score in scores.values()}


def test_the_table_is_large_enough():
    assert sum(len(task["wrong"]) for task in TABLE) >= 350


@pytest.mark.parametrize("form", ["boxed", "hash", "tag"])
def test_gsm8k_behind_its_own_reasoning(form):
    wrap = {"boxed": r"\boxed{%s}", "hash": "#### %s", "tag": "<answer>%s</answer>"}[form]
    for row in GSM8K:
        reasoning, _, truth = row["answer"].rpartition("\n#### ")
        value = int(truth.replace(",", ""))
        for spelling in (truth, f"{value:,}", f"{value}.0", rf"\${value}", f"{value} dollars", f"{value}."):
            assert grade(truth, reasoning + "\n" + wrap % spelling, form=form).correct, (truth, spelling)
        for miss in (
            value + 1,
            -value or 1,
            f"{value}1",
            rf"{value}\%",
            f"{value} or {value + 1}",
            f"{value + 1} = {value}",
        ):
            assert not grade(truth, reasoning + "\n" + wrap % miss, form=form).correct, (truth, miss)


@pytest.mark.parametrize(
    ("text", "form", "reason"),
    [
        (r"\boxed{42} \boxed{43}", "boxed", "multi_answer"),
        (r"\boxed{42} ... actually \boxed{43}", "boxed", "multi_answer"),
        (r"\boxed{42}. No, that is wrong.", "boxed", "text_around"),
        (r"\boxed{\boxed{42}}", "boxed", "multi_answer"),
        (r"\boxed{42 or 43}", "boxed", "multi_answer"),
        (r"\boxed{41 = 42}", "boxed", "equation"),
        (r"\boxed{42", "boxed", "syntax"),
        (r"\boxed{}", "boxed", "empty"),
        ("", "boxed", "empty"),
        ("42", "boxed", "no_answer"),
        (r"<think>\boxed{42}</think>", "boxed", "text_around"),
        (r"<think>it is 42 \boxed{42}", "boxed", "repeated_tags"),
        (r"<think>a</think><think>b</think>\boxed{42}", "boxed", "repeated_tags"),
        (r"definitely not \boxed{42}", "boxed", "negated"),
        (r"It isn't $\boxed{42}$.", "boxed", "negated"),
        ("The answer is not\n$$\\boxed{42}$$", "boxed", "negated"),
        (r"x \neq \boxed{42}", "boxed", "negated"),
        (r"\boxed{definitely not 42}", "boxed", "syntax"),
        (r"\boxed{42}" + " really" * 10_000, "boxed", "text_around"),
        ("#### 42\n#### 43", "hash", "multi_answer"),
        ("#### 42\nor so", "hash", "text_around"),
        ("####", "hash", "empty"),
        ("<answer>42</answer><answer>42</answer>", "tag", "multi_answer"),
        ("<answer><answer>42</answer></answer>", "tag", "multi_answer"),
        ("</answer>42<answer>", "tag", "syntax"),
        ("<answer></answer>", "tag", "empty"),
        (r"\boxed{__import__('os').system('touch pwned')}", "boxed", "syntax"),
        (r"\boxed{9^{9^{9^9}}}", "boxed", "memory"),
        (r"\boxed{99999999!}", "boxed", "memory"),
        (r"\boxed{((3!)!)!}", "boxed", "memory"),
        (r"\boxed{9^{\left(9^9\right)}}", "boxed", "memory"),
        (r"\boxed{9**(9**9)}", "boxed", "memory"),
        (r"\boxed{" + "(" * 10_000 + "42" + ")" * 10_000 + "}", "boxed", "memory"),
        (r"\boxed{" + "{" * 100 + "42" + "}" * 100 + "}", "boxed", "memory"),
        ("\\boxed{\uff14\uff12}", "boxed", "characters"),
        ("\\boxed{4\u200b2}", "boxed", "characters"),
        (r"\boxed{nan}", "boxed", "number"),
        (r"\boxed{1e999}", "boxed", "number"),
        (r"\boxed{-0.0}", "boxed", "number"),
        (r"\boxed{" + "4" * 21 + "}", "boxed", "number"),
        ("\\boxed{42}\ud800", "boxed", "characters"),
    ],
)
def test_what_is_invalid_and_why(text, form, reason, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    score = grade("42", text, form=form)
    assert (score.status, score.reason, score.value, score.correct) == ("invalid", reason, -1.0, False)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [
        "6 * 7 = 42, so the answer is $\\boxed{42}$.",
        "She does not buy any, so she has \\boxed{42}",
        "It is not 41 but \\boxed{42}",
        "They did not drink it\n\\boxed{42}",
        "\\[\\boxed{42}\\]",
        "**\\boxed{42}**",
        "<think>Six times seven is forty-two.</think>\n\\boxed{42}",
    ],
)
def test_reasoning_may_stand_before(text):
    score = grade("42", text)
    assert (score.correct, score.parts) == (True, {"format": 1.0})
    assert score.extracted == "42"


def test_reasoning_that_says_nothing_costs_the_format_part():
    score = grade("42", r"<think> </think>\boxed{42}")
    assert (score.status, score.correct, score.parts) == ("scored", True, {"format": 0.0})


def test_a_bomb_that_gets_past_the_guards_is_killed_and_the_next_answer_graded():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.monotonic()
    score = boxed("x^2", "((x+1)^{9999}+1)^{9999}", timeout_s=1.0)
    assert (score.status, score.reason, score.value) == ("invalid", "timeout", -1.0)
    assert time.monotonic() - begin < 60  # without the kill it runs for hours
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB
    assert boxed("x^2", r"x \cdot x").correct


def test_a_process_that_dies_is_not_a_wrong_answer_and_is_replaced(monkeypatch):
    boxed("x^2", "x*x")
    worker, num_answers = VERIFIER._idle.get_nowait()
    worker._kill()
    VERIFIER._idle.put((worker, num_answers))
    assert boxed("x^2", r"x \cdot x").correct


@pytest.mark.parametrize(
    ("truth", "unit", "words"),
    [
        (r"\int_0^1 x dx", None, "not worked out"),
        (r"\frac{1}{", None, "a bracket is not closed"),
        (r"\nosuch{3}{4}", None, "can't be read"),
        ("\uff11\uff12", None, "not plain|can't be read"),
        ("about forty 2", None, "no mathematics"),
        ("42 km", "cm", "does not go with"),
        ("(1, 2)", "cm", "does not go with"),
    ],
)
def test_broken_truths(truth, unit, words):
    with pytest.raises(BrokenTruth, match=words):
        VERIFIER.check(Task("t", "math", (), MathTruth(truth, unit)), MathRules(type="math"))


@pytest.mark.parametrize(
    ("latex", "value"),
    [
        ("12", 12), ("-0.5", -0.5), ("1,234.5", 1234.5), ("1e3", 1000), (r"\frac{3}{4}", 0.75), ("-3/4", -0.75),
        (r"2\frac{1}{2}", 2.5), ("2 1/2", 2.5), (r"-\frac{1}{4}", -0.25), (r"2.5 \times 10^{-1}", 0.25), (".5", 0.5),
    ],
)  # fmt: skip
def test_numbers_are_exact(latex, value):
    assert number(latex).value == value


@pytest.mark.parametrize(
    "latex", ["", "-", ".", "1,23", "1.2.3", "x", "1+1", r"\frac{1}{x}", "1e", "e3", "0x1", "1_000"]
)
def test_what_is_not_written_out_as_a_number(latex):
    assert number(latex) is None


def test_units_have_one_name():
    assert {
        unit_name(u)
        for u in ("cm", r"\text{ cm}", "centimeters", "centimetre", r"\mathrm{cm}".replace("mathrm", "text"))
    } == {"cm"}
    assert unit_name(r"\text{cm}^{2}") == unit_name("square centimeters") == "cm^2"
    assert len({unit_name(u) for u in ("m", "mm", "cm", "km", "M", "min", "m^2", "m^3")}) == 8


latex = st.text(alphabet=r"0123456789+-*/^=()[]{},.<>!|_ xyein\$%" + "'", max_size=40)
PIECES = r"42 x \frac{1}{2} \sqrt{ } ( ) , = ^ \{ \} ! i \pi < \pm \cup [ e"
pieces = st.lists(
    st.sampled_from([*PIECES.split(), " cm"]),
    max_size=10,
).map("".join)  # fmt: skip


@given(text=latex | pieces | st.text(max_size=30))
@settings(deadline=None, max_examples=50)
def test_any_text_is_scored_or_invalid(text):
    for truth in ("42", "x^2+1"):
        score = boxed(truth, text, timeout_s=2.0)
        assert score.status in ("scored", "invalid"), (text, score)
        assert score.evidence


@given(text=latex | pieces | st.text(max_size=60))
@settings(deadline=None, max_examples=50)
def test_reading_raises_nothing_else(text):
    try:
        answer = read(text)
    except MalformedAnswer:
        return
    assert answer.items


@given(
    value=st.fractions(min_value=-10_000, max_value=10_000, max_denominator=1000),
    other=st.fractions(max_denominator=1000),
)
@settings(deadline=None, max_examples=50)
def test_two_fractions_are_equal_or_not(value, other):
    def written(x):
        return str(x.numerator) if x.denominator == 1 else rf"\frac{{{x.numerator}}}{{{x.denominator}}}"

    try:
        assert boxed(written(value), written(other)).correct == (value == other)
        assert boxed(written(value), written(value)).correct
    except MalformedAnswer:
        pytest.fail("a fraction can't be read")
