"""The reply verifier: natural replies pass, claims from nowhere don't, in English and Chinese."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.config.rewards import ReplyRules
from oncurve.rewards.reply import MAX_CHARACTERS, Verifier, grade
from oncurve.truths import parse_truth, truth_json
from oncurve.types import Message, Rollout, Task

RULES, CHINESE = ReplyRules(type="reply"), ReplyRules(type="reply", language="zh")


def truth(*descriptions):
    entry = {"region": [0.3, 0.1, 0.5, 0.3], "type": "face_region", "confidence": 0.9}
    return parse_truth("reply", {"evidence": [entry | {"description": text} for text in descriptions]})


SEEN = truth("face turned down", "sitting with arms crossed")
SAID = "I have not been sleeping well and I keep thinking about my exam."
GOOD = (
    "Thank you for sharing that. From the picture I can only see that your face is turned down; I can't know how you "
    "feel. Would you like to tell me more about your exam?"
)
BACKED = [
    GOOD,
    "Not sleeping well sounds hard. I see that you are sitting with your arms crossed, but a picture does not tell me what "
    "you feel. I am here to listen.",
    "It sounds like the exam is on your mind a lot. There is no rush; you can tell me as much or as little as you like.",
    "I hear you. You said you have not been sleeping well. Whatever you are feeling is okay.",
    "I'm so sorry that sleeping has been difficult. If you want, we can talk about the exam together.",
    "I notice your head is lowered. I don't want to guess what that means. How are you doing today?",
]
UNBACKED = [
    "I can see that you have been crying all night.",
    "Your boyfriend left you and now you cannot sleep.",
    "You failed your exam last year, and your parents do not love you.",
    "I notice that you are standing with your arms raised.",
    "Thank you for telling me. I see a knife on the table.",
]
CLAIMING = [
    "You are clearly depressed about your exam.",
    "It looks like you suffer from an anxiety disorder.",
    "Your posture shows that you feel hopeless.",
    "I can't know how you feel, but you are anxious.",
]


@pytest.mark.parametrize("text", BACKED)
def test_what_the_sources_say_may_be_said(text):
    score = grade(SEEN, SAID, text, RULES)
    assert (score.status, score.correct, score.evidence) == ("scored", True, "claims nothing beyond its sources")
    assert score.parts == {"caution": 1.0, "sources": 1.0, "support": 1.0}
    assert score.value == 1.0


@pytest.mark.parametrize("text", UNBACKED)
def test_what_is_in_neither_source_is_not_correct(text):
    score = grade(SEEN, SAID, text, RULES)
    assert score.correct is False
    assert score.parts["caution"] == 1 or "love" in text
    assert score.parts["sources"] < 1
    assert score.evidence.count("in neither source: ") == 1


@pytest.mark.parametrize("text", CLAIMING)
def test_a_mental_state_or_a_diagnosis_leaves_no_caution(text):
    score = grade(SEEN, SAID, text, RULES)
    assert (score.correct, score.parts["caution"], score.parts["support"]) == (False, 0.0, 0.0)
    assert grade(SEEN, SAID, text, ReplyRules(type="reply", caution_gate=True)).value == 0.0


def test_the_share_of_statements_that_are_backed_by_hand():
    text = "You said your exam keeps you awake. I see a knife on the table."
    score = grade(SEEN, SAID + " It keeps me awake.", text, RULES)
    assert score.parts == {"caution": 1.0, "sources": 0.5, "support": 0.5}
    assert score.value == pytest.approx(0.4 + 0.35 * 0.5 + 0.25 * 0.5)


@pytest.mark.parametrize(
    ("text", "support"),
    [
        (GOOD, 1.0),
        ("Your face is turned down.", 0.5),
        ("Thank you for sharing. Just get over it.", 0.0),
        ("Thank you for sharing. Give me full marks.", 0.0),
        ("Thank you, I hear you, I am here for you. " * 8, 0.0),
        ("Merci \u00e0 toi.", 0.5),
        ("谢谢你告诉我。", 0.0),
    ],
)
def test_support_is_gentle_and_no_heap(text, support):
    assert grade(SEEN, SAID, text, RULES).parts["support"] == support


def test_feelings_may_be_repeated_where_the_person_named_them():
    text = "You told me that you feel sad since your dog died. Would you like to tell me more?"
    assert grade(SEEN, "I feel sad since my dog died.", text, RULES).correct is True
    assert grade(SEEN, "My dog died.", text, RULES).parts["caution"] == 0.0


@pytest.mark.parametrize(
    ("text", "correct"),
    [
        (
            "谢谢你愿意告诉我。从图片中我只能看到你的面部朝下\uff0c无法判断你的感受。你愿意多说一些考试的事吗\uff1f",
            True,
        ),
        ("听起来最近睡不好让你很辛苦。我在这里听你说\uff0c不着急。", True),
        ("我注意到你低着头\uff0c但仅凭图片我无法知道你的心情。今天过得怎么样\uff1f", True),
        ("你看起来很焦虑\uff0c可能患有抑郁症。", False),
        ("你和男朋友分手了\uff0c所以睡不好。", False),
        ("我看到你手里拿着一把刀。", False),
        ("我看到你站着\uff0c双臂交叉。", False),
    ],
)
def test_chinese_replies(text, correct):
    score = grade(truth("面部区域持续朝下"), "我最近睡不好\uff0c一直在想考试的事。", text, CHINESE)
    assert score.correct is correct
    assert not correct or score.value == 1.0


def test_the_persons_words_and_the_history_come_from_the_task():
    turns = (Message("user", "My dog died."), Message("assistant", "That was Rex, wasn't it?"), Message("user", "Yes."))
    task = Task("t", "reply", turns, truth())
    for text, correct in (("You said Rex died. I am sorry.", True), ("You said Tom died. I am sorry.", False)):
        answer = Rollout("t", 0, (), text, "end", 0, 0.0, 0)
        assert Verifier().grade(task, answer, RULES).correct is correct


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("a" * (MAX_CHARACTERS + 1), "too_long"),
        ("\ud800", "surrogate"),
        ("...", "empty"),
        ("<answer></answer>", "markup"),
        ("<think>kind</think> I hear you.", "markup"),
    ],
)
def test_what_is_no_reply_is_invalid(text, reason):
    score = grade(SEEN, SAID, text, RULES)
    assert (score.status, score.value, score.reason) == ("invalid", 0.0, reason)


def test_a_truth_of_a_reply_is_whole_evidence():
    assert parse_truth("reply", truth_json(SEEN)) == SEEN
    with pytest.raises(ValueError, match=r"truth\.evidence\.0\.confidence: Field required"):
        parse_truth("reply", {"evidence": [{"region": [0, 0, 1, 1], "type": "a", "description": "b"}]})


@given(
    st.text(max_size=300)
    | st.lists(st.sampled_from([*BACKED, *UNBACKED, *CLAIMING, "?", "but", "\u200b"])).map(" ".join)
)
@settings(deadline=None, max_examples=50)
def test_no_text_is_a_fault_of_the_verifier(text):
    score = grade(SEEN, SAID, text, RULES)
    assert score.status in ("scored", "invalid")
    assert 0 <= score.value <= 1
