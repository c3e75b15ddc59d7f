"""Groups: what they refuse to mix, and what their fingerprint covers."""

from dataclasses import replace

import pytest
from PIL import Image

from oncurve.errors import MixedGroupError
from oncurve.groups.assemble import assemble, fingerprint, make_group
from oncurve.types import Message, Score, Task, TaskImage

RULES = "grounding/1 {}"


def score(value: float = 0.5, verifier: str = "grounding/1") -> Score:
    return Score("scored", value, verifier=verifier)


def image(color: tuple[int, int, int], source: str = "a.png") -> TaskImage:
    return TaskImage.of(Image.new("RGB", (4, 4), color), source)


@pytest.fixture
def task(text_task):
    return text_task("t", images=[image((1, 2, 3))])


def test_a_group(task, rollout, failed):
    rollouts, scores = [rollout("t", i) for i in range(3)], [score(0.1), failed, score(0.9)]
    group = make_group(task, rollouts, scores, RULES)
    assert group.rollouts == tuple(rollouts)
    assert group.scores == tuple(scores)
    assert group.scored_G == (True, False, True)
    assert group.fingerprint == fingerprint(task, RULES, 0)


@pytest.mark.parametrize(
    ("changes", "verifier", "said"),
    [
        ({"task_id": "u"}, "grounding/1", "task t: a group mixes two values of its task, 't' and 'u' (member 2)"),
        ({"version": 4}, "grounding/1", "two values of its policy version, 0 and 4 (member 1)"),
        ({}, "grounding/2", "two values of its verifier, 'grounding/1' and 'grounding/2' (member 1)"),
        ({"index": 0}, "grounding/1", "answer 0 stands in its group twice"),
    ],
)
def test_a_mixed_group_is_refused_and_the_field_named(task, rollout, changes, verifier, said):
    second = rollout(**{"task_id": "t", "index": 1} | changes)
    with pytest.raises(MixedGroupError) as fault:
        make_group(task, [rollout("t", 0), second], [score(), score(verifier=verifier)], RULES)
    assert said in str(fault.value)


def with_user(task: Task, **fields) -> Task:
    system, user = task.messages
    return replace(task, messages=(system, replace(user, **fields)))


CHANGES = {
    "task id": lambda task: replace(task, id="u"),
    "system prompt": lambda task: replace(task, messages=(Message("system", "be brief"), task.messages[1])),
    "no system prompt": lambda task: replace(task, messages=task.messages[1:]),
    "text": lambda task: with_user(task, text="box the dog"),
    "image": lambda task: with_user(task, images=(image((9, 9, 9)),)),
    "image's size": lambda task: with_user(task, images=(TaskImage.of(Image.new("RGB", (2, 8), (1, 2, 3)), "a.png"),)),
    "truth": lambda task: replace(task, truth=replace(task.truth, box=(0.2, 0.2, 0.6, 0.7))),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
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
    rollouts = [[rollout("t", i) for i in range(4)], [rollout("u", i) for i in range(4)]]
    scores = [[score(i / 10) for i in range(4)], [score(i / 10 + 0.5) for i in range(4)]]
    groups = assemble([task, other], rollouts, scores, RULES, 2)
    assert [group.task.id for group in groups] == ["t", "t", "u", "u"]
    assert [[r.index for r in group.rollouts] for group in groups] == [[0, 1], [2, 3], [0, 1], [2, 3]]
    assert groups[3].rewards_G == pytest.approx((0.7, 0.8))
    assert groups[0].fingerprint == groups[1].fingerprint != groups[2].fingerprint
