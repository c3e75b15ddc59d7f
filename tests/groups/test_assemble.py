"""Groups: what they refuse to mix, field by field, and what their fingerprint covers."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from oncurve.errors import MixedGroupError
from oncurve.groups.assemble import Member, assemble, fingerprint, make_group
from oncurve.types import Message, Score, Task, TaskImage

RULES = "grounding/1 {}"


def score(value: float = 0.5, verifier: str = "grounding/1") -> Score:
    return Score("scored", value, verifier=verifier)


def image(color: tuple[int, int, int], source: str = "a.png") -> TaskImage:
    return TaskImage.of(Image.new("RGB", (4, 4), color), source)


@pytest.fixture
def task(text_task):
    return text_task("t", images=[image((1, 2, 3))])


def with_user(task: Task, **fields) -> Task:
    system, user = task.messages
    return replace(task, messages=(system, replace(user, **fields)))


def test_a_group(task, rollout, failed):
    rollouts, scores = [rollout("t", i) for i in range(3)], [score(0.1), failed, score(0.9)]
    group = make_group([Member(task, r, s, RULES) for r, s in zip(rollouts, scores, strict=True)])
    assert group.rollouts == tuple(rollouts)
    assert group.scores == tuple(scores)
    assert group.scored_G == (True, False, True)
    assert group.fingerprint == fingerprint(task, RULES, 0)


texts = st.text(min_size=1, max_size=8)
corners = st.sampled_from([0.25, 0.3, 0.35, 0.4])
CHANGES = {  # what is drawn, and the member with it; each field's name is the error's
    "system prompt": (
        texts.filter(lambda text: text != "answer with a box"),
        lambda m, text: replace(m, task=replace(m.task, messages=(Message("system", text), m.task.messages[1]))),
    ),
    "system prompt, left out": (
        st.just(None),
        lambda m, _: replace(m, task=replace(m.task, messages=m.task.messages[1:])),
    ),
    "prompt": (
        texts.filter(lambda text: text != "box the cat"),
        lambda m, text: replace(m, task=with_user(m.task, text=text)),
    ),
    "images": (
        st.integers(4, 255),
        lambda m, red: replace(m, task=with_user(m.task, images=(image((red, 2, 3)),))),
    ),
    "truth": (
        corners,
        lambda m, x: replace(m, task=replace(m.task, truth=replace(m.task.truth, box=(x, 0.2, 0.6, 0.6)))),
    ),
    "options": (
        st.sampled_from([{"power": 1.0}, {"floor": 0.0}]),
        lambda m, options: replace(m, task=replace(m.task, options=options)),
    ),
    "kind": (st.sampled_from(["pointing", "math"]), lambda m, kind: replace(m, task=replace(m.task, kind=kind))),
    "rules": (texts, lambda m, text: replace(m, rules=RULES + text)),
    "policy version": (
        st.integers(1, 99),
        lambda m, version: replace(m, rollout=replace(m.rollout, policy_version=version)),
    ),
    "verifier": (
        st.integers(2, 9),
        lambda m, number: replace(m, score=score(verifier=f"grounding/{number}")),
    ),
    "task": (texts.filter(lambda text: text != "t"), lambda m, name: replace(m, task=replace(m.task, id=name))),
}


@pytest.mark.parametrize("field", CHANGES)
@given(data=st.data())
@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_member_that_differs_is_refused_and_the_field_named(task, rollout, field, data):
    drawn, change = CHANGES[field]
    members = [Member(task, rollout("t", i), score(), RULES) for i in range(4)]
    make_group(members)
    which = data.draw(st.integers(0, 3), label="member")
    members[which] = change(members[which], data.draw(drawn, label=field))
    with pytest.raises(MixedGroupError) as fault:
        make_group(members)
    assert f": a group mixes two values of its {field.partition(',')[0]}, " in str(fault.value)
    assert f"(member {which or 1})" in str(fault.value)


def test_an_answer_to_another_task_and_an_answer_twice(task, rollout):
    with pytest.raises(MixedGroupError, match="task t: member 1 is an answer to u"):
        make_group([Member(task, rollout("t", 0), score(), RULES), Member(task, rollout("u", 1), score(), RULES)])
    with pytest.raises(MixedGroupError, match="answer 0 stands in its group twice"):
        make_group([Member(task, rollout("t", 0), score(), RULES)] * 2)


PRINTED = {
    "task id": lambda task: replace(task, id="u"),
    "system prompt": lambda task: replace(task, messages=(Message("system", "be brief"), task.messages[1])),
    "no system prompt": lambda task: replace(task, messages=task.messages[1:]),
    "text": lambda task: with_user(task, text="box the dog"),
    "image": lambda task: with_user(task, images=(image((9, 9, 9)),)),
    "image's size": lambda task: with_user(task, images=(TaskImage.of(Image.new("RGB", (2, 8), (1, 2, 3)), "a.png"),)),
    "image at another message": lambda task: replace(
        task, messages=(replace(task.messages[0], images=task.images), replace(task.messages[1], images=()))
    ),
    "order of messages": lambda task: replace(task, messages=task.messages[::-1]),
    "truth": lambda task: replace(task, truth=replace(task.truth, box=(0.2, 0.2, 0.6, 0.7))),
}


@pytest.mark.parametrize("change", PRINTED.values(), ids=PRINTED)
def test_the_fingerprint_covers_the_task(task, change):
    assert fingerprint(change(task), RULES, 0) != fingerprint(task, RULES, 0)


def test_the_fingerprint_covers_rules_and_policy_version(task):
    prints = {fingerprint(task, RULES, 0), fingerprint(task, RULES + " ", 0), fingerprint(task, RULES, 1)}
    assert len(prints) == 3


def test_the_fingerprint_does_not_cover_where_an_image_came_from(task):
    moved = with_user(task, images=(image((1, 2, 3), "elsewhere.png"),))
    assert fingerprint(moved, RULES, 0) == fingerprint(task, RULES, 0)


def test_assemble_cuts_each_tasks_answers(task, text_task, rollout):
    other = text_task("u")
    members = [Member(task, rollout("t", i), score(i / 10), RULES) for i in range(4)]
    members += [Member(other, rollout("u", i), score(i / 10 + 0.5), RULES) for i in range(4)]
    groups = assemble(members, 2)
    assert [group.task.id for group in groups] == ["t", "t", "u", "u"]
    assert [[r.index for r in group.rollouts] for group in groups] == [[0, 1], [2, 3], [0, 1], [2, 3]]
    assert groups[3].rewards_G == pytest.approx((0.7, 0.8))
    assert groups[0].fingerprint == groups[1].fingerprint != groups[2].fingerprint


def test_assemble_joins_the_answers_of_later_rounds(task, text_task, rollout):
    other = text_task("u")
    rounds = [(task, "t", 0), (task, "t", 1), (other, "u", 0), (other, "u", 1), (task, "t", 2)]
    groups = assemble(Member(asked, rollout(name, i), score(), RULES) for asked, name, i in rounds)
    assert [[r.index for r in group.rollouts] for group in groups] == [[0, 1, 2], [0, 1]]
