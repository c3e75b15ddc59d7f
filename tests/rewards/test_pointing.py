"""The pointing verifier: inside or not, distance, and the known attacks on it."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.config.rewards import PointingRules
from oncurve.errors import BrokenTruth
from oncurve.rewards.kinds import rules_for, verifier_of
from oncurve.truths import BoxTruth, DiscTruth
from oncurve.types import Message, Rollout, Task

BOX, DISC = BoxTruth((0.2, 0.3, 0.6, 0.7)), DiscTruth((0.5, 0.5), 0.05)


def grade(truth, text: str, **options):
    task = Task("t", "pointing", (Message("user", "point at it"),), truth, options)
    rules, verifier = rules_for(task, PointingRules(type="pointing")), verifier_of("pointing")
    verifier.check(task, rules)
    return verifier.grade(task, Rollout("t", 0, (), text, "end", 0, 1.0, 0), rules)


@pytest.mark.parametrize(
    ("truth", "x", "y", "inside", "distance"),
    [
        (BOX, 0.4, 0.5, True, 0),
        (BOX, 0.2, 0.3, True, math.hypot(0.2, 0.2)),  # the edge belongs to it
        (BOX, 0.6, 0.7, True, math.hypot(0.2, 0.2)),
        (BOX, 0.19, 0.5, False, 0.21),
        (BOX, 0.4, 0.71, False, 0.21),
        (DISC, 0.5, 0.5, True, 0),
        (DISC, 0.55, 0.5, True, 0.05),
        (DISC, 0.45, 0.5, True, 0.05),
        (DISC, 0.53, 0.54, True, 0.05),
        (DISC, 0.54, 0.54, False, math.hypot(0.04, 0.04)),
    ],
)
def test_values_by_hand(truth, x, y, inside, distance):
    score = grade(truth, f"<point>{x},{y}</point>")
    assert (score.status, score.value, score.correct) == ("scored", float(inside), inside)
    assert score.parts == pytest.approx({"format": 1, "inside": float(inside), "distance": distance}, abs=1e-12)
    assert score.extracted == [x, y]


def test_a_score_in_full():
    score = grade(BOX, "<point>0.4,0.5</point>")
    assert (score.evidence, score.verifier) == ("inside the truth's box, 0.00 from its middle", "pointing/1")
    assert grade(DISC, "<point>0.5,0.8</point>").evidence == "outside the truth's disc, 0.30 from its middle"


def test_molmo_counts_in_percent():
    assert grade(BOX, '<point x="40.0" y="50.0" alt="the cat">the cat</point>', dialect="molmo_point").correct
    assert not grade(BOX, '<point x="4.0" y="50.0" alt="the cat">the cat</point>', dialect="molmo_point").correct
    assert grade(BOX, "<point>0.4,0.5</point>", dialect="molmo_point").status == "invalid"


def test_closeness_by_hand():
    assert grade(BOX, "<point>0.4,0.5</point>", closeness=True).value == 1
    assert grade(BOX, "<point>0.4,0.6</point>", closeness=True).value == pytest.approx(1 - 0.1 / math.sqrt(2) / 2)
    assert grade(BOX, "<point>0.4,0.8</point>", closeness=True).value == pytest.approx(0.5 - 0.3 / math.sqrt(2) / 2)


points = st.tuples(st.integers(0, 100), st.integers(0, 100)).map(
    lambda xy: f"<point>{xy[0] / 100},{xy[1] / 100}</point>"
)


@given(points, points, st.sampled_from([BOX, DISC, BoxTruth((0.0, 0.0, 1.0, 0.02))]))
@settings(deadline=None, max_examples=50)
def test_closeness_never_pays_a_miss_as_much_as_a_hit(one, other, truth):
    worse, better = sorted(
        (grade(truth, text, closeness=True) for text in (one, other)), key=lambda score: score.correct
    )
    assert 0 <= worse.value <= 1
    if worse.correct < better.correct:
        assert worse.value < better.value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("<point></point>", "syntax"),
        ("none", "syntax"),
        ("<box>0.2,0.3,0.6,0.7</box>", "syntax"),
        ("<point>0.4,0.5</point><point>0.1,0.1</point>", "repeated_tags"),  # multi_answer
        ("<point><point>0.4,0.5</point></point>", "repeated_tags"),
        ("<point>nan,0.5</point>", "syntax"),
        ("<point>0.4,1e999</point>", "syntax"),
        ("<point>-0.0,0.5</point>", "number"),
        ("<point>0.4,1.5</point>", "outside"),
        ("<point>0.4,\uff10.5</point>", "syntax"),
        ("<point>0.4,\u0660</point>", "syntax"),
        ("<point>0.4,0.5</point>" + " yes" * 5000, "text_around"),
        ("yes " * 5000 + "<point>0.4,0.5</point>", "text_around"),
        ("<point>0.4,0.5</point>" + " yes" * 500_000, "too_long"),
    ],
)
def test_the_gate(text, reason):
    score = grade(BOX, text, floor=-0.5)
    assert (score.status, score.value, score.correct, score.reason) == ("invalid", -0.5, False, reason)


@pytest.mark.parametrize(
    ("options", "words"), [({"dialect": "box01"}, "options.dialect"), ({"floor": 0.1}, "set floor")]
)
def test_broken_options(options, words):
    with pytest.raises(BrokenTruth, match=words):
        grade(BOX, "<point>0.4,0.5</point>", **options)
